"""A Kinesis-compatible server on 127.0.0.1 for the length of a `with` block."""

from __future__ import annotations

import abc
import contextlib
import fcntl
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from devtools import supervisor
from devtools.installing import Recipe, exclusive, tail
from devtools.waiting import NotInTimeError, wait_until

HOST = "127.0.0.1"
REGION = "us-east-1"

# For NODE_OPTIONS: makes a server on Node, which would listen on every interface, stay on loopback.
BIND_LOCALHOST = f"--require {Path(__file__).with_name('bind_localhost.js')}"

# Below those that the system deals out by itself: a server takes its port only seconds later, and
# somebody else may have been given it by then.
_PORTS = range(20_000, 32_000)

_STOP_WITHIN_S = 15.0
_ANSWER_WITHIN_S = 10.0


class ServerError(RuntimeError):
    """The server did not start, or could not be stopped; the message says which and why."""


class Server(abc.ABC):
    """One server process tree, installed on first use and owned by whoever started it.

    Bound to loopback only. It ends with the `with` block, and also when the process that started
    it dies in any way. Not for use from several threads at once.

    Args:
        port: 0 takes a free one; see `endpoint` after the start.
        start_within_s: how long the server may take until it answers a ListStreams call.
    """

    recipe: ClassVar[Recipe]

    def __init__(self, port: int = 0, *, start_within_s: float = 60.0) -> None:
        self.port = port
        self._start_within_s = start_within_s
        self._supervisor: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def command(self, folder: Path) -> Sequence[str | Path]:
        """The program in the installation `folder`, with its arguments."""

    @abc.abstractmethod
    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that the program needs; it sees no others but PATH, HOME and LANG."""

    def prepare(self, folder: Path) -> None:  # noqa: B027  # most servers need nothing
        """Lay out `scratch` before the program starts."""

    @property
    def endpoint(self) -> str:
        """The URL for a client's `endpoint_url`."""
        return f"http://{HOST}:{self.port}"

    @property
    def scratch(self) -> Path:
        """Folder that the running server writes to; removed when it stops."""
        return self.recipe.home / "run" / str(self.port)

    @property
    def log(self) -> Path:
        """File with the output of the server."""
        return self.scratch / "server.log"

    @property
    def running(self) -> bool:
        """True while the process tree that `start` made is there."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<{type(self).__name__} {state} {HOST}:{self.port}>"

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, *, detached: bool = False) -> Server:
        """Install if need be, start, and return once the server has answered a real call.

        A detached server outlives this process; `stop_detached` ends it.
        """
        if self.running:
            raise ServerError(f"{self!r} was started already")
        folder = self.recipe.install()
        self.port = self.port or _free_port()
        _refuse_taken(self.port)
        self._launch(folder, detached=detached)
        try:
            wait_until(
                self._answered, what=f"an answer from {self!r}", within_s=self._start_within_s
            )
        except (ServerError, NotInTimeError) as error:
            said = tail(self.log)
            self._end()
            raise ServerError(f"{error}. The end of {self.log}:\n{said}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the whole process tree. Does nothing where there is none."""
        if self._supervisor is not None:
            self._end()
            shutil.rmtree(self.scratch, ignore_errors=True)

    @classmethod
    def stop_detached(cls, port: int) -> bool:
        """End the detached server of this checkout on `port`; false when there is none."""
        lock_file = cls(port).scratch / "lock"
        with contextlib.suppress(FileNotFoundError), lock_file.open("r+") as lock:
            if _locked(lock.fileno()):
                os.kill(int(lock.read()), signal.SIGTERM)
                wait_until(
                    lambda: not _locked(lock.fileno()),
                    what=f"the end of the server on port {port}",
                    within_s=_STOP_WITHIN_S,
                )
                shutil.rmtree(lock_file.parent, ignore_errors=True)
                return True
        return False

    def _launch(self, folder: Path, *, detached: bool) -> None:
        run = self.scratch.parent
        with exclusive(self.recipe.home / "run.lock"):
            _forget_the_dead(run)
            # The port is free, so whatever lies here is dead too, lock or no lock.
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.scratch.mkdir(parents=True)
            lock = os.open(self.scratch / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.prepare(folder)
        # The supervisor inherits the lock with the open file, and so holds it for its life: that,
        # not a number in a file, is how others know that this server is running, and whose it is.
        try:
            with self.log.open("wb") as log:
                self._supervisor = subprocess.Popen(
                    [
                        *(sys.executable, "-I", supervisor.__file__),
                        *(["--detached"] if detached else []),
                        *("--", *map(str, self.command(folder))),
                    ],
                    cwd=self.scratch,
                    env=self._environment(folder),
                    stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[lock],
                    # Ctrl-C is for the starter, which then stops the server in its own time.
                    start_new_session=True,
                )
            os.write(lock, str(self._supervisor.pid).encode())
        finally:
            os.close(lock)

    def _environment(self, folder: Path) -> dict[str, str]:
        path = os.pathsep.join([str(folder / "venv" / "bin"), os.environ.get("PATH", os.defpath)])
        home = {"PATH": path, "HOME": str(self.scratch), "LANG": "C.UTF-8"}
        return home | self.environment(folder)

    def _answered(self) -> bool:
        if not self.running:
            raise ServerError(f"{self!r} ended by itself")
        return list_streams(self.port)

    def _end(self) -> None:
        ending, self._supervisor = self._supervisor, None
        if ending is None:
            return
        if ending.stdin is not None:
            ending.stdin.close()
        ending.terminate()
        try:
            ending.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            ending.kill()
            ending.wait()


def list_streams(port: int) -> bool:
    """Return True if a ListStreams call succeeds.

    An open port or a "ready" in a log says less: LocalStack starts its Kinesis on the first call.
    """
    headers = {
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": "Kinesis_20131202.ListStreams",
        "X-Amz-Date": "20130101T000000Z",
        # The servers read the region and the account from here and check nothing.
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20130101/"
        f"{REGION}/kinesis/aws4_request, SignedHeaders=host, Signature=0",
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_WITHIN_S)
    try:
        connection.request("POST", "/", b"{}", headers)
        with connection.getresponse() as response:
            return response.status == http.HTTPStatus.OK and "StreamNames" in json.load(response)
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    for port in random.SystemRandom().sample(_PORTS, 100):
        with contextlib.suppress(ServerError):
            _refuse_taken(port)
            return port
    raise ServerError(f"no free port between {_PORTS.start} and {_PORTS.stop} of {HOST}")


def _refuse_taken(port: int) -> None:
    # LocalStack on a port that is taken reports that it is ready, and listens on nothing.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ServerError(
                f"port {port} of {HOST} cannot be had ({error.strerror}): stop what listens "
                "there, or choose another port"
            ) from error


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _forget_the_dead(run: Path) -> None:
    """Remove the folders of servers that were killed or never came up."""
    for lock_file in run.glob("*/lock"):
        with contextlib.suppress(FileNotFoundError), lock_file.open("r+") as lock:
            if not _locked(lock.fileno()):
                shutil.rmtree(lock_file.parent, ignore_errors=True)
