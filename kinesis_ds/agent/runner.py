"""Reads one shard: performs what its machine decides. Common to both ways of reading."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.context import ShardContext, ShardCounters
from kinesis_ds.agent.lag import age_ms, lag
from kinesis_ds.agent.machine import (
    Crashed,
    Diagnose,
    Diagnosed,
    Fail,
    Finish,
    Instruction,
    ShardMachine,
    ShardState,
    Stimulus,
    Tick,
    WakeAt,
    Warn,
)
from kinesis_ds.errors import InternalError, KinesisConnectorError, ProtocolError, unexpected

if TYPE_CHECKING:
    from kinesis_ds.agent.buffer import ShardBuffer
    from kinesis_ds.agent.executor import ShardExecutor
    from kinesis_ds.agent.pool import BufferPool
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# In these states nothing is expected to come.
_NOT_LISTENING = (ShardState.PARKED, ShardState.ENDED, ShardState.FAILED, ShardState.STOPPED)


class ShardRunner:
    """Reads one shard. All methods run on the network loop, unless they say otherwise.

    Attributes:
        context: What it knows about the shard.
        machine: Decides what to do.
        buffer: Where the records go.
        counters: What happened so far.
        failure: Why nothing more will come; None while reading goes on.
    """

    def __init__(
        self,
        context: ShardContext,
        machine: ShardMachine,
        buffer: ShardBuffer,
        pool: BufferPool,
        executor: ShardExecutor,
        network: NetworkLoop,
        clock: Clock,
    ) -> None:
        self.context = context
        self.machine = machine
        self.buffer = buffer
        self.counters = ShardCounters()
        self.failure: KinesisConnectorError | None = None
        self._pool = pool
        self._pool_key = buffer.pool_key
        self._executor = executor
        self._network = network
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        # How far behind the tip the shard was, in milliseconds, and when that was known.
        age = age_ms(machine.position, int(clock.wall() * 1000))
        self._told = (age, clock.monotonic())
        # Since when something should have come; None while this reader itself takes nothing.
        self._listening_since: float | None = clock.monotonic()
        executor.failed = self._work_failed

    @property
    def state(self) -> str:
        """The machine's state as statistics name it; from any thread."""
        return str(self.machine.state.value)

    def lag(self) -> dict[str, Any]:
        """Return how far behind the shard is, as statistics have it; from any thread."""
        told_ms, at = self._told
        if self.machine.state is ShardState.ENDED:
            return lag(told_ms, 0.0)
        return lag(told_ms, self._clock.monotonic() - at)

    def silent_s(self) -> float:
        """Return for how many seconds nothing has come although it should; from any thread."""
        since = self._listening_since
        if since is None or self.machine.state in _NOT_LISTENING:
            return 0.0
        return self._clock.monotonic() - since

    def _note_heard(self, behind_ms: int) -> None:
        """Note that an event or an answer was taken in, and how far behind the tip it was."""
        self.counters.events += 1
        self.counters.millis_behind = behind_ms
        self._told = (behind_ms, self._clock.monotonic())
        self._listen()

    def _listen(self, *, again: bool = True) -> None:
        """Note that something has come; or, with ``again=False``, that nothing is taken now."""
        self._listening_since = self._clock.monotonic() if again else None

    def start(self) -> None:
        """Begin reading."""
        self.handle(Tick())

    def handle(self, stimulus: Stimulus) -> None:
        """Give the machine a stimulus and do what it says."""
        before = self.machine.state
        try:
            instructions = self.machine.handle(stimulus, self._clock.monotonic())
        except InternalError as exc:
            self.failure = exc
            raise
        for instruction in instructions:
            self._perform(instruction)
        if self.machine.state is not before:
            logger.debug("%s: %s -> %r", self.context.label, stimulus, self.machine)

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case WakeAt(when):
                self._wake_at(when)
            case Diagnose(generation):
                self._spawn(self._diagnose(generation), "diagnosis")
            case Finish():
                self.buffer.end()
                logger.info(
                    "shard read to its end shard=%s stream=%s",
                    self.context.shard.shard_id,
                    self.context.options.stream,
                )
                self.context.changed()
            case Fail(error):
                self.failure = error
            case Warn(text):
                logger.warning("%s", text)

    def _spawn(self, work: Any, what: str) -> asyncio.Task[None]:
        task = self._network.spawn(work, f"{what} {self.context.shard.shard_id}")
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        # A task that crashed is a shard that stands still: the query must fail, not wait.
        if not task.cancelled() and (exc := task.exception()) is not None and self.failure is None:
            self.failure = InternalError(
                f"{self.context.label}: {task.get_name()} ended with {type(exc).__name__}: {exc}.",
                "Please report this.",
            )

    def _work_failed(self, exc: Exception) -> None:
        """Fail the shard: what the executor was to put into the buffer is not there. From any
        thread.
        """
        self.failure = unexpected(exc, self.context.label)
        self._network.post(self.handle, Crashed(self.failure))

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, when - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self.handle, Tick())

    async def _diagnose(self, generation: int) -> None:
        try:
            error = await self.context.diagnose(self.context.shard.shard_id)
        except KinesisConnectorError as exc:
            # A senseless answer explains nothing. An endpoint that is no Kinesis at all is found
            # out by its answers to the calls that read.
            error = None if exc.retryable or isinstance(exc, ProtocolError) else exc
        self.handle(Diagnosed(generation, error))
