"""Start an agent process, kill it, and make sure that it is dead."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.agent.remote.channel import Channel
from kinesis_ds.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = (sys.executable, "-m", "kinesis_ds.agent")


@dataclass(frozen=True)
class Patience:
    """How many seconds to wait for an agent process.

    Attributes:
        start_s: For its first message, which comes after a second or two of CPU for imports.
        answer_s: For the answer to a question.
        silence_s: For the next message; it sends one every second.
        stop_s: For its end, after it was asked to leave.
    """

    start_s: float = 180.0
    answer_s: float = 60.0
    silence_s: float = 60.0
    stop_s: float = 8.0


class Child:
    """An agent process and the channel to it.

    Attributes:
        channel: Open from the start until :meth:`end`.
    """

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self.channel = channel

    @classmethod
    async def start(cls, command: Sequence[str]) -> Child:
        """Start a process.

        It finds the modules that this process finds, and its log goes where this one's goes.
        Secrets come over the channel, which is its standard input.

        Raises:
            OSError: The process cannot be started.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                channel = Channel(*await asyncio.open_connection(sock=ours))
            except BaseException:
                ours.close()
                raise
            try:
                process = subprocess.Popen(  # noqa: S603, ASYNC220  # our own, or a test's; quick
                    command,
                    stdin=theirs.fileno(),
                    stdout=2,  # whatever prints there must not disturb Spark's protocol
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            except BaseException:
                channel.abort()
                raise
        return cls(process, channel)

    @property
    def pid(self) -> int:
        return self._process.pid

    def silent(self, patience: Patience) -> bool:
        """Return whether nothing has come from it for too long."""
        within_s = patience.silence_s if self.channel.has_spoken else patience.start_s
        return time.monotonic() - self.channel.heard_at > within_s

    def kill(self) -> None:
        """Kill the process, whatever it is doing; from any thread."""
        self._process.kill()

    async def end(self) -> str:
        """Close the channel and wait until the process is dead, so that it holds nothing any more.

        It is killed if it does not exit by itself. Returns how it died, in words.
        """
        self.channel.abort()
        await asyncio.to_thread(self.reap)
        return describe(self._process.returncode)

    def reap(self, within_s: float = 1.0) -> None:
        """Wait until the process is dead, from any thread; kill it after ``within_s`` seconds."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def describe(status: int) -> str:
    """Return in words how a process ended."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def require_sockets() -> None:
    """Refuse a system on which there can be no channel to an agent process.

    Raises:
        AgentError: The system has no Unix sockets.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise AgentError(
            "agentProcesses above 1 needs a system with Unix sockets.", "Leave agentProcesses out."
        )
