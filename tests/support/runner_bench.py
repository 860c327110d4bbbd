"""A runner in the middle of a subscription, without an event loop and without a network."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.context import AgentOptions, ShardContext
from kinesis_ds.agent.efo.machine import Opened, Subscription
from kinesis_ds.agent.efo.runner import SubscriptionRunner
from kinesis_ds.agent.executor import DecodingThreads
from kinesis_ds.agent.machine import Tick
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.plan.position import TRIM_HORIZON, Position
from kinesis_ds.plan.shards import Shard
from kinesis_ds.testing import ManualClock
from kinesis_ds.wire.decode import sequence_numbers
from kinesis_ds.wire.event_stream import Message, MessageParser

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class InlineNetwork:
    """Calls at once what is posted, and keeps what is spawned without running it."""

    def __init__(self) -> None:
        self.spawned: list[str] = []

    def post(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> InlineNetwork:
        work.close()
        self.spawned.append(name)
        return self

    def add_done_callback(self, callback: object) -> None:
        """Do nothing: tasks never end here."""

    def cancel(self) -> None:
        """Do nothing: tasks never run here."""


class Bench:
    """A runner in the middle of a subscription, fed with messages by the test."""

    def __init__(self, position: Position = TRIM_HORIZON, first: str = "0") -> None:
        self.pool = BufferPool(1 << 20)
        self.buffer = ShardBuffer("s", position, self.pool)
        self.network = InlineNetwork()
        self.clock = ManualClock()
        self.changes = 0
        self.machine = Subscription("shard s", position)
        threads = DecodingThreads(1)
        threads.close()  # what is submitted at once is done all the same
        self.executor = threads.executor()
        self.runner = SubscriptionRunner(
            ShardContext(
                AgentOptions(
                    "orders", "arn", "consumer", 30.0, True, "127.0.0.1", deaggregate=False
                ),
                Shard("s", first_sequence_number=first),
                self._nothing,
                self._changed,
            ),
            self.machine,
            self.buffer,
            self.pool,
            self.executor,
            self.network,  # type: ignore[arg-type]
            self.clock,
        )
        self.runner._wake_at = lambda when: None  # type: ignore[method-assign]
        self.open()

    def open(self) -> int:
        self.clock.advance(60)
        self.runner.handle(Tick())
        self.runner.handle(Opened(self.machine.generation))
        return self.machine.generation

    def feed(self, data: bytes, generation: int | None = None) -> Bench:
        self.pool.request("s", len(data), lambda: None)
        generation, parsed = generation or self.machine.generation, message(data)
        decode = functools.partial(self.runner.decode, generation, parsed, len(data))
        self.executor.submit(decode, at_once=True)
        return self

    def held(self, start: Position) -> list[int]:
        return [
            n for b in self.buffer.read(start, self.buffer.available) for n in sequence_numbers(b)
        ]

    def _nothing(self, shard_id: str) -> None:
        raise AssertionError("not asked for here")

    def _changed(self) -> None:
        self.changes += 1


def message(data: bytes) -> Message:
    parser = MessageParser()
    parser.feed(data)
    found = parser.take()
    assert found is not None
    return found
