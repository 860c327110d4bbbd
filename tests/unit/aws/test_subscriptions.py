"""What a subscription promises, over HTTP/1.1 and over HTTP/2; both with TLS, and our double."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import types
from collections.abc import Generator
from typing import Any

import aiohttp
import pytest

from kinesis_ds.aws.http2.stream import WINDOW_BYTES
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import MIB
from kinesis_ds.testing import (
    Cut,
    Disconnect,
    Fault,
    KinesisServer,
    NoAnswer,
    Raise,
    Refuse,
    Replay,
    Stall,
)
from kinesis_ds.testing.frames import initial_message
from tests.support.subscriptions import STREAM, Reader, data, read, rest, run

# What a reader may be behind, and over HTTP/1.1 one more read of the socket.
BEHIND = {"http1": 3 * WINDOW_BYTES, "http2": WINDOW_BYTES}


def test_records_arrive_exactly(kinesis: KinesisServer, consumer: str, transport: str) -> None:
    """Each byte once and in order, many windows of them."""
    replay = Replay.of(events=40, records_per_event=100, record_bytes=1000)
    kinesis.replay(STREAM, replay)
    expected = initial_message() + b"".join(replay.frames)

    async def story(reader: Reader) -> bytes:
        async with reader.subscribe() as stream:
            return await read(stream, len(expected))

    assert run(kinesis, consumer, transport, story) == expected


def test_records_of_ten_mebibytes_arrive(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """The largest record that Kinesis keeps."""
    record = os.urandom(10 * MIB - 3)
    kinesis.put(STREAM, record)
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])

    async def story(reader: Reader) -> list[bytes]:
        async with reader.subscribe(shard) as stream:
            return data(await read(stream, len(record) * 4 // 3))

    assert run(kinesis, consumer, transport, story) == [record]


def test_a_shard_that_nobody_reads_stops_and_its_neighbour_goes_on(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """Over HTTP/2 they share a connection; the one that goes on later has lost nothing."""
    replay = Replay.of(events=20, records_per_event=100, record_bytes=8000)
    kinesis.replay(STREAM, replay)
    expected = initial_message() + b"".join(replay.frames)

    async def story(reader: Reader) -> tuple[bytes, bytes, bytes]:
        async with reader.subscribe(0) as stalled, reader.subscribe(1) as other:
            whole = await read(other, len(expected))
            if transport == "http2":
                assert reader.streams == [(2, 0)]
            first = await stalled.chunks.__anext__()
            return whole, first, await read(stalled, len(expected) - len(first))

    whole, first, later = run(kinesis, consumer, transport, story)
    assert whole == expected
    assert len(first) <= BEHIND[transport] < len(expected) / 10
    assert first + later == expected


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refuse("ResourceNotFoundException", "no such shard"), StreamNotFoundError),
        (Refuse("AccessDeniedException", "not you"), AccessError),
        (Refuse("LimitExceededException", "slowly"), ThrottledError),
        (Refuse("InternalFailure", "oh", status=500), TransientError),
    ],
    ids=lambda value: getattr(value, "code", None) or value.__name__,
)
def test_a_refusal_is_told_apart(
    kinesis: KinesisServer,
    consumer: str,
    transport: str,
    refusal: Refuse,
    error: type[KinesisConnectorError],
) -> None:
    """An error before the stream; the next call over the same connection is answered."""
    kinesis.add_faults(Fault(refusal))
    kinesis.put(STREAM, b"one", partition_key="x")
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])

    async def story(reader: Reader) -> list[bytes]:
        with pytest.raises(error, match=refusal.message):
            async with reader.subscribe(shard):
                pass
        async with reader.subscribe(shard) as stream:
            return data(await read(stream, 200))

    assert run(kinesis, consumer, transport, story) == [b"one"]


def test_an_exception_in_the_stream_comes_after_what_was_sent(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """It is a frame as others are, and the stream ends properly behind it."""
    kinesis.put(STREAM, b"one")
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])
    kinesis.add_faults(Fault(Raise("InternalFailureException", "oh"), event=2))

    async def story(reader: Reader) -> bytes:
        async with reader.subscribe(shard) as stream:
            body = await read(stream, 200)
            kinesis.put(STREAM, b"two")
            return body + await rest(stream)

    body = run(kinesis, consumer, transport, story)
    assert data(body) == [b"one"]
    assert b"InternalFailureException" in body


@pytest.mark.parametrize("action", [Cut(20), Disconnect(), Disconnect(performed=True)], ids=repr)
def test_a_stream_that_is_torn_is_a_passing_failure(
    kinesis: KinesisServer, consumer: str, transport: str, action: Cut | Disconnect
) -> None:
    """Its neighbour is not touched (HTTP/2: a reset), and the shard can be had again."""
    kinesis.add_faults(Fault(action, shard="shardId-000000000000"))

    async def story(reader: Reader) -> None:
        async with reader.subscribe(1) as neighbour:
            await neighbour.chunks.__anext__()
            with pytest.raises(TransientError):
                async with reader.subscribe(0) as stream:
                    await rest(stream)
            async with reader.subscribe(0) as stream:
                await stream.chunks.__anext__()
            await read(neighbour, 1)

    kinesis.replay(STREAM, Replay.of(events=20, records_per_event=10, record_bytes=10_000))
    if isinstance(action, Cut):
        kinesis.clear_faults()
        kinesis.add_faults(Fault(action, shard="shardId-000000000000", event=0))
    run(kinesis, consumer, transport, story)


def test_a_lost_connection_is_a_passing_failure_of_all_its_streams(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """And the next subscriptions make a new one."""

    async def story(reader: Reader) -> None:
        async with contextlib.AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(reader.subscribe(n)) for n in (0, 1)]
            for stream in streams:
                await read(stream, len(initial_message()))
            with kinesis.down():
                for stream in streams:
                    with pytest.raises(aiohttp.ClientError):
                        await rest(stream)
                with pytest.raises(TransientError, match="reachable from here"):
                    async with reader.subscribe(0):
                        pass
        async with reader.subscribe(0) as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


def test_a_silent_stream_can_be_broken_off(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """Half-open: its reader is told at once, and the shard can be had again."""
    kinesis.add_faults(Fault(Stall(), event=1))

    async def story(reader: Reader) -> None:
        with pytest.raises(TransientError):
            async with reader.subscribe() as stream:
                await read(stream, len(initial_message()))
                reading = asyncio.ensure_future(stream.chunks.__anext__())
                await asyncio.sleep(0)
                stream.abort()
                await reading
        async with reader.subscribe() as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


def test_no_answer_can_be_given_up(kinesis: KinesisServer, consumer: str, transport: str) -> None:
    """Whoever waits says how long, and the next call is answered."""
    kinesis.add_faults(Fault(NoAnswer()))

    async def story(reader: Reader) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.subscribe().__aenter__(), 0.5)
        assert all(read == 0 for read, _ in reader.streams)
        async with reader.subscribe() as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


@types.coroutine
def cancelled_at(work: Any, nth: int) -> Generator[Any, Any, bool]:
    """Do some work; cancel it when it waits the n-th time. Whether it had ended before."""
    task = asyncio.current_task()
    assert task is not None
    steps, waits, thrown = work.__await__(), 0, None
    while True:
        try:
            waited = steps.throw(thrown) if thrown is not None else steps.send(None)
        except StopIteration:
            return waits < nth
        waits += 1
        if waits == nth:
            task.cancel()
        try:
            thrown = None
            yield waited
        except BaseException as exc:
            thrown = exc


def test_it_can_be_cancelled_wherever_it_waits(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """No stream stays behind, and the connection can be used."""
    kinesis.replay(STREAM, Replay.of(events=4, records_per_event=10, record_bytes=10_000))

    async def subscribe_and_read(reader: Reader) -> None:
        async with reader.subscribe() as stream:
            await read(stream, 300_000)

    async def cancelled(reader: Reader, nth: int) -> bool:
        done = asyncio.ensure_future(cancelled_at(subscribe_and_read(reader), nth))
        with contextlib.suppress(asyncio.CancelledError):
            if await done:
                return False
        assert all(read == 0 for read, _ in reader.streams)
        await subscribe_and_read(reader)
        return True

    waits = 1
    # Over a new connection each time, so that it is cancelled while that is made, too.
    while run(kinesis, consumer, transport, functools.partial(cancelled, nth=waits)):
        waits += 1
    assert waits > 3
