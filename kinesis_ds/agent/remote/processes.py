"""The agents of a source in several processes on this machine.

Opens agents, passes on what the processes say, asks them questions and ends them. Each process has
a supervisor, which replaces it when it dies. Ranges that were planned from a process that is dead
are read from Kinesis by their tasks, so nothing is lost or repeated.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.fetches import FetchCounts
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.child import COMMAND, Patience, require_sockets
from kinesis_ds.agent.remote.placement import least_loaded, shares
from kinesis_ds.agent.remote.proxy import RemoteAgent
from kinesis_ds.agent.remote.supervisor import Launch, Supervisor
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import AgentError, KinesisConnectorError, unexpected
from kinesis_ds.limits import MAX_BUFFERED_RECORDS
from kinesis_ds.plan.ticket import AgentAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.agent.interface import Diagnose
    from kinesis_ds.agent.remote.channel import Channel
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

_CONTROL_TIMEOUT_S = 120.0
# Spark's progress and the file of counters ask at the same time; one question serves both.
_COUNTERS_FOR_S = 0.2
_POOL = ("used_bytes", "limit_bytes", "peak_bytes", "used_records", "limit_records", "waiting")


class AgentProcesses:
    """:class:`~kinesis_ds.agent.interface.Agents` in child processes. Close it when done.

    Args:
        count: How many processes.
        buffer_bytes: The bound of all their buffers together, in bytes.
        aws: Where they connect, and as whom.
        network: The loop on which they are started and spoken with; close it after this.
        clock: Tells the supervisors when a process died.
        command: The command line that starts a process.
        patience: How long to wait for a process.

    Attributes:
        news, moved: As :class:`~kinesis_ds.agent.interface.Agents` says.
        count: How many processes there are.
        failure: Why no process is started any more; None while they are.

    Raises:
        AgentError: There can be no agent processes on this system.
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
        self.count = count
        self.failure: KinesisConnectorError | None = None
        self._network = network
        self._patience = patience or Patience()
        self._agents: dict[int, RemoteAgent] = {}
        self._opened = 0
        self._closing = threading.Event()
        self._counting = threading.Lock()
        self._counters: dict[int, dict[str, Any]] = {number: {} for number in range(count)}
        self._counted = -1e9
        self._keeping: list[asyncio.Task[None]] = []
        bounds = zip(shares(buffer_bytes, count), shares(MAX_BUFFERED_RECORDS, count), strict=True)
        launches = [Launch(command, aws, *bound, self._patience) for bound in bounds]
        clock = clock or SystemClock()
        self._supervisors = [
            Supervisor(number, launch, self, network, clock)
            for number, launch in enumerate(launches)
        ]
        network.run(self._begin(), _CONTROL_TIMEOUT_S, "Starting the agent processes")

    def agent(
        self, options: AgentOptions, diagnose: Diagnose, changed: Callable[[], None]
    ) -> RemoteAgent:
        """Return a new agent for a stream, as :class:`~kinesis_ds.agent.interface.Agents` says."""

        async def add() -> RemoteAgent:
            self._opened += 1
            agent = RemoteAgent(self._opened, options, self, diagnose, changed)
            self._agents[agent.number] = agent
            for supervisor in self._supervisors:
                agent.begin(supervisor.number)
            return agent

        return self._network.run(add(), _CONTROL_TIMEOUT_S, f"Opening stream {options.stream}")

    def statistics(self) -> dict[str, Any]:
        """Return the sums over all processes, and the counters of each process.

        Peaks are summed too, though they may have come at different times.
        """
        counters = self.counters()
        pools = {s.number: _pool(counters[s.number], s.launch) for s in self._supervisors}
        return {
            "pool": {key: sum(pool[key] for pool in pools.values()) for key in _POOL},
            "ranges": {
                key: sum(found.get("ranges", {}).get(key, 0) for found in counters.values())
                for key in FetchCounts().counters()
            },
            "processes": [
                {
                    "pid": child.pid if (child := supervisor.child) is not None else None,
                    "starts": supervisor.starts,
                    "shards": self._load(supervisor.number),
                    **pools[supervisor.number],
                }
                for supervisor in self._supervisors
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
            for supervisor in self._supervisors:
                supervisor.kill()

    # --- for the agents -------------------------------------------------------------------------

    def least_loaded(self) -> int:
        """Return the number of the process that gets one more shard. On the loop."""
        return least_loaded([self._load(supervisor.number) for supervisor in self._supervisors])

    def send(self, process: int, message: messages.Message) -> None:
        """Send a message, without waiting. Dropped while no such process runs: the next one is
        given all that it has to know when it starts. On the loop.
        """
        self._supervisors[process].send(message)

    def post(self, process: int, message: messages.Message) -> None:
        """Do the same as ``send``, from any thread."""
        self._network.post(self.send, process, message)

    def ask(self, questions: Mapping[int, messages.Question]) -> dict[int, Any]:
        """Ask each process its question and wait for all answers. Return them by process; None for
        one that is gone or does not answer in time. From any thread but the loop's.
        """
        if not questions:
            return {}

        async def ask() -> dict[int, Any]:
            asked = (self._supervisors[n].ask(question) for n, question in questions.items())
            return dict(zip(questions, await asyncio.gather(*asked), strict=True))

        return self._network.run(ask(), _CONTROL_TIMEOUT_S, "Asking the agent processes")

    def counters(self) -> dict[int, dict[str, Any]]:
        """Return, by process, its last answer to ``Statistics``, which is asked for again unless it
        is fresh; empty before the first. From any thread but the loop's.
        """
        with self._counting:
            if time.monotonic() - self._counted > _COUNTERS_FOR_S and not self._closing.is_set():
                answers = self.ask({number: messages.Statistics(0) for number in self._counters})
                self._counted = time.monotonic()
                for number, answer in answers.items():
                    if answer is not None:
                        self._counters[number] = {**answer, "at": self._counted}
            return dict(self._counters)

    def wake(self, *, news: bool) -> None:
        """Wake whoever waits for a position to move; with ``news``, whoever waits for records, the
        end of a shard or a failure too. From any thread.
        """
        if news:
            self.news.set()
        self.moved.set()

    def forget(self, agent: int) -> None:
        """Close an agent in all processes, without waiting. From any thread."""

        def forget() -> None:
            self._agents.pop(agent, None)
            for supervisor in self._supervisors:
                supervisor.send(messages.CloseAgent(agent))

        self._network.post(forget)

    # --- for the supervisors, on the loop -------------------------------------------------------

    def started(self, process: int) -> None:
        """Give a process that runs its work: it may be sent messages now."""
        for agent in self._agents.values():
            agent.begin(process)

    def heard(self, process: int, channel: Channel, message: messages.Message) -> None:
        """Do what a message of a process calls for; answers go over ``channel``.

        Raises:
            AgentError: A process does not send such a message.
        """
        if isinstance(message, messages.Beat):
            for name, failure in message.failures.items():
                if (failed := self._agents.get(int(name))) is not None:
                    failed.failed(failure)
            for number, silenced in self._agents.items():
                silenced.silenced(process, message.silent.get(str(number), []))
            return
        agent = self._agents.get(getattr(message, "agent", 0))
        if agent is None:  # it was closed in the same moment
            return
        match message:
            case messages.Moved(_, positions, news):
                agent.moved(process, positions, news=news)
            case messages.Opened(_, uri, token, root_certs):
                agent.opened(process, AgentAddress(uri, token, root_certs))
            case messages.Changed():
                agent.changed()
            case messages.Diagnose(call, _, shard_id):
                diagnosing = _diagnose(channel, call, agent, shard_id)
                self._network.spawn(diagnosing, f"diagnosis {shard_id}")
            case _:
                raise AgentError(f"An agent process said {type(message).__name__}.")

    def lost(self, process: int) -> None:
        """Note that a process is dead, and what it held is gone with it."""
        for agent in self._agents.values():
            agent.lost(process)

    def give_up(self, error: KinesisConnectorError) -> None:
        """Start no process any more, and fail the query with this error."""
        self.failure = self.failure or error
        self.wake(news=True)

    # --- on the loop ----------------------------------------------------------------------------

    def _load(self, process: int) -> int:
        """From any thread."""
        return sum(agent.load(process) for agent in tuple(self._agents.values()))

    async def _begin(self) -> None:
        self._keeping = [
            self._network.spawn(supervisor.keep(), f"agent process {supervisor.number}")
            for supervisor in self._supervisors
        ]

    async def _end(self) -> None:
        for supervisor in self._supervisors:
            supervisor.stop()
        _, late = await asyncio.wait(self._keeping, timeout=self._patience.stop_s)
        if not late:
            return
        for supervisor in self._supervisors:
            if (child := supervisor.child) is not None:
                logger.warning("agent process %d did not end; it is killed", child.pid)
                child.kill()
        await asyncio.wait(late)


async def _diagnose(channel: Channel, call: int, agent: RemoteAgent, shard_id: str) -> None:
    try:
        answer = messages.Diagnosis(call, await agent.diagnose(shard_id))
    except KinesisConnectorError as exc:
        answer = messages.Diagnosis(call, exc, raised=True)
    except Exception as exc:  # without an answer the shard would wait for ever
        logger.exception("the diagnosis of shard %s failed; please report this", shard_id)
        error = unexpected(exc, f"The diagnosis of shard {shard_id}")
        answer = messages.Diagnosis(call, error, raised=True)
    channel.send(answer)


def _pool(counters: Mapping[str, Any], launch: Launch) -> dict[str, int]:
    """Return the pool's counters of a process; those of an empty one until it has answered."""
    bounds = {"limit_bytes": launch.buffer_bytes, "limit_records": launch.max_records}
    return {**dict.fromkeys(_POOL, 0), **bounds, **counters.get("pool", {})}
