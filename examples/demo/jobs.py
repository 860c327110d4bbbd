"""A Spark job as a child of the conductor: started, watched, and ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from devtools.installing import CHECKOUT, tail

if TYPE_CHECKING:
    from examples.demo.settings import JobSettings

_GONE_WITHIN_S = 15.0


class JobError(RuntimeError):
    """A job ended that should not have; the message holds the end of its log."""


class Job:
    """One Spark application in a session of its own, so that nothing it starts can be missed.

    A process group would not do: PySpark's worker daemon makes its own.

    Args:
        role: What it does, `reader` for example; names the module that is run and the log.
        settings: The same for every start.
    """

    def __init__(self, role: str, settings: JobSettings) -> None:
        self.name = f"{role.removesuffix('er')}ing job"
        self.log = Path(settings.folder) / f"{role}.log"
        self._module = f"examples.demo.{role}_job"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []

    def start(self) -> None:
        """Start it. A second start goes on from the checkpoint of the first."""
        folder = Path(self._settings.folder)
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, json.dumps(asdict(self._settings))],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.append(self._process.pid)

    @property
    def running(self) -> bool:
        """Whether the driver process is there."""
        return self._process is not None and self._process.poll() is None

    def finished(self) -> bool:
        """Whether it ended well; False while it runs.

        Raises:
            JobError: It ended with an error.
        """
        status = self._process.poll() if self._process is not None else None
        if status:
            raise JobError(
                f"the {self.name} ended with status {status}. The end of {self.log}:\n"
                f"{tail(self.log)}"
            )
        return status == 0

    def check(self) -> None:
        """Raise `JobError` when it ended, whether well or not."""
        if self.finished():
            raise JobError(f"the {self.name} ended too early; see {self.log}")

    def kill(self) -> int:
        """SIGKILL the driver, the JVM and all Python workers, and wait until they are gone.

        Returns:
            How many processes that were.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + _GONE_WITHIN_S
        while members := self.members():
            if time.monotonic() > deadline:
                raise JobError(f"processes {members} of the {self.name} survived SIGKILL")
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(members)
            if self._process is not None:
                self._process.poll()
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait(_GONE_WITHIN_S)
        return len(killed)

    def ask_to_end(self) -> None:
        """SIGTERM the driver: its query stops in good order."""
        if self._process is not None and self.running:
            self._process.terminate()

    def members(self) -> list[int]:
        """All live processes that any start of this job has left running."""
        return [pid for pid in psutil.pids() if _is_alive_in(pid, self._sessions)]


def _environment() -> dict[str, str]:
    # A Spark that happens to be installed, and options meant for it, are not ours to use.
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    paths = [str(CHECKOUT), *filter(None, [ours.get("PYTHONPATH")])]
    return {
        **ours,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _is_alive_in(pid: int, sessions: list[int]) -> bool:
    try:
        return os.getsid(pid) in sessions and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False
