"""What runs in an agent process: agents that do what the parent says, until the connection ends.

The connection *is* the life of the process. A parent that stops it closes the connection, and when
a parent is killed the kernel closes it. Then subscriptions, server and threads end, within seconds
even if one of them hangs.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import AgentHost, ShardAgent
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import Deframer, encode
from kinesis_ds.agent.remote.open_calls import OpenCalls
from kinesis_ds.agent.remote.outbox import Outbox
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import AgentError, KinesisConnectorError, OptionError, unexpected
from kinesis_ds.plan.position import ShardEnd

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.position import Position

logger = logging.getLogger(__name__)

# So long after the connection has ended the process exits, whatever still runs.
_END_WITHIN_S = 5.0
_READ_BYTES = 65536


def run(
    connection: socket.socket,
    new_network: Callable[[AwsOptions], NetworkLoop] = NetworkLoop,
    clock: Clock | None = None,
) -> int:
    """Serve the parent until the connection ends, and return the exit status.

    Args:
        connection: A blocking socket whose other end only the parent holds.
        new_network: Opens the loop on which shards are read; a test may let time pass faster.
        clock: A test may let time pass faster.
    """
    received = _received(connection)
    try:
        hello = next(received, None)
        if not isinstance(hello, messages.Hello):
            return 1
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s [%(process)d] %(message)s")
        # Ours only: those of botocore, say, show what requests hold.
        logging.getLogger("kinesis_ds").setLevel(hello.log_level)
        try:
            messages.check_version(hello.version)
            network = new_network(hello.aws)
        except KinesisConnectorError as exc:
            connection.sendall(encode(messages.Failed(exc)))
            return 1
        process = _AgentProcess(connection, hello, network, clock or SystemClock())
        try:
            for message in received:
                process.handle(message)
        finally:
            _exit_later()
            process.close()
            network.close()
    except OSError:  # the parent is gone
        return 1
    return 0


def _received(connection: socket.socket) -> Iterator[messages.Message]:
    """Yield the parent's messages until it closes the connection or is gone. Blocks."""
    deframer = Deframer()
    while data := connection.recv(_READ_BYTES):
        yield from deframer.feed(data)


def _exit_later() -> None:
    """End the process within seconds, even if something in it hangs."""
    alarm = threading.Timer(_END_WITHIN_S, os._exit, (1,))
    alarm.daemon = True
    alarm.start()


class _AgentProcess:
    """The agents of the process. Does what each message asks, on the process's main thread."""

    def __init__(
        self, connection: socket.socket, hello: messages.Hello, network: NetworkLoop, clock: Clock
    ) -> None:
        self._network = network
        self._clock = clock
        self._host = AgentHost(hello.buffer_bytes, hello.max_records)
        self._agents: dict[int, ShardAgent] = {}
        # By agent, what went wrong on the loop.
        self._broken: dict[int, KinesisConnectorError] = {}
        self._diagnoses = OpenCalls()
        self._outbox = Outbox(connection, self._positions, self._beat)
        self._outbox.put(messages.Ready(messages.CONTROL_VERSION, os.getpid()))

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
        self._outbox.close()
        self._host.close()

    def handle(self, message: messages.Message) -> None:
        """Do what the parent asks.

        Raises:
            AgentError: A parent does not send such a message.
        """
        match message:
            case messages.OpenAgent(number, options):
                try:
                    agent = self._opened(number, options)
                except OptionError as exc:  # another process could not listen there either
                    self._outbox.put(messages.Failed(exc))
                    return
                self._agents[number] = agent
                at = agent.address
                self._outbox.put(messages.Opened(number, at.uri, at.token, at.root_certs))
            case messages.CloseAgent(number):
                if (closing := self._agents.pop(number, None)) is not None:
                    closing.close()
            case messages.Assign(number, shard, position):
                self._on_loop(number, lambda agent: agent.assign(shard, position))
            case messages.MarkClosed(number, shard_id):
                self._on_loop(number, lambda agent: agent.mark_closed(shard_id))
            case messages.Free(number, positions):
                # Behind the shard's assignment, or nobody would free what it frees once more.
                self._on_loop(number, lambda agent: _free(agent, positions))
            case messages.Diagnosis(call, error, raised):
                found, failure = (None, error) if raised else (error, None)
                self._network.post(self._diagnoses.answer, call, found, failure)
            case messages.Question(call):
                try:
                    value = self._answer(message)
                    wire = None if value is None else message.answer.to_wire(value)
                    answer = messages.Answer(call, wire, None)
                except Exception as exc:  # whoever asked must not wait in vain
                    logger.exception("a question was not answered; please report this")
                    answer = messages.Answer(call, None, unexpected(exc))
                self._outbox.put(answer)
            case _:
                raise AgentError(f"An agent process was told {type(message).__name__}.")

    def _opened(self, number: int, options: AgentOptions) -> ShardAgent:
        return ShardAgent(
            options,
            self._host,
            self._network,
            self._clock,
            functools.partial(self._diagnose, number),
            functools.partial(self._outbox.put, messages.Changed(number)),
            lambda shard_id: functools.partial(self._outbox.moved, number, shard_id),
        )

    def _answer(self, question: messages.Question) -> Any:
        if isinstance(question, messages.Statistics):
            return {
                "pid": os.getpid(),
                "pool": asdict(self._host.pool.statistics()),
                "ranges": self._host.fetch_counts.counters(),
                "agents": {str(n): agent.statistics() for n, agent in self._agents.items()},
            }
        agent = self._agents.get(getattr(question, "agent", -1))
        if agent is None:
            return None
        match question:
            case messages.Hold(_, _, ranges, limits, planned):
                return agent.plan(ranges) if planned else agent.hold(ranges, limits)
            case messages.Targets(_, _, until_ms, host_ms):
                return agent.targets(until_ms, host_ms)
        raise AgentError(f"An agent process was asked {type(question).__name__}.")

    def _on_loop(self, number: int, work: Callable[[ShardAgent], None]) -> None:
        """Do something with an agent on the network loop.

        If that raises, the agent has failed: a shard that nobody reads must not go unnoticed.
        """

        def do() -> None:
            agent = self._agents.get(number)
            if agent is None:
                return
            try:
                work(agent)
            except Exception as exc:
                logger.exception("an agent broke; please report this")
                self._broken[number] = unexpected(exc)

        self._network.post(do)

    def _positions(self, number: int, shard_ids: list[str]) -> dict[str, Any]:
        agent = self._agents.get(number)
        buffers = {s: agent.buffer(s) for s in shard_ids} if agent is not None else {}
        return {s: buffer.available for s, buffer in buffers.items() if buffer is not None}

    def _beat(self) -> messages.Beat:
        agents = tuple(self._agents.items())
        failures = {str(n): self._broken.get(n) or agent.failure() for n, agent in agents}
        silent = {str(n): agent.silent() for n, agent in agents}
        return messages.Beat(
            {n: failure for n, failure in failures.items() if failure is not None},
            {n: shards for n, shards in silent.items() if shards},
        )

    # --- on the loop ----------------------------------------------------------------------------

    async def _diagnose(self, number: int, shard_id: str) -> KinesisConnectorError | None:
        """Ask the parent, which knows stream and consumer, why a shard is refused."""
        with self._diagnoses.open() as (call, future):
            self._outbox.put(messages.Diagnose(call, number, shard_id))
            found: KinesisConnectorError | None = await future
        return found


def _free(agent: ShardAgent, positions: Mapping[str, Position]) -> None:
    agent.free(positions)
    agent.forget([s for s, position in positions.items() if isinstance(position, ShardEnd)])
