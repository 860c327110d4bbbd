"""A server whose time a test moves, and clients of both versions of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kinesis_ds.testing import (
    Fault,
    KinesisServer,
    ManualClock,
)
from tests.support.wire import Http1Client, Http2Client, Reply, WireClient


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[KinesisServer]:
    with KinesisServer(clock=clock, tls=True) as server:
        server.create_stream("orders")
        yield server


@pytest.fixture(params=[Http1Client, Http2Client], ids=["http1", "http2"])
def client(request: pytest.FixtureRequest, server: KinesisServer) -> Iterator[WireClient]:
    client = Http1Client(server.endpoint) if request.param is Http1Client else Http2Client(server)
    yield client
    client.close()


@pytest.fixture
def consumer(server: KinesisServer, clock: ManualClock) -> str:
    """A consumer that is ACTIVE."""
    arn = server.call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    given = server.call("RegisterStreamConsumer", StreamARN=arn["StreamARN"], ConsumerName="reader")
    clock.advance(1)
    return str(given["Consumer"]["ConsumerARN"])


@pytest.fixture
def subscribe(server: KinesisServer, client: WireClient, consumer: str) -> Callable[..., Reply]:
    """Calls SubscribeToShard from the oldest record."""
    (shard,) = server.open_shards("orders")

    def call(*faults: Fault) -> Reply:
        server.add_faults(*faults)
        return client.post(
            "SubscribeToShard",
            {
                "ConsumerARN": consumer,
                "ShardId": shard,
                "StartingPosition": {"Type": "TRIM_HORIZON"},
            },
        )

    return call
