"""Plays the JVM: offset and commit logs on disk, a source process, two workers, tasks, retries."""

from __future__ import annotations

import collections
import hashlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import orjson

from integration.chaos.engine.processes import Child, spawn_child
from integration.chaos.engine.recording import AppendedLines, read_lines
from integration.chaos.engine.source import serve_source
from integration.chaos.engine.worker import Rows, work
from integration.chaos.schedule import Moment
from kinesis_ds.plan.offsets import Offset, SourceOffset, decode_offset, encode_offset
from kinesis_ds.testing import ScaledClock
from tests.support.fast import SPEED
from tests.support.micro_batches import MicroBatches

logger = logging.getLogger(__name__)

WORKERS = 2
ATTEMPTS = 4  # spark.task.maxFailures
ATTEMPTS_FILE = "attempts.jsonl"
RUNS_FILE = "runs.jsonl"
RESULTS_FILE = "results.jsonl"
_IDLE_S = 0.004
_TASK_ENDS_S = 1.0


class SourceDied(Exception):  # noqa: N818  # it was killed, which is no error
    """The process of the source died; the query fails and is started again."""


class SourceFailed(Exception):  # noqa: N818
    """The source reported an error."""

    def __init__(self, kind: str, retryable: bool, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.retryable = retryable


class TaskFailed(Exception):  # noqa: N818
    """A task failed as often as Spark allows."""


class Stopped(Exception):  # noqa: N818
    """The conductor wants the query to stop."""


@dataclass
class Orders:
    """The orders of the conductor that are not carried out yet."""

    dies_at: Moment | None = None
    worker_dies: collections.deque[Moment] = field(default_factory=collections.deque)
    still_s: float = 0.0
    speculative: int = 0


class Control:
    """The pipe to the conductor."""

    def __init__(self, channel: connection.Connection) -> None:
        self.channel = channel
        self.orders = Orders()

    def say(self, *what: object) -> None:
        self.channel.send(what)

    def listen(self) -> None:
        """Read the orders that have come.

        Raises:
            Stopped: The order was to stop.
        """
        while self.channel.poll():
            what, *arguments = self.channel.recv()
            match what:
                case "die":
                    self.orders.dies_at = arguments[0]
                case "worker":
                    self.orders.worker_dies.append(arguments[0])
                case "still":
                    self.orders.still_s += arguments[0]
                case "speculate":
                    self.orders.speculative += arguments[0]
                case _:
                    raise Stopped

    def reached(self, moment: Moment) -> None:
        """Kill all processes at once if that was ordered for this point."""
        if self.orders.dies_at == moment:
            os.killpg(0, signal.SIGKILL)


class RemoteSource:
    """The source as the driver sees it: a process at the other end of a pipe."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.opened = False

    def ask(self, *what: object) -> Any:
        try:
            self._child.channel.send(what)
            kind, *answer = self._child.channel.recv()
        except (EOFError, OSError):
            raise SourceDied from None
        if kind == "error":
            raise SourceFailed(*answer)
        return answer[0]

    def latest(self, start: Offset | None) -> Offset:
        found = decode_offset(
            self.ask("latestOffset", None if start is None else encode_offset(start), None)
        )
        # The first answer of a new query only pins its start; the agent comes after it.
        self.opened = isinstance(start, SourceOffset)
        return found

    def plan(self, start: Offset, end: Offset) -> list[Any]:
        planned: list[Any] = self.ask("partitions", encode_offset(start), encode_offset(end))
        return planned

    def commit(self, end: Offset) -> None:
        self.ask("commit", encode_offset(end))

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("statistics")
        return found

    def close(self) -> None:
        self._child.kill()


@dataclass
class Task:
    """One task of a batch, over all its attempts."""

    name: str
    partition: bytes
    failures: int = 0
    made: int = 0
    copies: int = 1
    rows: Rows = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Workers:
    """The worker processes, and the tasks that they are given."""

    def __init__(self, folder: Path, sink: Mapping[str, str], control: Control) -> None:
        self._folder = folder
        self._sink = sink
        self._control = control
        self._children = [self._new(number) for number in range(WORKERS)]
        self._busy: dict[int, Task] = {}
        self._attempts = AppendedLines(folder / ATTEMPTS_FILE)
        self._tried = {line[1] for line in read_lines(folder / ATTEMPTS_FILE)}
        self._results = AppendedLines(folder / RESULTS_FILE)
        self._digests = {
            (batch, task): digest for batch, task, digest in read_lines(folder / RESULTS_FILE)
        }

    def run(self, run: int, batch: int, reader: bytes, tasks: list[Task]) -> Rows:
        """Run all tasks of a batch until each has succeeded; return their rows in order.

        Raises:
            TaskFailed: A task failed too often.
            AssertionError: Two copies of a task, or a rerun, returned different rows.
        """
        rerun = batch in self._tried
        if rerun:
            self._control.say("rerun", batch)
        self._tried.add(batch)
        due: collections.deque[Task] = collections.deque()
        for task in tasks:
            if self._control.orders.speculative:
                self._control.orders.speculative -= 1
                task.copies = 2
            due.extend([task] * task.copies)
        busy = self._busy
        for number in tuple(busy):  # tasks of a run that failed
            self._replace(number)
            del busy[number]
        while due or busy:
            for number in range(WORKERS):
                if due and number not in busy:
                    task = due.popleft()
                    tag = self._note(run, batch, task, rerun=rerun)
                    if self._give(number, reader, task, tag):
                        busy[number] = task
                    else:
                        self._failed(task, "its worker was gone", due)
            if busy and len(busy) + len(due) == len(tasks):
                self._control.reached("running")
            for number in self._ready(busy):
                self._take(number, busy.pop(number), batch, due)
        return [row for task in tasks for row in task.rows]

    def _take(self, number: int, task: Task, batch: int, due: collections.deque[Task]) -> None:
        """Return the answer of a worker."""
        try:
            kind, *answer = self._children[number].channel.recv()
        except (EOFError, OSError):
            self._replace(number)
            self._failed(task, "its worker died", due)
            return
        if kind != "done":
            self._failed(task, f"{answer[0]}: {answer[2]}", due)
            return
        task.rows = answer[0]
        digest = hashlib.sha256(orjson.dumps(task.rows)).hexdigest()
        # A copy of a task, and one of an earlier run of the batch, must have given the same rows.
        former = self._digests.setdefault((batch, task.name), digest)
        assert former == digest, (
            f"batch {batch}: task {task.name} gave other records when it ran again: "
            f"{len(task.rows)}, {task.rows[:2]}"
        )
        self._results.add(batch, task.name, digest)

    def stop(self) -> list[str]:
        """Stop the workers cleanly; return what they had not released."""
        left: list[str] = []
        for number, child in enumerate(self._children):
            try:
                if number in self._busy:
                    if not child.channel.poll(_TASK_ENDS_S):
                        # As Spark ends a task of a query that is stopped.
                        logger.info("a task is killed at the end role=%s", child.role)
                        child.kill()
                        continue
                    child.channel.recv()
                child.channel.send(("stop",))
                left += child.channel.recv()
            except (EOFError, OSError):
                continue  # killed a moment ago
            child.process.join(10)
        return left

    def _new(self, number: int) -> Child:
        child = spawn_child(f"worker-{number}", work, self._folder, self._folder, self._sink)
        self._control.say("pid", child.role, child.pid)
        return child

    def _replace(self, number: int) -> None:
        self._children[number].kill()
        self._children[number] = self._new(number)

    def _ready(self, busy: dict[int, Task]) -> list[int]:
        channels = {self._children[number].channel: number for number in busy}
        found = connection.wait([*channels, self._control.channel], 1.0)
        if self._control.channel in found:
            self._control.listen()
        return [channels[c] for c in found if c in channels]

    def _note(self, run: int, batch: int, task: Task, *, rerun: bool) -> str:
        """Record an attempt before it is made; return its tag."""
        tag = f"{run}.{batch}.{task.name}.{task.made}"
        reason = "rerun" if rerun else "first"
        if task.made:
            reason = "retry" if task.failures else "speculation"
        task.made += 1
        self._attempts.add(tag, batch, task.name, reason)
        return tag

    def _give(self, number: int, reader: bytes, task: Task, tag: str) -> bool:
        orders = self._control.orders
        dies = orders.worker_dies.popleft() if orders.worker_dies else None
        try:
            self._children[number].channel.send(("task", reader, task.partition, tag, dies))
        except OSError:
            self._replace(number)
            return False
        return True

    def _failed(self, task: Task, why: str, due: collections.deque[Task]) -> None:
        logger.info("task failed task=%s why=%s", task.name, why)
        self._control.say("task failed", why)
        task.failures += 1
        task.errors.append(why)
        if task.failures >= ATTEMPTS:
            raise TaskFailed(" | ".join(task.errors))
        due.append(task)


class RemoteQuery(MicroBatches):
    """The query, with its source and its tasks in other processes."""

    def __init__(
        self,
        options: Mapping[str, str],
        folder: Path,
        source: RemoteSource,
        workers: Workers,
        control: Control,
        run: int,
    ) -> None:
        super().__init__(options, folder, ScaledClock(SPEED), source)
        self._reader = source.ask("reader")
        self._workers = workers
        self._control = control
        self._number = run

    def _read(self, batch: int, planned: list[Any]) -> Rows:
        tasks = [Task(name, partition) for name, partition in planned]
        return self._workers.run(self._number, batch, self._reader, tasks)

    def _write(self, kind: str, batch: int, value: object) -> None:
        super()._write(kind, batch, value)
        if kind == "out":
            assert isinstance(value, list)
            self._control.say("output", batch, len(value))
        moments: dict[str, Moment] = {"offsets": "logged", "out": "output", "commits": "committed"}
        self._control.reached(moments[kind])
        self._control.listen()


def drive(
    channel: connection.Connection,
    folder: Path,
    source: Mapping[str, str],
    sink: Mapping[str, str],
) -> None:
    """Run the query, again and again from its checkpoint, until it is told to stop."""
    control = Control(channel)
    workers = Workers(folder, sink, control)
    try:
        while True:
            _run_once(folder, source, workers, control)
    except Stopped:
        pass
    except AssertionError as exc:
        logger.exception("the query gave other records")
        control.say("fatal", str(exc))
        return
    control.say("stopped", workers.stop() + _stopped_sources)


_stopped_sources: list[str] = []


def _run_once(folder: Path, options: Mapping[str, str], workers: Workers, control: Control) -> None:
    runs = AppendedLines(folder / RUNS_FILE)
    run = len(read_lines(folder / RUNS_FILE))
    runs.add(run, os.getpid())
    child = spawn_child("source", serve_source, folder, options)
    control.say("pid", child.role, child.pid)
    source = RemoteSource(child)
    try:
        query = RemoteQuery(options, folder / "query", source, workers, control, run)
        _loop(query, control)
    except Stopped:
        _stopped_sources.extend(_stop_source(source, child))
        raise
    except SourceDied:
        control.say("restarted", "agent died")
    except SourceFailed as exc:
        control.say("failed", exc.kind, exc.retryable, source.opened, str(exc))
        time.sleep(0.05)
    except TaskFailed as exc:
        control.say("restarted", f"task failed: {exc}")
    child.kill()


def _stop_source(source: RemoteSource, child: Child) -> list[str]:
    try:
        left: list[str] = source.ask("stop")
    except SourceDied:
        return []
    child.process.join(10)
    return left + (["the source's process did not end"] if child.process.is_alive() else [])


def _loop(query: RemoteQuery, control: Control) -> None:
    step: Callable[[], bool] = query.step
    while True:
        control.listen()
        if control.orders.still_s:
            still_s, control.orders.still_s = control.orders.still_s, 0.0
            time.sleep(still_s)
        if not step():
            time.sleep(_IDLE_S)
