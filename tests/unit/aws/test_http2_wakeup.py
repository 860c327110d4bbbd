"""Over HTTP/2 the loop is woken once for many heartbeats, and at once for records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_ds.aws.http2 import wakeup
from kinesis_ds.aws.http2.stream import Http2Stream
from kinesis_ds.aws.http2.wakeup import DelayedWakeup
from kinesis_ds.testing import KinesisServer, Settings
from tests.support.subscriptions import STREAM, opened, register_consumer

BEAT, RECORD = b"beat", b"record"


class Streams:
    """Streams of one connection, given by this thread what awscrt's would give them."""

    def __init__(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.wakeup = DelayedWakeup(loop, lambda chunk: chunk == BEAT)
        connection = SimpleNamespace(
            loop=loop,
            wakeup=self.wakeup,
            note_activity=lambda: None,
            on_ended=lambda stream: None,
        )
        self.all = [Http2Stream(connection) for _ in range(count)]  # type: ignore[arg-type]
        self.woken = 0
        self._wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = self._count  # type: ignore[method-assign]

    def receive(self, chunk: bytes, stream: int = 0) -> None:
        self.all[stream]._on_body(None, chunk)

    def end(self) -> None:
        self.all[0]._deliver(lambda: self.all[0]._end(None))

    def _count(self, *args: Any) -> Any:
        self.woken += 1
        return self._wake(*args)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(story(), 20)

    asyncio.run(whole())


def test_the_loop_is_woken_once_for_the_heartbeats_of_all_streams() -> None:
    async def story() -> None:
        streams = Streams(50)
        for _ in range(3):
            streams.woken = 0
            for number in range(50):
                streams.receive(BEAT, number)
            assert [await anext(stream) for stream in streams.all] == [BEAT] * 50
            assert streams.woken == 1

    run(story)


@pytest.fixture
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "_DELAY_S", 3600.0)


@pytest.mark.usefixtures("for_ever")
def test_a_record_does_not_wait_and_takes_along_what_came_before_it() -> None:
    async def story() -> None:
        streams = Streams(2)
        streams.receive(BEAT)
        streams.receive(RECORD)
        assert await anext(streams.all[0]) == BEAT + RECORD
        streams.receive(BEAT)
        streams.receive(RECORD, stream=1)
        assert await anext(streams.all[1]) == RECORD
        streams.receive(RECORD)
        assert await anext(streams.all[0]) == BEAT + RECORD
        streams.wakeup.close()

    run(story)


@pytest.mark.usefixtures("for_ever")
def test_the_end_of_a_stream_does_not_wait() -> None:
    async def story() -> None:
        streams = Streams(1)
        streams.receive(BEAT)
        streams.end()
        assert [chunk async for chunk in streams.all[0]] == [BEAT]
        streams.wakeup.close()

    run(story)


def test_nothing_is_looked_at_behind_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "_DELAY_S", 0.01)

    async def story() -> None:
        streams = Streams(1)
        streams.receive(BEAT)
        await asyncio.sleep(0)
        streams.wakeup.close()
        await asyncio.sleep(0.05)
        assert not streams.all[0]._arrived

    run(story)


def test_heartbeats_of_a_subscription_wait_and_its_records_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[Http2Stream] = []
    add = DelayedWakeup.add

    def counted(delayed: DelayedWakeup, stream: Http2Stream) -> None:
        waited.append(stream)
        add(delayed, stream)

    monkeypatch.setattr(DelayedWakeup, "add", counted)
    settings = Settings(consumer_ready_s=0, heartbeat_s=0.2)
    with KinesisServer(settings, tls=True) as kinesis:
        kinesis.create_stream(STREAM, 1)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(kinesis.ca_file))
        consumer = register_consumer(kinesis)

        async def story() -> None:
            async with (
                opened(kinesis, consumer, "http2") as reader,
                reader.subscribe() as stream,
            ):
                came = b""
                while came.count(b'"Records":[]') < 3:
                    came += await anext(stream.chunks)
                assert len(waited) >= 2
                monkeypatch.setattr(wakeup, "_DELAY_S", 3600.0)
                kinesis.put(STREAM, b"an order")
                while b'"PartitionKey"' not in came:
                    came += await anext(stream.chunks)

        run(story)
