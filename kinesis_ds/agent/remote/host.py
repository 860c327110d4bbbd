"""An agent process from within: does what it is told over its control connection, until that ends.

The connection *is* the life of the process: a parent that stops it closes the connection, and one
that is killed has its end closed by the kernel. Then subscriptions, server and threads end, within
seconds even where one of them does not want to.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import AgentHost, ShardAgent
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import Deframer, encode
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import AgentError, InternalError, KinesisConnectorError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from kinesis_ds.agent.buffer import Held, Moved
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

# After the connection has ended; whatever still runs then is cut off.
_END_WITHIN_S = 5.0
_BEAT_S = 1.0
_READ_BYTES = 65536
# Positions are told at once, and then not again for so long: one message tells of many events.
_TELL_EVERY_S = 0.01


def run(
    connection: socket.socket,
    new_network: Callable[[AwsOptions], NetworkLoop] = NetworkLoop,
    clock: Clock | None = None,
) -> int:
    """Serve until the connection ends; the exit status.

    Args:
        connection: To the parent, and to nobody else.
        new_network, clock: A test may let time pass faster.
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
        process = _Process(connection, hello, network, clock or SystemClock())
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
    """End the process soon, whatever waits for whatever."""
    alarm = threading.Timer(_END_WITHIN_S, os._exit, (1,))
    alarm.daemon = True
    alarm.start()


class _Process:
    """What the process reads, and how it answers. Messages are handled by its main thread."""

    def __init__(
        self, connection: socket.socket, hello: messages.Hello, network: NetworkLoop, clock: Clock
    ) -> None:
        self._network = network
        self._clock = clock
        self._host = AgentHost(hello.buffer_bytes, hello.max_records)
        self._agents: dict[int, ShardAgent] = {}
        # What went wrong on the loop, by agent.
        self._broken: dict[int, KinesisConnectorError] = {}
        self._diagnoses: dict[int, asyncio.Future[KinesisConnectorError | None]] = {}
        self._calls = 0
        self._outbox = _Outbox(connection, self._positions, self._failures)
        self._outbox.put(messages.Ready(messages.CONTROL_VERSION, os.getpid()))

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
        self._outbox.close()
        self._host.close()

    def handle(self, message: messages.Message) -> None:
        """Do what was asked."""
        match message:
            case messages.OpenAgent(number, options):
                agent = ShardAgent(
                    options,
                    self._host,
                    self._network,
                    self._clock,
                    functools.partial(self._diagnose, number),
                    functools.partial(self._outbox.put, messages.Changed(number)),
                    functools.partial(self._told, number),
                )
                self._agents[number] = agent
                self._outbox.put(messages.Opened(number, agent.address.uri, agent.address.token))
            case messages.CloseAgent(number):
                if (closing := self._agents.pop(number, None)) is not None:
                    closing.close()
            case messages.Assign(number, shard, position):
                self._on_loop(number, lambda agent: agent.assign(shard, position))
            case messages.MarkClosed(number, shard_id):
                self._on_loop(number, lambda agent: agent.mark_closed(shard_id))
            case messages.Free(number, positions):
                # Behind the shard's assignment, or nobody would free what it frees once more.
                self._on_loop(number, lambda agent: agent.free(positions))
            case messages.Diagnosis(call, error, raised):
                self._network.post(self._diagnosed, call, error, raised)
            case messages.Question(call):
                try:
                    answer = messages.Answer(call, self._answer(message), None)
                except Exception as exc:  # whoever asked must be told
                    logger.exception("a question was not answered; please report this")
                    broken = InternalError(f"{type(exc).__name__}: {exc}.", "Please report this.")
                    answer = messages.Answer(call, None, broken)
                self._outbox.put(answer)
            case _:
                raise AgentError(f"An agent process was told {type(message).__name__}.")

    def _answer(self, question: messages.Question) -> Any:
        if isinstance(question, messages.Statistics):
            return {
                "pid": os.getpid(),
                "pool": asdict(self._host.pool.statistics()),
                "agents": {str(n): agent.statistics() for n, agent in self._agents.items()},
            }
        agent = self._agents.get(getattr(question, "agent", -1))
        if agent is None:
            return None
        match question:
            case messages.AnyRecords(_, _, ranges):
                return agent.any_records(ranges)
            case messages.Hold(_, _, ranges, limits):
                return [held_to_wire(held) for held in agent.hold(ranges, limits)]
            case messages.OldestMs(_, _, ranges):
                return agent.oldest_ms(ranges)
            case messages.First(_, _, wanted):
                return held_to_wire(agent.first(wanted))
            case messages.Targets(_, _, until_ms, host_ms):
                targets = agent.targets(until_ms, host_ms)
                return {shard: str(position) for shard, position in targets.items()}
        raise AgentError(f"An agent process was asked {type(question).__name__}.")

    def _on_loop(self, number: int, work: Callable[[ShardAgent], None]) -> None:
        """Do something where agents want it done. A shard that nobody reads must not be silent."""

        def do() -> None:
            agent = self._agents.get(number)
            if agent is None:
                return
            try:
                work(agent)
            except Exception as exc:
                logger.exception("an agent broke; please report this")
                self._broken[number] = InternalError(
                    f"{type(exc).__name__}: {exc}.", "Please report this."
                )

        self._network.post(do)

    def _told(self, number: int, shard_id: str) -> Moved:
        return functools.partial(self._outbox.moved, number, shard_id)

    def _positions(self, number: int, shard_ids: list[str]) -> dict[str, Any]:
        agent = self._agents.get(number)
        buffers = {s: agent.buffer(s) for s in shard_ids} if agent is not None else {}
        return {s: buffer.available for s, buffer in buffers.items() if buffer is not None}

    def _failures(self) -> dict[str, KinesisConnectorError]:
        found = {n: self._broken.get(n) or a.failure() for n, a in tuple(self._agents.items())}
        return {str(n): failure for n, failure in found.items() if failure is not None}

    # --- on the loop ----------------------------------------------------------------------------

    async def _diagnose(self, number: int, shard_id: str) -> KinesisConnectorError | None:
        """Ask the parent, who knows stream and consumer, why a shard is refused."""
        self._calls += 1
        call = self._calls
        future: asyncio.Future[KinesisConnectorError | None]
        future = self._diagnoses[call] = asyncio.get_running_loop().create_future()
        try:
            self._outbox.put(messages.Diagnose(call, number, shard_id))
            return await future
        finally:
            del self._diagnoses[call]

    def _diagnosed(self, call: int, error: KinesisConnectorError | None, raised: bool) -> None:
        future = self._diagnoses.get(call)
        if future is None or future.done():
            return
        if raised and error is not None:
            future.set_exception(error)
        else:
            future.set_result(error)


class _Outbox:
    """What is to be told to the parent, and the thread that tells it. Nobody else waits for that.

    It holds at most an answer to each question, and each shard that moved once.

    Args:
        positions: Agent and shard ids to where they are.
        failures: What has failed, for the beat.
    """

    def __init__(
        self,
        connection: socket.socket,
        positions: Callable[[int, list[str]], dict[str, Any]],
        failures: Callable[[], dict[str, KinesisConnectorError]],
    ) -> None:
        self._connection = connection
        self._positions = positions
        self._failures = failures
        self._changed = threading.Condition()
        self._messages: deque[messages.Message] = deque()
        self._dirty: dict[int, dict[str, bool]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kinesis-control", daemon=True)
        self._thread.start()

    def put(self, message: messages.Message) -> None:
        """Tell this; from any thread, never blocking."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def moved(self, number: int, shard_id: str, *, news: bool) -> None:
        """Tell where a shard is; from any thread, never blocking."""
        with self._changed:
            idle = not self._dirty
            shards = self._dirty.setdefault(number, {})
            shards[shard_id] = shards.get(shard_id, False) or news
            if idle:
                self._changed.notify()

    def close(self) -> None:
        """Tell nothing more. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_END_WITHIN_S)

    def _run(self) -> None:
        beat_due = tell_due = time.monotonic()
        try:
            while True:
                with self._changed:
                    while True:
                        now = time.monotonic()
                        if self._closed:
                            return
                        due = min(beat_due, tell_due) if self._dirty else beat_due
                        if self._messages or now >= due:
                            break
                        self._changed.wait(due - now)
                    said, self._messages = list(self._messages), deque()
                    dirty: dict[int, dict[str, bool]] = {}
                    if now >= tell_due:
                        dirty, self._dirty = self._dirty, {}
                        tell_due = now + _TELL_EVERY_S if dirty else now
                if now >= beat_due:
                    beat_due = now + _BEAT_S
                    said.append(messages.Beat(self._failures()))
                said += [
                    messages.Moved(n, self._positions(n, list(shards)), any(shards.values()))
                    for n, shards in dirty.items()
                ]
                self._connection.sendall(b"".join(map(encode, said)))
        except OSError as exc:  # the parent is gone: whoever reads from it is told as well
            logger.debug("nobody listens any more: %s", exc)


def held_to_wire(held: Held | None) -> list[Any] | None:
    """As an answer carries it."""
    return None if held is None else [held.records, held.nbytes, str(held.end)]
