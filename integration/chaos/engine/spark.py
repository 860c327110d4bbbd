"""Do the same runs with real Spark: a JVM, its Python processes, and the machine's time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil

from integration.chaos.engine.interface import EngineError, Job, Observed, Tally
from integration.chaos.engine.recording import read_lines, recorded_calls
from integration.chaos.engine.spark_job import EVENTS_FILE, STILL_FILE
from integration.chaos.engine.spark_sink import ATTEMPTS_FOLDER
from integration.chaos.payload import read_head
from integration.chaos.schedule import Moment, Victim
from integration.chaos.verdict import Attempt, Delivered

_ROOT = Path(__file__).parents[3]
_START_S = 120.0
_STOP_S = 60.0
_MOST_FAILURES = 20
# What a query may fail of and be started again: a kill shows as a broken pipe, and a stream that
# cannot be looked up yet as an error that may pass. Nothing else may end a query.
_CONDITION = re.compile(r"\[KINESIS_([A-Z_]+)\]")
_PASSING = {"TRANSIENT", "THROTTLED", "RESOURCE_IN_USE", "PROTOCOL"}
_OF_TASKS = _PASSING | {"WRITE"}


class SparkEngine:
    """See :class:`~integration.chaos.engine.interface.Engine`. It does not speculate."""

    speed = 1.0
    pace = 2.0  # nobody waits two minutes for a run

    def __init__(self, job: Job) -> None:
        self.tally = Tally()
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0
        self._killed = False
        self._dies_with_output = -1
        self._failures = 0
        self._changed: list[str] = []
        self._rows: dict[str, int] = {}
        self._out = job.folder / "query" / "out"

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        job = self._job
        self._killed = False
        self._dies_with_output = -1
        settings = {
            "folder": str(job.folder),
            "source": dict(job.source),
            "sink": dict(job.sink),
            "conductor": os.getpid(),
        }
        (job.folder / "logs").mkdir(exist_ok=True)
        with (job.folder / "logs" / "spark.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.chaos.engine.spark_job", json.dumps(settings)],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(_ROOT),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )
        started = self._started()
        deadline = time.monotonic() + _START_S
        while self._started() == started:
            if not self.running() or time.monotonic() > deadline:
                raise EngineError("the job did not start; see spark.log")
            time.sleep(0.1)

    def running(self) -> bool:
        if self._process is None:
            return False
        self._listen()
        if self._dies_with_output >= 0 and len(self._files()) > self._dies_with_output:
            self._kill_all()
        if self._process.poll() is None:
            return True
        code = self._process.returncode
        self._process = None
        if self._killed:
            return False
        raise EngineError(f"the job ended by itself, with {code}; see spark.log")

    def kill(self, victim: Victim, moment: Moment) -> None:
        if self._process is None:
            return
        if victim == "driver":
            if moment == "now":
                self._kill_all()
            else:
                self._dies_with_output = len(self._files())
            return
        for process in self._of(victim):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def freeze(self, victim: Victim) -> object:
        for process in self._of(victim):
            with contextlib.suppress(psutil.Error):
                process.suspend()
                return process
        return None

    def thaw(self, frozen: object) -> None:
        assert isinstance(frozen, psutil.Process)
        with contextlib.suppress(psutil.Error):
            frozen.resume()

    def stand_still(self, seconds: float) -> None:
        (self._job.folder / STILL_FILE).write_text(str(time.time() + seconds))

    def speculate(self, tasks: int) -> None:
        del tasks  # Spark speculates on no tasks of a local master

    def stop(self) -> list[str]:
        assert self._process is not None
        members = self._members()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise EngineError(f"the job did not stop within {_STOP_S:g} s") from None
        self._process = None
        _, left = psutil.wait_procs(members, timeout=10)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return [f"process {process.pid} {_command(process)[:200]}" for process in left]

    def close(self) -> None:
        if self._process is not None:
            self._kill_all()
            self._process = None

    # --- looking --------------------------------------------------------------------------------

    def pinned(self) -> bool:
        folders = ("checkpoint-source", "checkpoint-sink")
        return all((self._job.folder / name / "offsets" / "0").exists() for name in folders)

    def delivered(self) -> int:
        for path in self._files():
            if path.name not in self._rows:
                self._rows[path.name] = len(orjson.loads(path.read_bytes()))
        return sum(self._rows.values())

    def sample(self) -> None:
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                command = _command(process)
                role = "source" if _is_agent(command) else "worker" if _is_worker(command) else ""
                self.tally.pids.setdefault(process.pid, role or "other")
                if role:
                    rss = process.memory_info().rss
                    self.tally.rss[role] = max(rss, self.tally.rss.get(role, 0))

    def observed(self) -> Observed:
        batches = {
            int(path.name): [
                Delivered(shard, int(number), read_head(bytes.fromhex(head)) if head else None)
                for shard, number, _, head, *_ in orjson.loads(path.read_bytes())
            ]
            for path in self._files()
        }
        return Observed(
            batches, self._changed, list(self._attempts()), list(recorded_calls(self._job.folder))
        )

    def states(self) -> str:
        files = sorted((self._job.folder / "statistics").glob("*/source-*.json"))
        counters = [path.read_text() for path in files]
        return "; ".join([f"{self.delivered()} records out", *counters])

    # --- inside ---------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        return list(self._out.iterdir()) if self._out.exists() else []

    def _started(self) -> int:
        lines = read_lines(self._job.folder / EVENTS_FILE)
        return sum(line[0] == "started" for line in lines)

    def _attempts(self) -> Iterator[Attempt]:
        lines = [
            line
            for path in (self._job.folder / ATTEMPTS_FOLDER).glob("*.jsonl")
            for line in read_lines(path)
        ]
        first_run: dict[int, int] = {}
        for _, batch, _, run, _ in lines:
            first_run[batch] = min(run, first_run.get(batch, run))
        for tag, batch, task, run, number in lines:
            reason = "retry" if number else "first" if run == first_run[batch] else "rerun"
            yield Attempt(tag, batch, task, reason)

    def _listen(self) -> None:
        lines = read_lines(self._job.folder / EVENTS_FILE)
        for what, *rest in lines[self._heard :]:
            self._heard += 1
            if what == "rerun":
                self.tally.replays += 1
            elif what == "changed":
                self._changed.append(rest[0])
            elif what == "failed":
                self._on_failure(*rest)

    def _on_failure(self, query: str, why: str) -> None:
        conditions = set(_CONDITION.findall(why))
        passing = _OF_TASKS if "Task" in why else _PASSING
        self._failures += 1
        if conditions - passing or self._failures > _MOST_FAILURES:
            raise EngineError(f"the {query} query failed: {why[:1500]}")
        reason = f"{query} query: {' '.join(sorted(conditions)) or 'a process was killed'}"
        self.tally.restarts[reason] = self.tally.restarts.get(reason, 0) + 1

    def _members(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            leader = psutil.Process(self._process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _of(self, victim: Victim) -> list[psutil.Process]:
        if victim == "driver":
            return self._members()[:1]
        wanted: Any = _is_agent if victim == "agent" else _is_worker
        found = [process for process in self._members() if wanted(_command(process))]
        if victim == "worker":
            # The daemon forks the workers; it is none itself.
            found = [process for process in found if _is_worker(_command(process.parent()))]
        return found[:1]

    def _kill_all(self) -> None:
        assert self._process is not None
        self._killed = True
        members = self._members()
        for process in members:
            with contextlib.suppress(psutil.Error):
                process.suspend()  # nobody is to see the others die
        for process in members:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait(30)
        psutil.wait_procs(members, timeout=30)


def _command(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process is not None else ""
    except psutil.Error:
        return ""


def _is_agent(command: str) -> bool:
    return "python_streaming_source_runner" in command


def _is_worker(command: str) -> bool:
    return "pyspark.daemon" in command
