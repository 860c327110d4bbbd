"""Keep one agent process running: start it, listen to it, replace it when it dies.

A process that dies takes with it what it held. Only when it is known to be dead (the kernel says
so, and has closed its sockets) is a new one started and given its shards again, behind what Spark
has committed. So a shard never has two readers of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.child import Child, Patience
from kinesis_ds.agent.remote.restarts import RestartPolicy
from kinesis_ds.errors import AgentError, unexpected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_ds.agent.remote.processes import AgentProcesses
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """How an agent process is started, and what it is given.

    Attributes:
        command: The command line.
        aws: Where it connects, and as whom.
        buffer_bytes: How many bytes of records it may buffer.
        max_records: How many records it may buffer.
        patience: How long to wait for it.
    """

    command: Sequence[str]
    aws: AwsOptions
    buffer_bytes: int
    max_records: int
    patience: Patience


@dataclass(eq=False, repr=False)
class Supervisor:
    """Keeps an agent process running until :meth:`stop`. Use it on the loop, except ``kill``.

    Attributes:
        number: Its number among the source's processes, from 0.
        launch: How the process is started.
        processes: Is told on the loop what happens to the process.
        network: The loop.
        clock: Tells when a process died.
        starts: How often a process was started.
        child: The process that runs now; None while there is none.
    """

    number: int
    launch: Launch
    processes: AgentProcesses
    network: NetworkLoop
    clock: Clock
    starts: int = 0
    child: Child | None = None
    _restarts: RestartPolicy = field(default_factory=RestartPolicy)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: messages.Message) -> None:
        """Send a message, without waiting; dropped while no process runs."""
        if self.child is not None:
            self.child.channel.send(message)

    async def ask(self, question: messages.Question) -> Any:
        """Return the answer to a question; None if there is no process, or it dies first, or it
        does not answer in time. In that case it is killed.

        Raises:
            KinesisConnectorError: The process could not answer, and said why.
        """
        child = self.child
        if child is None:
            return None
        within_s = self.launch.patience.answer_s
        try:
            return await child.channel.ask(question, within_s)
        except asyncio.TimeoutError:
            logger.warning(
                "agent process %d did not answer within %gs; it is replaced", child.pid, within_s
            )
            child.kill()
            return None

    def stop(self) -> None:
        """Ask the process to leave, and start no other. Then :meth:`keep` returns."""
        self._stopping.set()
        if self.child is not None:
            self.child.channel.finish()

    def kill(self) -> None:
        """Kill the process and wait until it is dead; from any thread but the loop's."""
        if (child := self.child) is not None:
            child.kill()
            child.reap()

    async def keep(self) -> None:
        """Keep a process running until stopped, or until it dies too often."""
        try:
            while not self._over():
                self.starts += 1
                try:
                    how = await self._live()
                except OSError as exc:
                    how = f"not started: {exc}"
                if not self._over():
                    await self._pause(how)
        except Exception as exc:  # without a process, its shards would stand still
            self.processes.give_up(unexpected(exc, f"Agent process {self.number}"))
            raise

    def _over(self) -> bool:
        return self.processes.failure is not None or self._stopping.is_set()

    async def _pause(self, how: str) -> None:
        """Wait until the next process may be started, or give up."""
        delay_s = self._restarts.died(self.clock.monotonic())
        if delay_s is None:
            self.processes.give_up(self._too_often(how))
            return
        logger.warning(
            "agent process %d ended (%s); its shards are begun again in a new one in %gs",
            self.number,
            how,
            delay_s,
        )
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _live(self) -> str:
        """Start a process and listen to it until it is dead; return how it died.

        Raises:
            OSError: It cannot be started.
        """
        child = await Child.start(self.launch.command)
        try:
            child.channel.send(
                messages.Hello(
                    messages.CONTROL_VERSION,
                    self.launch.aws,
                    self.launch.buffer_bytes,
                    self.launch.max_records,
                    logging.getLogger("kinesis_ds").getEffectiveLevel(),
                )
            )
            self.child = child
            if self._stopping.is_set():
                child.channel.finish()
            self.processes.started(self.number)
            watching = self.network.spawn(self._watch(child), f"watch {child.pid}")
            try:
                async with contextlib.aclosing(child.channel.received()) as received:
                    async for message in received:
                        self._hear(child, message)
            except AgentError as exc:
                logger.warning("agent process %d is replaced: %s", child.pid, exc)
                child.kill()
            finally:
                watching.cancel()
        finally:
            self.child = None
            # Also when cancelled: nobody else would see it dead.
            how = await asyncio.shield(child.end())
            self.processes.lost(self.number)
        return how

    async def _watch(self, child: Child) -> None:
        """Kill a process that has gone silent: it may be stopped, and holds its shards."""
        while True:
            await asyncio.sleep(self.launch.patience.silence_s / 4)
            if child.silent(self.launch.patience):
                logger.warning("agent process %d says nothing; it is replaced", child.pid)
                child.kill()
                return

    def _hear(self, child: Child, message: messages.Message) -> None:
        match message:
            case messages.Ready(version, pid):
                try:
                    messages.check_version(version)
                except AgentError as exc:
                    self.processes.give_up(exc)
                    child.kill()
                logger.info("agent process is ready number=%d pid=%d", self.number, pid)
            case messages.Failed(error):
                self.processes.give_up(error)
            case _:
                self.processes.heard(self.number, child.channel, message)

    def _too_often(self, how: str) -> AgentError:
        return AgentError(
            f"Agent process {self.number} ended {self._restarts.limit} times within "
            f"{self._restarts.within_s:g}s, the last time with {how}.",
            "The driver's log has what it wrote. If the machine killed it for want of memory, "
            "lower fetchBufferSize; agentProcesses=1 reads in the source's own process.",
        )
