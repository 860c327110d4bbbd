"""Run Spark's protocol over real processes, without the JVM, in fast time: a run takes seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import orjson
import psutil

from integration.chaos.engine.interface import EngineError, Job, Observed, Tally
from integration.chaos.engine.processes import Child, spawn_driver
from integration.chaos.engine.query import ATTEMPTS_FILE, drive
from integration.chaos.engine.recording import read_lines, recorded_calls
from integration.chaos.payload import read_head
from integration.chaos.schedule import Moment, Victim
from integration.chaos.verdict import Attempt, Delivered
from tests.support.fast import SPEED

_ROLES = {"agent": "source", "worker": "worker-0", "driver": "driver"}
_STOP_S = 20.0
_START_S = 30.0
# A source that cannot start is started again, as a person would do it; not for ever.
_MOST_FAILURES = 60


class BareEngine:
    """See :class:`~integration.chaos.engine.interface.Engine`."""

    speed = SPEED
    pace = 1.0

    def __init__(self, job: Job) -> None:
        self.tally = Tally()
        self._job = job
        self._driver: Child | None = None
        self._living: dict[str, int] = {}
        self._rows: dict[int, int] = {}
        self._killed = False
        self._stopped: list[str] | None = None
        self._failures = 0

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        job = self._job
        self._killed, self._stopped = False, None
        self._living.clear()
        self._driver = spawn_driver(drive, job.folder, job.folder, dict(job.source), dict(job.sink))
        self._note("driver", self._driver.pid)
        deadline = time.monotonic() + _START_S
        while "source" not in self._living:
            if time.monotonic() > deadline or not self.running():
                raise EngineError("the driver did not start")
            time.sleep(0.005)

    def running(self) -> bool:
        if self._driver is None:
            return False
        self._listen()
        if self._driver.process.exitcode is None:
            return True
        self._listen()
        code = self._driver.process.exitcode
        self._leave()
        if self._killed or self._stopped is not None:
            return False
        raise EngineError(f"the driver ended by itself, with {code}; see its log")

    def kill(self, victim: Victim, moment: Moment) -> None:
        if self._driver is None:
            return
        if victim == "driver":
            self._killed = True
            if moment == "now":
                self._kill_all()
            else:
                self._tell("die", moment)
        elif victim == "worker" and moment != "now":
            self._tell("worker", moment)
        else:
            self._signal(_ROLES[victim], signal.SIGKILL)

    def freeze(self, victim: Victim) -> object:
        role = _ROLES[victim]
        return self._living.get(role) if self._signal(role, signal.SIGSTOP) else None

    def thaw(self, frozen: object) -> None:
        assert isinstance(frozen, int)
        with contextlib.suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGCONT)

    def stand_still(self, seconds: float) -> None:
        self._tell("still", seconds / SPEED)

    def speculate(self, tasks: int) -> None:
        self._tell("speculate", tasks)

    def stop(self) -> list[str]:
        assert self._driver is not None
        self._tell("stop")
        deadline = time.monotonic() + _STOP_S
        while self.running():
            if time.monotonic() > deadline:
                raise EngineError(f"it did not stop within {_STOP_S:g} s: {self.states()}")
            time.sleep(0.01)
        left = list(self._stopped or ())
        gone_by = time.monotonic() + 5.0
        while (living := self._still_there()) and time.monotonic() < gone_by:
            time.sleep(0.02)
        return left + living

    def close(self) -> None:
        if self._driver is not None:
            self._kill_all()
            self._leave()

    # --- looking --------------------------------------------------------------------------------

    def pinned(self) -> bool:
        return (self._job.folder / "query" / "offsets" / "0").exists()

    def delivered(self) -> int:
        return sum(self._rows.values())

    def sample(self) -> None:
        for role, pid in self._living.items():
            with contextlib.suppress(psutil.Error):
                rss = psutil.Process(pid).memory_info().rss
                self.tally.rss[role] = max(rss, self.tally.rss.get(role, 0))

    def observed(self) -> Observed:
        folder = self._job.folder
        batches = {}
        out = folder / "query" / "out"
        for path in out.iterdir() if out.exists() else ():
            batches[int(path.name)] = [
                Delivered(shard, int(number), read_head(bytes.fromhex(head)) if head else None)
                for shard, number, _, head, *_ in orjson.loads(path.read_bytes())
            ]
        attempts = [Attempt(*line) for line in read_lines(folder / ATTEMPTS_FILE)]
        return Observed(batches, (), attempts, list(recorded_calls(folder)))

    def states(self) -> str:
        """The counters of the newest source; every process writes its stacks into its log."""
        for role in tuple(self._living):
            self._signal(role, signal.SIGUSR1)
        time.sleep(0.2)
        folder = self._job.folder / "statistics"
        files = sorted(folder.glob("source-*.json"), key=lambda p: p.stat().st_mtime)
        counters = files[-1].read_text() if files else "no counters"
        return f"{self.delivered()} records out; processes {self._living}; {counters}"

    # --- inside ---------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self._driver is not None
        with contextlib.suppress(EOFError, OSError):
            while self._driver.channel.poll():
                self._heard(*self._driver.channel.recv())

    def _heard(self, what: str, *rest: object) -> None:
        match what, *rest:
            case "pid", str(role), int(pid):
                self._note(role, pid)
            case "output", int(batch), int(rows):
                self._rows[batch] = rows
            case "rerun", _:
                self.tally.replays += 1
            case "task failed", str(why):
                self._count(f"task: {why.partition(':')[0]}")
                if "InternalError" in why or "DataLossError" in why:
                    raise EngineError(f"a task failed: {why}")
            case "restarted", str(why):
                self._count(why.partition(":")[0])
            case "failed", str(kind), bool(retryable), bool(opened), str(text):
                self._count(f"source failed at {'work' if opened else 'start'}: {kind}")
                self._failures += 1
                # A query that cannot start fails at once, also of a senseless answer.
                passes = not opened and (retryable or kind == "ProtocolError")
                if not passes or self._failures > _MOST_FAILURES:
                    raise EngineError(f"the query failed: {text}")
            case "fatal", str(why):
                raise EngineError(why)
            case "stopped", list(left):
                self._stopped = [str(item) for item in left]

    def _count(self, why: str) -> None:
        self.tally.restarts[why] = self.tally.restarts.get(why, 0) + 1

    def _note(self, role: str, pid: int) -> None:
        self._living[role] = pid
        self.tally.pids[pid] = role

    def _tell(self, *what: object) -> None:
        if self._driver is not None:
            with contextlib.suppress(OSError):
                self._driver.channel.send(what)

    def _signal(self, role: str, number: int) -> bool:
        pid = self._living.get(role)
        try:
            # Not one that has got the number of one of ours meanwhile.
            if pid is None or self._driver is None:
                return False
            if pid != self._driver.pid and psutil.Process(pid).ppid() != self._driver.pid:
                return False
            os.kill(pid, number)
        except (psutil.Error, ProcessLookupError):
            return False
        return True

    def _kill_all(self) -> None:
        assert self._driver is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._driver.pid, signal.SIGKILL)
        self._driver.process.join(10)

    def _leave(self) -> None:
        assert self._driver is not None
        self._driver.process.join(10)
        self._driver.channel.close()
        self._driver = None

    def _still_there(self) -> list[str]:
        return [f"process {pid} {role}" for pid, role in self.tally.pids.items() if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
