"""A job with Spark in processes of its own, so that a test can kill it whole."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import psutil

from devtools.waiting import wait_until

ROOT = Path(__file__).parents[1]
Job = TypeVar("Job", bound="SparkJob")


class SparkJob:
    """``python -m <module> '<settings as JSON>'``. Use as a context manager: it is always killed.

    Args:
        module: What is run.
        folder: The log is kept here; runs of one query share it.
        settings: The argument of the program.
    """

    def __init__(self, module: str, folder: Path, settings: dict[str, Any]) -> None:
        self._module = module
        self._log = folder / f"{module.rpartition('.')[2]}.log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self: Job) -> Job:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, json.dumps(self._settings)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL driver, JVM and Python workers, all at once, and wait until they are gone."""
        if self._process is None:
            return
        members = self._members()
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.suspend()  # nobody is to see the others die
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        self._process.wait(30)
        psutil.wait_procs(members, timeout=30)
        self._process = None

    def wait(self, within_s: float = 300.0) -> None:
        """Wait until it has ended, and fail with the end of its log if it failed."""
        assert self._process is not None
        assert self._process.wait(within_s) == 0, self.log_tail()

    def check_alive(self) -> None:
        """Fail with the end of the log if the query has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"the query ended:\n{self.log_tail()}"

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def wait_for(
        self, condition: Any, what: str, within_s: float = 300.0, every_s: float = 0.05
    ) -> Any:
        """Poll a condition while the query lives."""

        def look() -> Any:
            value = condition()
            if not value:
                self.check_alive()
            return value

        return wait_until(look, what=what, within_s=within_s, every_s=every_s)

    def _members(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            leader = psutil.Process(self._process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
