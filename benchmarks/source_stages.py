"""Measure each stage of the source alone, in CPU seconds per GB of data, on one core.

The same records go through the connector's own parts, one after the other, in this process:

* *network*: the bytes of a subscription off the socket, over HTTP/1.1; nothing is done with them;
* *network, HTTP/2*: the same over TLS and HTTP/2, where `awscrt` is installed; not one of the sum;
* *frame*: cut into messages, checksums compared;
* *decode*: headers, JSON, base64, Arrow batch;
* *Flight*: from the buffer, through server and client (both are counted), with the columns that
  Spark wants.

The median of several rounds. What Spark costs is what is left of the CPU of a whole query.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.agent.range_server import RangeServer
from kinesis_ds.aws.connection import Connection
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.testing.frames import initial_message
from kinesis_ds.wire.decode import Records, decode_event
from kinesis_ds.wire.event_stream import Message, MessageParser
from kinesis_ds.wire.schema import to_source_batch

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.testing import Replay

STAGES = ("network", "frame", "decode", "Flight")
OVER_HTTP2 = "network, HTTP/2"
_SHARD = "shardId-000000000000"


@dataclass(frozen=True)
class Subscribed:
    """A shard in wire-speed mode.

    Attributes:
        aws: Where it is.
        consumers: ARNs; one a round, since none may come back within five seconds.
        replay: What it sends.
    """

    aws: AwsOptions
    consumers: tuple[str, ...]
    replay: Replay

    @property
    def wire_bytes(self) -> int:
        return len(initial_message()) + sum(map(len, self.replay.frames))


def stages(shard: Subscribed) -> dict[str, float]:
    """CPU seconds per GB by stage."""
    return _medians([_round(shard, consumer) for consumer in shard.consumers])


def over_http2(shard: Subscribed) -> dict[str, float]:
    """CPU seconds per GB of the network over TLS and HTTP/2; the options have to say so."""
    rounds = []
    for consumer in shard.consumers:
        _, seconds = asyncio.run(_receive(shard, consumer))
        rounds.append({OVER_HTTP2: seconds / shard.replay.data_bytes * 1e9})
    return _medians(rounds)


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {stage: statistics.median(r[stage] for r in rounds) for stage in rounds[0]}


def _round(shard: Subscribed, consumer: str) -> dict[str, float]:
    spent: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], None]) -> None:
        began = time.process_time()
        work()
        spent[stage] = time.process_time() - began

    messages: list[Message] = []
    decoded: list[Records] = []
    chunks, spent["network"] = asyncio.run(_receive(shard, consumer))

    def frame() -> None:
        parser = MessageParser()
        for chunk in chunks:
            parser.feed(chunk)
            while (message := parser.take()) is not None:
                message.check()
                messages.append(message)

    def decode() -> None:
        for message in messages:
            if message.headers().get(":event-type") == "SubscribeToShardEvent":
                records = decode_event(message.payload, TRIM_HORIZON).records
                if records is not None:
                    decoded.append(records)

    timed("frame", frame)
    timed("decode", decode)
    buffer = ShardBuffer(_SHARD, TRIM_HORIZON, BufferPool(1 << 40))
    for records in decoded:
        buffer.append(records, records.end, 0)
    server = RangeServer("127.0.0.1", lambda _: buffer)

    def flight() -> None:
        rows = 0
        for batch in stream_range(server.address, _SHARD, TRIM_HORIZON, buffer.available):
            rows += to_source_batch(batch, "orders", _SHARD).num_rows
        assert rows == shard.replay.records

    try:
        timed("Flight", flight)
    finally:
        server.close()
    return {stage: seconds / shard.replay.data_bytes * 1e9 for stage, seconds in spent.items()}


async def _receive(shard: Subscribed, consumer: str) -> tuple[list[bytes], float]:
    """All chunks of a subscription, and the CPU seconds from its first to its last."""
    chunks: list[bytes] = []
    left = shard.wire_bytes
    async with (
        Connection(shard.aws) as connection,
        connection.subscribe(consumer, _SHARD, TRIM_HORIZON, "the benchmark") as stream,
    ):
        began = time.process_time()
        async for chunk in stream.chunks:
            chunks.append(chunk)
            left -= len(chunk)
            if left <= 0:
                break
        return chunks, time.process_time() - began
