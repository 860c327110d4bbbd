"""The agents of a source in processes of their own: starts them, gives them shards, replaces them.

A process that ends takes what it held with it. When it is known dead (the kernel says so, and has
closed its sockets), its shards are begun again in a new one behind what Spark has committed; ranges
that were planned meanwhile are read from Kinesis by their tasks. So a shard never has two readers
of ours, and nothing is lost or repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.child import COMMAND, Child, Patience, require_sockets
from kinesis_ds.agent.remote.placement import Deaths, least_loaded, shares
from kinesis_ds.agent.remote.proxy import RemoteAgent
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import AgentError, InternalError, KinesisConnectorError
from kinesis_ds.limits import MAX_BUFFERED_RECORDS
from kinesis_ds.plan.ticket import AgentAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinesis_ds.agent.interface import Diagnose
    from kinesis_ds.agent.settings import AgentOptions
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

_CONTROL_TIMEOUT_S = 120.0
# Counters are asked for by Spark's progress and by the file of them; once is enough for both.
_COUNTERS_FOR_S = 0.2
_POOL = ("used_bytes", "limit_bytes", "peak_bytes", "used_records", "limit_records", "waiting")


@dataclass
class _Slot:
    """The place of a process, whoever is in it."""

    number: int
    buffer_bytes: int
    max_records: int
    deaths: Deaths = field(default_factory=Deaths)
    starts: int = 0
    child: Child | None = None
    counters: dict[str, Any] = field(default_factory=dict)


class AgentProcesses:
    """:class:`~kinesis_ds.agent.interface.Agents` in child processes. Close it when done.

    Args:
        count: How many.
        buffer_bytes: The bound of all their buffers together.
        aws: Where they connect, and as whom.
        network: The loop on which they are spoken with; closed later than this.
        command: Starts one.

    Attributes:
        failure: Why they are not started any more.

    Raises:
        AgentError: This system has no such processes.
    """

    def __init__(
        self,
        count: int,
        buffer_bytes: int,
        aws: AwsOptions,
        network: NetworkLoop,
        clock: Clock | None = None,
        command: Sequence[str] = COMMAND,
        patience: Patience | None = None,
    ) -> None:
        require_sockets()
        self.news = threading.Event()
        self.moved = threading.Event()
        self.failure: KinesisConnectorError | None = None
        self._aws = aws
        self._network = network
        self._clock = clock or SystemClock()
        self._command = command
        self._patience = patience or Patience()
        bounds = zip(shares(buffer_bytes, count), shares(MAX_BUFFERED_RECORDS, count), strict=True)
        self._slots = [_Slot(i, nbytes, records) for i, (nbytes, records) in enumerate(bounds)]
        self._agents: dict[int, RemoteAgent] = {}
        self._opened = 0
        self._closing = threading.Event()
        self._counting = threading.Lock()
        self._counted = -1e9
        self._keeping: list[asyncio.Task[None]] = []
        self._ending: asyncio.Event
        network.run(self._begin(), _CONTROL_TIMEOUT_S, "Starting the agent processes")

    def agent(
        self, options: AgentOptions, diagnose: Diagnose, changed: Callable[[], None]
    ) -> RemoteAgent:
        """An agent for a stream. Close it first."""

        async def add() -> RemoteAgent:
            self._opened += 1
            agent = RemoteAgent(self._opened, options, self, diagnose, changed)
            self._agents[agent.number] = agent
            for slot in self._slots:
                agent.begin(slot.number)
            return agent

        return self._network.run(add(), _CONTROL_TIMEOUT_S, f"Opening stream {options.stream}")

    def statistics(self) -> dict[str, Any]:
        """The pools of all processes added up, and each process. Peaks are added up, too, though
        they may have come at different times.
        """
        counters = self.counters()
        pools = {slot.number: _pool(counters[slot.number], slot) for slot in self._slots}
        return {
            "pool": {key: sum(pool[key] for pool in pools.values()) for key in _POOL},
            "processes": [
                {
                    "pid": slot.child.pid if slot.child is not None else None,
                    "starts": slot.starts,
                    "shards": self._load(slot.number),
                    **pools[slot.number],
                }
                for slot in self._slots
            ],
        }

    def close(self) -> None:
        """End the processes and wait until they are dead. Idempotent, never raises."""
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            # They are killed when their time is over; a second time as long is for the kernel.
            within_s = 2 * self._patience.stop_s + 1
            self._network.run(self._end(), within_s, "Ending the agent processes")
        except KinesisConnectorError as exc:
            logger.warning("agent processes are killed: %s", exc)
            for slot in self._slots:
                if (child := slot.child) is not None:
                    child.kill()
                    child.reap()

    # --- what their agents use ------------------------------------------------------------------

    def place(self) -> int:
        """The process for one more shard. On the loop."""
        return least_loaded([self._load(slot.number) for slot in self._slots])

    def send(self, process: int, message: messages.Message) -> None:
        """Tell a process something; who is not there is told all when it comes. On the loop."""
        child = self._slots[process].child
        if child is not None:
            child.channel.send(message)

    def post(self, process: int, message: messages.Message) -> None:
        """The same, from any thread."""
        self._network.post(self.send, process, message)

    def ask(self, questions: Mapping[int, messages.Question]) -> dict[int, Any]:
        """What they answer, each None if it is gone or does not answer within its time."""
        if not questions:
            return {}

        async def ask() -> dict[int, Any]:
            answers = await asyncio.gather(*(self._ask(*item) for item in questions.items()))
            return dict(zip(questions, answers, strict=True))

        return self._network.run(ask(), _CONTROL_TIMEOUT_S, "Asking the agent processes")

    def counters(self) -> dict[int, dict[str, Any]]:
        """What they last answered to ``Statistics``; what is younger than a moment will do."""
        with self._counting:
            if time.monotonic() - self._counted > _COUNTERS_FOR_S and not self._closing.is_set():
                for number, answer in self.ask(
                    {slot.number: messages.Statistics(0) for slot in self._slots}
                ).items():
                    if answer is not None:
                        self._slots[number].counters = answer
                self._counted = time.monotonic()
            return {slot.number: slot.counters for slot in self._slots}

    def tell(self, *, news: bool) -> None:
        """A position has moved; from any thread."""
        if news:
            self.news.set()
        self.moved.set()

    def forget(self, agent: int) -> None:
        """It was closed; from any thread."""

        def forget() -> None:
            self._agents.pop(agent, None)
            for slot in self._slots:
                self.send(slot.number, messages.CloseAgent(agent))

        self._network.post(forget)

    # --- on the loop ----------------------------------------------------------------------------

    def _load(self, process: int) -> int:
        return sum(agent.load(process) for agent in tuple(self._agents.values()))

    async def _begin(self) -> None:
        self._ending = asyncio.Event()
        self._keeping = [
            self._network.spawn(self._keep(slot), f"agent process {slot.number}")
            for slot in self._slots
        ]

    async def _end(self) -> None:
        self._ending.set()
        for slot in self._slots:
            if slot.child is not None:
                slot.child.channel.finish()
        _, late = await asyncio.wait(self._keeping, timeout=self._patience.stop_s)
        for slot in self._slots:
            if late and slot.child is not None:
                logger.warning("agent process %d did not end; it is killed", slot.child.pid)
                slot.child.kill()
        if late:
            await asyncio.wait(late)

    async def _ask(self, process: int, question: messages.Question) -> Any:
        child = self._slots[process].child
        if child is None:
            return None
        within_s = self._patience.answer_s
        try:
            return await child.channel.ask(question, within_s)
        except asyncio.TimeoutError:
            logger.warning(
                "agent process %d did not answer within %gs; it is replaced", child.pid, within_s
            )
            child.kill()
            return None

    async def _keep(self, slot: _Slot) -> None:
        """Keep a process in a slot until closed, or until it dies too often."""
        try:
            while not self._over():
                slot.starts += 1
                try:
                    how = await self._live(slot)
                except OSError as exc:
                    how = f"not started: {exc}"
                if not self._over():
                    await self._after_death(slot, how)
        except Exception as exc:  # without a process, its shards would stand still
            self._give_up(
                InternalError(
                    f"Agent process {slot.number}: {type(exc).__name__}: {exc}.",
                    "Please report this.",
                )
            )
            raise

    def _over(self) -> bool:
        return self.failure is not None or self._ending.is_set()

    async def _after_death(self, slot: _Slot, how: str) -> None:
        """Wait until the next one may be started, or give up."""
        delay_s = slot.deaths.died(self._clock.monotonic())
        if delay_s is None:
            self._give_up(_too_often(slot, how))
            return
        logger.warning(
            "agent process %d ended (%s); its shards are begun again in a new one in %gs",
            slot.number,
            how,
            delay_s,
        )
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ending.wait(), delay_s)

    async def _live(self, slot: _Slot) -> str:
        """The life of one process in a slot, until it is known dead; how it ended."""
        child = await Child.start(self._command)
        try:
            child.channel.send(
                messages.Hello(
                    messages.CONTROL_VERSION,
                    self._aws,
                    slot.buffer_bytes,
                    slot.max_records,
                    logging.getLogger("kinesis_ds").getEffectiveLevel(),
                )
            )
            slot.child = child
            if self._ending.is_set():
                child.channel.finish()
            for agent in self._agents.values():
                agent.begin(slot.number)
            watching = self._network.spawn(self._watch(child), f"watch {child.pid}")
            try:
                async with contextlib.aclosing(child.channel.received()) as heard:
                    async for message in heard:
                        self._hear(slot, child, message)
            except AgentError as exc:
                logger.warning("agent process %d is replaced: %s", child.pid, exc)
                child.kill()
            finally:
                watching.cancel()
        finally:
            slot.child = None
            # Also when cancelled: nobody else would see it dead.
            how = await asyncio.shield(child.end())
            for agent in self._agents.values():
                agent.lost(slot.number)
        return how

    async def _watch(self, child: Child) -> None:
        """Kill a process that has gone silent: it may be stopped, and holds its shards."""
        while True:
            await asyncio.sleep(self._patience.silence_s / 4)
            if child.silent(self._patience):
                logger.warning("agent process %d says nothing; it is replaced", child.pid)
                child.kill()
                return

    def _hear(self, slot: _Slot, child: Child, message: messages.Message) -> None:
        match message:
            case messages.Ready(version, pid):
                try:
                    messages.check_version(version)
                except AgentError as exc:
                    self._give_up(exc)
                    child.kill()
                logger.info("agent process is ready number=%d pid=%d", slot.number, pid)
            case messages.Failed(error):
                self._give_up(error)
            case messages.Beat(failures):
                for name, failure in failures.items():
                    if (failed := self._agents.get(int(name))) is not None:
                        failed.failed(failure)
            case _:
                agent = self._agents.get(getattr(message, "agent", 0))
                if agent is not None:  # else it was closed in the same moment
                    self._hear_of(agent, slot, child, message)

    def _hear_of(
        self, agent: RemoteAgent, slot: _Slot, child: Child, message: messages.Message
    ) -> None:
        match message:
            case messages.Moved(_, positions, news):
                agent.moved(slot.number, positions, news=news)
            case messages.Opened(_, uri, token):
                agent.opened(slot.number, AgentAddress(uri, token))
            case messages.Changed():
                agent.changed()
            case messages.Diagnose(call, _, shard_id):
                self._network.spawn(
                    _diagnose(child, call, agent, shard_id), f"diagnosis {shard_id}"
                )
            case _:
                raise AgentError(f"An agent process said {type(message).__name__}.")

    def _give_up(self, error: KinesisConnectorError) -> None:
        self.failure = self.failure or error
        self.tell(news=True)


async def _diagnose(child: Child, call: int, agent: RemoteAgent, shard_id: str) -> None:
    try:
        child.channel.send(messages.Diagnosis(call, await agent.diagnose(shard_id)))
    except KinesisConnectorError as exc:
        child.channel.send(messages.Diagnosis(call, exc, raised=True))


def _too_often(slot: _Slot, how: str) -> AgentError:
    return AgentError(
        f"Agent process {slot.number} ended {slot.deaths.limit} times within "
        f"{slot.deaths.within_s:g}s, the last time with {how}.",
        "The driver's log has what it wrote. If the machine killed it for want of memory, lower "
        "fetchBufferSize; agentProcesses=1 reads in the source's own process.",
    )


def _pool(counters: Mapping[str, Any], slot: _Slot) -> dict[str, int]:
    """The pool of a process; an empty one until it has told."""
    bounds = {"limit_bytes": slot.buffer_bytes, "limit_records": slot.max_records}
    return {**dict.fromkeys(_POOL, 0), **bounds, **counters.get("pool", {})}
