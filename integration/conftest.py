"""Servers, clients and streams for the integration tests.

A server that cannot start fails its tests; it never skips them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from devtools.installing import Recipe
from devtools.kinesis_local import KinesisLocal
from devtools.localstack import LocalStack
from devtools.ministack import Ministack
from devtools.server import Server
from integration.streams import client_of, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

MakeStream = Callable[..., str]


def _is_ours(item: pytest.Item) -> bool:
    return item.path.is_relative_to(os.path.dirname(__file__))


def _needs_servers(item: pytest.Item) -> bool:
    return _is_ours(item) and item.get_closest_marker("chaos") is None  # those bring the double


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by place, so that no test here can miss the marker and run in the wrong tier."""
    for item in items:
        if _is_ours(item):
            item.add_marker(pytest.mark.integration)
            # They end by deadlines of their own; this one is for what hangs.
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(400))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Install the servers before the first test: that takes longer than a test's timeout."""
    if session.config.option.collectonly or not any(map(_needs_servers, session.items)):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        recipes = [server.recipe for server in (LocalStack, Ministack, KinesisLocal)]
        with ThreadPoolExecutor(len(recipes)) as at_once:  # pip and npm wait, mostly
            list(at_once.map(Recipe.install, recipes))


def read_into_nothing(spark: SparkSession, checkpoint: Path, **options: str) -> StreamingQuery:
    """Start a query that reads a stream and keeps nothing."""
    return (
        spark.readStream.format("kinesis")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


@pytest.fixture(scope="session")
def localstack() -> Iterator[Server]:
    """LocalStack, for the whole run."""
    with LocalStack() as server:
        yield server


@pytest.fixture(scope="session")
def ministack() -> Iterator[Server]:
    """ministack, for the whole run: never for completeness across a reshard."""
    with Ministack() as server:
        yield server


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[Server]:
    """kinesis-local, for the whole run: its subscriptions cannot be read."""
    with KinesisLocal() as server:
        yield server


@pytest.fixture(scope="session")
def endpoint(localstack: Server) -> str:
    """The URL of LocalStack, as the connector's `endpoint` option takes it."""
    return localstack.endpoint


@pytest.fixture(scope="session")
def kinesis(localstack: Server) -> Any:
    """A synchronous Kinesis client of LocalStack."""
    return client_of(localstack)


@pytest.fixture(scope="session")
def ministack_kinesis(ministack: Server) -> Any:
    """A synchronous Kinesis client of ministack."""
    return client_of(ministack)


@pytest.fixture
def make_stream(request: pytest.FixtureRequest) -> Iterator[MakeStream]:
    """Make streams that live as long as the test: `make_stream(shards=4)` returns the name.

    On LocalStack, or where `client` says so.
    """
    with contextlib.ExitStack() as streams:

        def make(shards: int = 1, *, client: Any = None) -> str:
            # Asked for here, so that a test of ministack does not start LocalStack too.
            chosen = client or request.getfixturevalue("kinesis")
            return streams.enter_context(stream(chosen, shards))

        yield make
