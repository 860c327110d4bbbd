"""Subscriptions of an open connection to a double, for the tests of transports."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

from kinesis_ds.aws.connection import Connection, EventStream
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.testing import (
    KinesisServer,
)
from kinesis_ds.wire.event_stream import MessageParser

STREAM = "orders"


def register_consumer(kinesis: KinesisServer) -> str:
    """Register a consumer of the stream and return its ARN."""
    described = kinesis.call("DescribeStreamSummary", StreamName=STREAM)
    arn = described["StreamDescriptionSummary"]["StreamARN"]
    made = kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="reader")
    return str(made["Consumer"]["ConsumerARN"])


class Reader:
    """An open connection, and what it subscribes to."""

    def __init__(self, connection: Connection, consumer: str) -> None:
        self.connection = connection
        self._consumer = consumer

    def subscribe(self, shard: int = 0) -> contextlib.AbstractAsyncContextManager[EventStream]:
        shard_id = f"shardId-{shard:012}"
        return self.connection.subscribe(self._consumer, shard_id, TRIM_HORIZON, "the shard")

    @property
    def streams(self) -> list[tuple[int, int]]:
        """For each HTTP/2 connection: how many streams are read, and how many left open."""
        pool = self.connection._http2  # what a pool holds is nowhere to be seen from outside
        return pool.statistics() if pool is not None else []


def run(
    kinesis: KinesisServer,
    consumer: str,
    transport: str,
    story: Callable[[Reader], Awaitable[Any]],
) -> Any:
    """Run a story with an open connection, in an event loop of its own; return its result."""

    async def whole() -> Any:
        async with opened(kinesis, consumer, transport) as reader:
            return await asyncio.wait_for(story(reader), 30)

    return asyncio.run(whole())


@contextlib.asynccontextmanager
async def opened(kinesis: KinesisServer, consumer: str, transport: Any) -> AsyncIterator[Reader]:
    """Yield an open connection to the double, over TLS."""
    aws = AwsOptions("us-east-1", kinesis.tls_endpoint, "access", "secret", transport=transport)
    async with Connection(aws, client_attempts=1) as connection:
        yield Reader(connection, consumer)


async def until(look: Callable[[], object]) -> None:
    """Wait on the loop until ``look`` returns something true."""
    while not look():  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.01)


async def read(stream: EventStream, size: int) -> bytes:
    """Read at least ``size`` bytes."""
    body = b""
    while len(body) < size:
        body += await stream.chunks.__anext__()
    return body


async def rest(stream: EventStream) -> bytes:
    """Read to the end of the stream."""
    return b"".join([piece async for piece in stream.chunks])


def data(body: bytes) -> list[bytes]:
    """Return the data of the records in the bytes of an event stream."""
    parser = MessageParser()
    parser.feed(body)
    found: list[bytes] = []
    while parser.next_size() is not None and (message := parser.take()) is not None:
        message.check()
        if message.headers().get(":event-type") == "SubscribeToShardEvent":
            records = orjson.loads(message.payload)["Records"]
            found += [base64.b64decode(record["Data"]) for record in records]
    return found
