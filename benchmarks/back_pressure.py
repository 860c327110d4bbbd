"""A consumer that is slowed down and let go again, and how the source follows it.

    python -m benchmarks.back_pressure [--quick] [--json FILE] [--chart FILE]

The experiment with which Flink's back-pressure was shown: a real query, on 16 shards that the
double sends at wire speed and with a small ``fetchBufferSize``, into a sink that takes its time. It
first runs as fast as it can; then at 100%, 60%, 30%, 100%, 30% and 100% of that. The sink takes
tokens: a batch is done once as many have come as it has records.

*sink* is what batches were done, spread over the time each took; *source* what the agent received,
from the counters in its ``diagnosticsDirectory``; *buffer* and *memory* are the agent's process,
each second. *source to sink* is the ratio to what the sink takes, which is what could be received
at most. Every record holds its number, and each task reports which came: a record that is missing,
or comes twice or out of order, is counted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks.queries import spark
from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import served

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SHARDS = 16
RECORD_BYTES = 1000
FETCH_BUFFER = "16mb"
SHARES = (1.0, 0.6, 0.3, 1.0, 0.3, 1.0)
# Of each phase: what was planned before it is still being done then.
_SETTLES_S = 3.0
_TICK_S = 0.02
# The buffer is given back a batch at a time and filled at once, so the source comes in bursts: the
# longest batch is shorter than this.
_REFILLED_S = 6
_DIGITS = 12
# A shard, its first record and its last in a batch, and how many between them are missing.
Run = tuple[str, int, int, int]
_START_WITHIN_S = 90.0


@dataclass
class Phase:
    """Some seconds at one share of full speed. Times by the wall clock."""

    share: float
    began: float
    ended: float = 0.0


@dataclass
class Sample:
    """Counters that the agent wrote about itself.

    Attributes:
        records: Received so far, of all shards.
        held: Bytes in its buffers.
        rss: Of its process.
    """

    at: float
    records: int
    held: int
    rss: int


@dataclass
class Sink:
    """Takes batches as fast as it is told, and keeps count of each shard's records.

    Attributes:
        into: The file that tells what a batch held.
        rate: Records a second; None: as fast as they come.
        taken: By batch: when it began and was done, and its records.
        next: By shard, the number of the record that is to come.
        lost, repeated: How many records were passed over, and came again.
    """

    into: str
    rate: float | None = None
    taken: list[tuple[float, float, int]] = field(default_factory=list)
    next: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    repeated: int = 0
    _last: float = 0.0

    def take(self, frame: DataFrame, number: int) -> None:
        """``foreachBatch``."""
        del number
        began = self._last or time.time()
        frame.write.format("counting").option("into", self.into).mode("append").save()
        records = 0
        for shard, first, last, gaps in json.loads(Path(self.into).read_bytes()):
            expected = self.next.get(shard, 0)
            self.lost += max(0, first - expected) + gaps
            self.repeated += max(0, expected - first)
            self.next[shard] = last + 1
            records += last + 1 - first - gaps
        tokens, at = 0.0, began
        while self.rate is not None and tokens < records:
            now = time.time()
            tokens += (now - at) * self.rate
            at = now
            time.sleep(_TICK_S)
        self._last = time.time()
        if records:
            self.taken.append((began, self._last, records))

    def between(self, began: float, ended: float) -> float:
        """Records that were done in a time, each batch spread evenly over its own."""
        found = 0.0
        for first, last, records in tuple(self.taken):
            shared = min(last, ended) - max(first, began)
            if shared > 0:
                found += records * shared / (last - first)
        return found


class CountingSink(DataSource):
    """Looks at the number of each record, and leaves what it saw in the file ``into``."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite
        return _Counter(self.options["into"])


@dataclass
class _Counted(WriterCommitMessage):
    runs: list[Run]


class _Counter(DataSourceArrowWriter):
    def __init__(self, into: str) -> None:
        self._into = into

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Counted:
        return _Counted([run for batch in iterator for run in _runs(batch)])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [run for message in messages for run in message.runs]  # type: ignore[union-attr]
        Path(self._into).write_text(json.dumps(found), encoding="utf-8")


def _runs(batch: pa.RecordBatch) -> Iterator[Run]:
    """Which records of which shards a batch holds."""
    text = pc.utf8_rtrim(pc.cast(pc.binary_slice(batch["data"], 0, _DIGITS), pa.string()), ".")
    numbers = pc.cast(text, pa.int64()).to_numpy(zero_copy_only=False)
    shards = batch["shardId"].dictionary_encode()
    codes = shards.indices.to_numpy()
    for code, shard in enumerate(shards.dictionary.to_pylist()):
        mine = numbers[codes == code]
        steps = np.diff(mine)
        if (steps < 1).any():
            raise AssertionError(f"{shard}: records repeated or out of order")
        yield shard, int(mine[0]), int(mine[-1]), int((steps - 1).sum())


def main(argv: Sequence[str] | None = None) -> None:
    report = Report("back_pressure", arguments(__doc__, argv))
    quick = report.args.quick
    warm_s, full_s, phase_s, megabytes = (0, 1, 3, 24) if quick else (4, 8, 10, 480)
    shares = SHARES[1:3] if quick else SHARES
    phases: list[Phase] = []
    replay = f"--replay=orders:{SHARDS}:{megabytes}:{RECORD_BYTES}"
    with served("--no-limits", replay) as double, spark() as session, _folder() as folder:
        session.dataSource.register(CountingSink)
        sink = Sink(str(folder / "counted"))
        watch = Watch(folder / "counters")
        query = (
            session.readStream.format("kinesis")
            .options(
                **double.options("orders"),
                initialPosition="trim_horizon",
                fetchBufferSize=FETCH_BUFFER,
                diagnosticsDirectory=str(folder / "counters"),
            )
            .load()
            .writeStream.foreachBatch(sink.take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        try:
            deadline = time.monotonic() + _START_WITHIN_S
            while not sink.taken:
                if not query.isActive or time.monotonic() > deadline:
                    raise RuntimeError(f"the query does not run: {query.exception()}")
                time.sleep(0.1)
            time.sleep(warm_s)
            began, before = sink.taken[-1][1], len(sink.taken)
            time.sleep(full_s)
            while len(sink.taken) < before + 2 and query.isActive:
                time.sleep(0.1)
            full = sink.between(began, sink.taken[-1][1]) / (sink.taken[-1][1] - began)
            for share in shares:
                sink.rate = full * share
                phases.append(Phase(share, time.time()))
                time.sleep(phase_s)
                phases[-1].ended = time.time()
            sink.rate = None
        finally:
            query.stop()
            watch.close()
    if not quick and min(sink.next.values()) >= megabytes * 1000 * 0.99:
        raise RuntimeError("the double had nothing left to send: give it more to replay")
    _tell(report, sink, phases, watch.samples, full)
    report.finish(lambda figure: _draw(figure, sink, phases, watch.samples))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="back-pressure-") as name:
        yield Path(name)


class Watch:
    """Reads what an agent writes about itself, until closed."""

    def __init__(self, folder: Path) -> None:
        self.samples: list[Sample] = []
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for path in self._folder.glob("source-*.json"):
                with contextlib.suppress(psutil.Error, OSError):
                    self._take(json.loads(path.read_bytes()))

    def _take(self, said: dict[str, Any]) -> None:
        if "pool" not in said or (self.samples and said["at"] <= self.samples[-1].at):
            return
        records = sum(shard["records"] for shard in said["shards"].values())
        rss = psutil.Process(said["pid"]).memory_info().rss
        self.samples.append(Sample(said["at"], records, said["pool"]["used_bytes"], rss))


def _tell(
    report: Report, sink: Sink, phases: Sequence[Phase], samples: Sequence[Sample], full: float
) -> None:
    begun, over = phases[0].began, phases[-1].ended
    mb = RECORD_BYTES / 1e6
    for phase in phases:
        inside = [s for s in samples if phase.began + _SETTLES_S <= s.at <= phase.ended]
        if len(inside) < 2:
            continue
        first, last = inside[0], inside[-1]
        taken = sink.between(first.at, last.at) * mb / (last.at - first.at)
        received = (last.records - first.records) * mb / (last.at - first.at)
        report.rows.append(
            {
                "share": phase.share,
                "wanted MB/s": full * phase.share * mb,
                "sink MB/s": taken,
                "source MB/s": received,
                "source to sink": received / taken if taken else None,
                "buffer MB": statistics.median(s.held for s in inside) / 1e6,
                "memory MB": statistics.median(s.rss for s in inside) / 1e6,
            }
        )
    steady = [s for s in samples if begun <= s.at <= over]
    rates = _rates(sink, steady, over=_REFILLED_S)
    agreement = _correlation([r[1] for r in rates], [r[2] for r in rates])
    flat = max(s.rss for s in steady) / min(s.rss for s in steady) if steady else math.inf
    records = sum(sink.next.values())
    print(f"{SHARDS} shards, fetchBufferSize {FETCH_BUFFER}, full speed {full * mb:.1f} MB/s")
    formats = {"share": ".0%", "source to sink": ".2f", **dict.fromkeys(
        ("wanted MB/s", "sink MB/s", "source MB/s", "buffer MB", "memory MB"), ".1f")}  # fmt: skip
    print(table(report.rows, formats))
    print(f"{records} records, {sink.lost} lost, {sink.repeated} repeated")
    assert sink.lost == sink.repeated == 0, f"{sink.lost} lost, {sink.repeated} repeated"
    assert records == sum(batch[2] for batch in sink.taken)
    report.bars += [
        Bar("records lost or repeated under back-pressure", 0, sink.lost + sink.repeated, True),
        Bar("memory of the agent's process, most to least", 1.2, flat, at_most=True),
        Bar(f"correlation of both rates over {_REFILLED_S} seconds", 0.9, agreement),
    ]
    report.raw = {
        "full MB/s": full * mb,
        "batches": [[b - begun, e - begun, n] for b, e, n in sink.taken],
        "samples": [[s.at - begun, s.records, s.held, s.rss] for s in samples],
    }


def _rates(
    sink: Sink, samples: Sequence[Sample], over: int = 2
) -> list[tuple[float, float, float]]:
    """Time, and MB a second of source and sink, each over the last seconds: a sample is one."""
    mb = RECORD_BYTES / 1e6
    found = []
    for first, last in zip(samples, samples[over:], strict=False):
        seconds = last.at - first.at
        received = (last.records - first.records) * mb / seconds
        found.append((last.at, received, sink.between(first.at, last.at) * mb / seconds))
    return found


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) < 3 or not np.std(one) or not np.std(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _draw(figure: Figure, sink: Sink, phases: Sequence[Phase], samples: Sequence[Sample]) -> None:
    begun = phases[0].began
    rates = _rates(sink, samples)
    top, bottom = figure.subplots(2, 1, sharex=True)
    at = [r[0] - begun for r in rates]
    top.plot(at, [r[1] for r in rates], label="source: received")
    top.plot(at, [r[2] for r in rates], label="sink: done")
    top.set_ylabel("MB/s")
    bottom.plot([s.at - begun for s in samples], [s.rss / 1e6 for s in samples], label="memory")
    bottom.plot([s.at - begun for s in samples], [s.held / 1e6 for s in samples], label="buffer")
    bottom.set(ylabel="MB of the agent's process", xlabel="seconds", ylim=(0, None))
    for axes in (top, bottom):
        for phase in phases:
            axes.axvline(phase.began - begun, color="gray", linestyle=":", linewidth=0.7)
        axes.legend()
    for phase in phases:
        where = (phase.began - begun + 0.3, top.get_ylim()[1])
        top.annotate(f"{phase.share:.0%}", where, va="top")


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
