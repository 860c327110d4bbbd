"""Doubles of Kinesis that a session of Spark reads from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from kinesis_ds.testing import KinesisServer, Settings

STREAM = "orders"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by place, so that no test here can miss the marker and run in the wrong tier."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)
            # PySpark 4.0 leaves sockets of its gateway to the garbage collector.
            for ignored in (
                "ignore:unclosed <socket:ResourceWarning",
                "ignore::pytest.PytestUnraisableExceptionWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(ignored))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600))


class Serve(Protocol):
    def __call__(self, settings: Settings | None = None, *, shards: int = 1) -> KinesisServer: ...


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts doubles with a stream ``orders``, in the machine's own time."""
    with contextlib.ExitStack() as ending:

        def serve(settings: Settings | None = None, *, shards: int = 1) -> KinesisServer:
            kinesis = ending.enter_context(KinesisServer(settings))
            kinesis.create_stream(STREAM, shards)
            return kinesis

        yield serve
