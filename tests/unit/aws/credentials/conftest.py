"""A Kinesis and an STS that share a clock, and nothing of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kinesis_ds.testing import KinesisServer, ManualClock, Settings
from tests.support.sts import StsDouble


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's user, and no metadata service is asked."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kinesis(clock: ManualClock) -> Iterator[KinesisServer]:
    """A double with a stream ``orders``, which refuses what has expired."""
    with KinesisServer(Settings(enforce_limits=False), clock=clock) as kinesis:
        kinesis.create_stream("orders")
        kinesis.put("orders", b"one")
        yield kinesis


@pytest.fixture
def sts(kinesis: KinesisServer, clock: ManualClock) -> Iterator[StsDouble]:
    with StsDouble(kinesis, clock.wall) as sts:
        yield sts
