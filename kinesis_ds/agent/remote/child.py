"""The parent's end of one agent process: starts it, speaks with it, and knows when it is dead."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote import messages
from kinesis_ds.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "kinesis_ds.agent")


@dataclass(frozen=True)
class Patience:
    """How long is waited for an agent process, in seconds.

    Attributes:
        start_s: For the first message, behind a second or two of work on imports.
        answer_s: For an answer.
        silence_s: For the beat that it sends every second.
        stop_s: Until it ends when it is to.
    """

    start_s: float = 180.0
    answer_s: float = 60.0
    silence_s: float = 60.0
    stop_s: float = 8.0


class Child:
    """An agent process. All methods run on the network loop, unless they say otherwise."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._calls = itertools.count(1)
        self._heard = time.monotonic()
        self._speaks = False

    @classmethod
    def start(cls, command: Sequence[str]) -> Child:
        """Start a process.

        It finds the modules that this one finds, and its log goes where this one's goes. Whatever
        is secret comes over the connection, its standard input.

        Raises:
            OSError: It cannot be started.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: S603  # our own program, or a test's
                    command,
                    stdin=theirs.fileno(),
                    stdout=2,  # whatever prints there must not disturb Spark's protocol
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    def silent(self, patience: Patience) -> bool:
        """Whether nothing has come for too long."""
        within_s = patience.silence_s if self._speaks else patience.start_s
        return time.monotonic() - self._heard > within_s

    async def connect(self) -> None:
        """Be ready to speak."""
        self._connection.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self._connection)

    def send(self, message: messages.Message) -> None:
        """Tell it something; lost if it is dead, as all that it knows is."""
        if self._streams is not None:
            self._streams[1].write(messages.encode(message))

    async def ask(self, question: messages.Question, within_s: float) -> Any:
        """What it answers; None if it dies first. It is killed if it does not answer in time.

        Raises:
            KinesisConnectorError: It could not tell.
        """
        call = next(self._calls)
        future = self._answers[call] = asyncio.get_running_loop().create_future()
        try:
            self.send(replace(question, call=call))
            return await asyncio.wait_for(future, within_s)
        except asyncio.TimeoutError:
            logger.warning(
                "agent process %d did not answer within %gs; it is replaced", self.pid, within_s
            )
            self.kill()
            return None
        finally:
            del self._answers[call]

    async def messages(self) -> AsyncGenerator[messages.Message, None]:
        """What it says, but for answers, until it ends.

        Raises:
            AgentError: It says what is no message.
        """
        assert self._streams is not None
        reader, _ = self._streams
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = messages.length(await reader.readexactly(messages.LENGTH.size))
                message = messages.decode(await reader.readexactly(size))
                self._heard, self._speaks = time.monotonic(), True
                match message:
                    case messages.Answer(call, value, error):
                        self._answered(call, value, error)
                    case _:
                        yield message

    def _answered(self, call: int, value: Any, error: Exception | None) -> None:
        future = self._answers.get(call)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def leave(self) -> None:
        """Let it end: its connection does."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].write_eof()

    def kill(self) -> None:
        """End it, whatever it does; from any thread."""
        self._process.kill()

    async def dead(self) -> str:
        """See it dead, killing it if need be: from then on it holds nothing. Returns how it died.

        Whoever waits for an answer gets none.
        """
        if self._streams is None:
            self._connection.close()
        else:
            self._streams[1].transport.abort()
        for future in self._answers.values():
            if not future.done():
                future.set_result(None)
        await asyncio.to_thread(self.reap)
        return describe(self._process.returncode)

    def reap(self, within_s: float = 1.0) -> None:
        """Wait until it is gone, from any thread; it is killed if it does not go by itself."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def describe(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def require_sockets() -> None:
    """Refuse a system on which agent processes cannot be spoken with.

    Raises:
        AgentError: It is one.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise AgentError(
            "agentProcesses above 1 needs a system with Unix sockets.", "Leave agentProcesses out."
        )
