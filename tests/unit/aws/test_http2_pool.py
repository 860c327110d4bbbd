"""How subscriptions share HTTP/2 connections, and when connections are closed."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import psutil
import pytest

from kinesis_ds.aws.http2 import connection as http2_connection
from kinesis_ds.errors import (
    TransientError,
)
from kinesis_ds.limits import MIB
from kinesis_ds.testing import (
    Fault,
    KinesisServer,
    Refuse,
    Replay,
)
from kinesis_ds.testing import http2 as double_http2
from kinesis_ds.testing.frames import initial_message
from tests.support.polling import eventually
from tests.support.subscriptions import STREAM, Reader, opened, read, rest, run, until


def test_closing_ends_what_is_read_and_leaves_nothing(
    kinesis: KinesisServer, consumer: str
) -> None:
    """Streams that are still read fail; no thread and no socket stays."""
    me = psutil.Process()
    threads = me.num_threads()
    port = int(kinesis.tls_endpoint.rpartition(":")[2])

    async def whole() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with opened(kinesis, consumer, "http2") as reader:
                streams = [await stack.enter_async_context(reader.subscribe(n)) for n in (0, 1)]
                for stream in streams:
                    await read(stream, len(initial_message()))
            for stream in streams:
                with pytest.raises(aiohttp.ClientError):
                    await rest(stream)

    asyncio.run(whole())
    eventually(lambda: me.num_threads() <= threads, "the runtime's threads ended")
    assert not [c for c in me.net_connections("tcp") if c.raddr and c.raddr.port == port]


@pytest.mark.parametrize("whose", ["ours", "the server's"])
def test_streams_spread_over_connections(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """A connection takes as many as it may, also of streams that are asked for all at once."""
    monkeypatch.setattr(http2_connection if whose == "ours" else double_http2, "MAX_STREAMS", 2)

    async def story(reader: Reader) -> None:
        enough = asyncio.Event()
        spread: list[list[tuple[int, int]]] = []

        async def one(shard: int) -> None:
            async with reader.subscribe(shard):
                if sum(read for read, _ in reader.streams) == 5:
                    spread.append(sorted(reader.streams))
                    enough.set()
                await enough.wait()

        await asyncio.gather(*[one(n % 2) for n in range(5)])
        assert spread[0] == [(1, 0), (2, 0), (2, 0)]

    run(kinesis, consumer, "http2", story)


def test_a_connection_told_to_go_away_keeps_its_streams_and_gets_no_more(
    kinesis: KinesisServer, consumer: str
) -> None:
    """GOAWAY: the next stream goes to another connection, without a failure in between."""

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0) as old:
            await read(old, len(initial_message()))
            kinesis.go_away()
            kinesis.put(STREAM, *[b"%d" % n for n in range(50)], partition_key=bytes.decode)
            async with reader.subscribe(1) as new:
                await read(new, len(initial_message()))
                assert sorted(reader.streams) == [(1, 0), (1, 0)]
            assert await old.chunks.__anext__()
        assert all(read == 0 for read, _ in reader.streams)

    run(kinesis, consumer, "http2", story)


def test_what_is_left_open_ends_with_its_connection(kinesis: KinesisServer, consumer: str) -> None:
    """The runtime resets no streams; one that is left is granted nothing, and ends with the last
    that is read beside it.
    """
    kinesis.replay(STREAM, Replay.of(events=100, records_per_event=10, record_bytes=10_000))

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0) as neighbour:
            await neighbour.chunks.__anext__()
            async with reader.subscribe(1) as left:
                await left.chunks.__anext__()
            assert reader.streams == [(1, 1)]
            await read(neighbour, MIB)
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)
    eventually(lambda: not kinesis.subscriptions(), "no subscription left")


def test_a_connection_that_went_quiet_gets_no_more_streams(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be dead; those who still read on it find out by themselves."""
    monkeypatch.setattr(http2_connection, "_QUIET_S", -1.0)

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0):
            async with reader.subscribe(1):
                assert reader.streams == [(2, 0)]
            async with reader.subscribe(1):
                assert [read for read, _ in reader.streams] == [1, 1]
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)


def test_an_idle_connection_is_kept_for_a_while(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that ended is soon followed by the next."""
    monkeypatch.setattr(http2_connection, "_IDLE_S", 0.2)
    kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), times=2))

    async def refused(reader: Reader) -> None:
        with pytest.raises(TransientError):
            async with reader.subscribe():
                pass

    async def story(reader: Reader) -> None:
        await refused(reader)
        assert reader.streams == [(0, 0)]
        await refused(reader)
        assert reader.streams == [(0, 0)]
        assert kinesis.connections() == 1
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)
