"""Run Spark queries into the ``noop`` sink, and measure what they cost."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[1]
JVM, AGENT, WORKERS = "JVM", "agent", "workers"
# The process of the stream reader, and those that an agent may run as.
_AGENT_MODULES = ("python_streaming_source_runner", "kinesis_ds.agent")
# A look costs the driver a call into the JVM; a batch takes longer than this in any case.
_LOOK_S = 0.02


@contextlib.contextmanager
def spark(cores: int = 2, **options: str) -> Iterator[SparkSession]:
    """One JVM with ``local[cores]``, without UI and log, and its Python workers.

    The workers are given the environment of this process as it is now.

    Args:
        options: Further settings, ``_`` for ``.`` in their names.
    """
    # The data sources of the benchmarks are imported by workers, from this checkout.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
    )
    for name, value in options.items():
        builder = builder.config(name.replace("_", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


class Cpu:
    """CPU seconds, by kind of process, of the JVM of a session and of all that it started.

    ``agent`` is the process of the stream reader on the driver, ``workers`` are those of the tasks.
    This process is not counted: a user's driver program does nothing while a query runs.
    """

    def __init__(self, session: SparkSession) -> None:
        # The command that this process has started became the JVM.
        self._jvm = psutil.Process(session.sparkContext._gateway.proc.pid)
        self._kinds: dict[int, str] = {}
        self._seen: dict[tuple[str, int], float] = {}

    def used(self) -> dict[str, float]:
        """Seconds so far, of processes that have ended too as far as they were seen."""
        for process in (self._jvm, *self._jvm.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                kind = self._kinds.get(process.pid) or self._kind(process)
                self._seen[kind, process.pid] = times.user + times.system
        total = dict.fromkeys((JVM, AGENT, WORKERS), 0.0)
        for (kind, _), seconds in self._seen.items():
            total[kind] += seconds
        return total

    def rss(self) -> dict[str, int]:
        """Bytes of memory that they have now, by kind. What they share is counted for each."""
        total = dict.fromkeys((JVM, AGENT, WORKERS), 0)
        for process in (self._jvm, *self._jvm.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                kind = self._kinds.get(process.pid) or self._kind(process)
                total[kind] += process.memory_info().rss
        return total

    def _kind(self, process: psutil.Process) -> str:
        kind = JVM
        if process.pid != self._jvm.pid:
            command = " ".join(process.cmdline())
            kind = AGENT if any(module in command for module in _AGENT_MODULES) else WORKERS
            if process.ppid() == self._jvm.pid and kind == WORKERS:
                # Between fork and exec it still looks like the JVM.
                return kind
        self._kinds[process.pid] = kind
        return kind


class MemoryWatch:
    """Looks ten times a second how much memory the processes of a session have, until closed.

    Attributes:
        peak: The most that was seen of each kind, in bytes.
    """

    def __init__(self, session: SparkSession) -> None:
        self._cpu = Cpu(session)
        self._over = threading.Event()
        self.peak = self._cpu.rss()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            now = self._cpu.rss()
            self.peak = {kind: max(most, now[kind]) for kind, most in self.peak.items()}


@dataclass(frozen=True)
class Ran:
    """A query, from the end of its first batch to the end of the one with the last record.

    Attributes:
        records, nbytes: How many came through in that time, and the bytes of their data.
        seconds: Of wall time.
        cpu: CPU seconds in that time by kind of process.
        batches: How many that had records.
    """

    records: int
    nbytes: int
    seconds: float
    cpu: Mapping[str, float]
    batches: int

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.nbytes / self.seconds / 1e6

    def cpu_per_gb(self, kind: str | None = None) -> float:
        """CPU seconds per GB of data; of one kind of process, or of all."""
        used = sum(self.cpu.values()) if kind is None else self.cpu[kind]
        return used / self.nbytes * 1e9


def run(
    session: SparkSession,
    source: str,
    options: Mapping[str, str],
    records: int,
    record_bytes: int,
    within_s: float = 600.0,
) -> Ran:
    """Stream so many records from a source to the ``noop`` sink; what that took.

    The first batch of the sources measured here holds nothing and ends before any record is asked
    for, so all work on the records lies behind it, and the start of the query before it.

    Raises:
        RuntimeError: They did not come, not in time, or others came.
    """
    meter = Cpu(session)
    with started(session, source, options) as query:
        deadline = time.monotonic() + within_s
        first = _first_batch(query, deadline)
        before = meter.used()
        through, seen = 0, first["batchId"]
        while through < records:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{through} of {records} records within {within_s:g}s")
            time.sleep(_LOOK_S)
            raise_failure(query)
            last = query.lastProgress
            if last is not None and last["batchId"] != seen:
                seen = last["batchId"]
                done = query.recentProgress
                through = sum(p["numInputRows"] for p in done)
        after = meter.used()
    if through != records:
        raise RuntimeError(f"{through} records came, {records} were sent")
    with_records = [p for p in done if p["numInputRows"]]
    return Ran(
        records,
        records * record_bytes,
        ended(with_records[-1]) - ended(first),
        {kind: after[kind] - before[kind] for kind in after},
        len(with_records),
    )


@contextlib.contextmanager
def started(
    session: SparkSession, source: str, options: Mapping[str, str], trigger: str | None = None
) -> Iterator[StreamingQuery]:
    """A query from a source to the ``noop`` sink, with a checkpoint of its own."""
    with tempfile.TemporaryDirectory(prefix="kinesis-bench-") as checkpoint:
        writing = session.readStream.format(source).options(**options).load().writeStream
        if trigger is not None:
            writing = writing.trigger(processingTime=trigger)
        query = writing.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def raise_failure(query: StreamingQuery) -> None:
    """Raise why a query ended, if it did."""
    if not query.isActive:
        failure = query.exception()
        raise failure if failure is not None else RuntimeError("the query has ended")


def ended(progress: Any) -> float:
    """When a batch ended, in seconds since the epoch."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return began + progress["durationMs"]["triggerExecution"] / 1000


def _first_batch(query: StreamingQuery, deadline: float) -> Any:
    while (first := query.lastProgress) is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the query did not begin")
        raise_failure(query)
        time.sleep(_LOOK_S)
    if first["batchId"] or first["numInputRows"]:
        first = query.recentProgress[0]
    return first
