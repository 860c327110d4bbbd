"""A double with TLS and a consumer, for the tests that run over both transports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kinesis_ds.testing import (
    KinesisServer,
    Settings,
)
from tests.support.subscriptions import STREAM, register_consumer


@pytest.fixture(params=["http1", "http2"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A double with two shards, trusted, whose shards may be taken again at once."""
    settings = Settings(enforce_limits=False, consumer_ready_s=0, resubscribe_s=0)
    with KinesisServer(settings, tls=True) as kinesis:
        kinesis.create_stream(STREAM, 2)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(kinesis.ca_file))
        yield kinesis


@pytest.fixture
def consumer(kinesis: KinesisServer) -> str:
    return register_consumer(kinesis)
