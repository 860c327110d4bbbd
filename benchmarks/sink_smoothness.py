"""Throughput through several micro-batches, by 250 ms, against a stream with the limits of AWS.

    python -m benchmarks.sink_smoothness [--quick] [--json FILE] [--chart FILE]

Two producers write the same micro-batches to the same double, one after the other:

* **kinesis_ds**: its sink, one task a micro-batch.
* **flushed at commits**: an unbounded queue that is only emptied at each commit, in the way of
  FLINK-9374. It is a model of ours, on botocore and four threads. It is not Flink, nor the KPL.

*Taken* is what the producer takes from its input, which is never short of rows; that is what the
graph of FLINK-9374 shows. *Stored* is what arrives in the stream. A gap is a quarter of a second
without any. At the end of a micro-batch all that is in flight has to be stored before more may be
taken, so the bound on it divided by the rate of the stream is how long taking stops at a commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import botocore.session

from benchmarks.report import Report, arguments, table
from benchmarks.sinking import STREAM, arrow_batches, double, write

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from kinesis_ds.testing import KinesisServer

BIN_S = 0.25
# Between two micro-batches, for what Spark does there.
COMMIT_S = 0.05
THREADS = 4
SHARDS = 4
# Micro-batches, rows of each, and the bound of our sink (maxInFlightRecords); then with --quick.
FULL = (3, 24_000, 4_000)
QUICK = (2, 1_500, 500)
ROW_BYTES = 200


@dataclass
class Run:
    """The work of one producer. Times in seconds since its start.

    Attributes:
        taken, stored: A time for each row.
        most_waiting: Rows taken and not stored, at most.
        commits: When each micro-batch ended.
    """

    taken: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.commits[-1]

    @property
    def most_waiting(self) -> int:
        events = sorted([(at, 1) for at in self.taken] + [(at, -1) for at in self.stored])
        waiting = most = 0
        for _, change in events:
            waiting += change
            most = max(most, waiting)
        return most

    def by_bin(self, times: list[float]) -> list[int]:
        """How many in each quarter of a second; the last one, which is not whole, is left out."""
        counts = [0] * max(1, int(self.seconds / BIN_S))
        for at in times:
            if int(at / BIN_S) < len(counts):
                counts[int(at / BIN_S)] += 1
        return counts

    def gaps(self, times: list[float]) -> int:
        return sum(n == 0 for n in self.by_bin(times))

    def longest_pause(self, times: list[float]) -> float:
        ordered = [0.0, *sorted(times), self.seconds]
        return max(after - before for before, after in pairwise(ordered))


class FlushedAtCommits:
    """The model: takes all it is given at once, and a commit waits until its queue is empty."""

    def __init__(self, kinesis: KinesisServer) -> None:
        self._client = botocore.session.get_session().create_client(
            "kinesis",
            region_name=kinesis.settings.region,
            endpoint_url=kinesis.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  # of the double
        )
        self._queue: deque[dict[str, Any]] = deque()
        self._left = 0
        self._changed = threading.Condition()
        self._ended = False
        self._pool = ThreadPoolExecutor(THREADS)
        self._senders = [self._pool.submit(self._send) for _ in range(THREADS)]

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            keys = batch.column("partitionKey").to_pylist()
            values = batch.column("data").to_pylist()
            with self._changed:
                for key, value in zip(keys, values, strict=True):
                    self._queue.append({"Data": value, "PartitionKey": key})
                self._left += len(values)
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._left)

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for sender in self._senders:
            sender.result()
        self._pool.shutdown()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended)
                if self._ended:
                    return
                entries = [self._queue.popleft() for _ in range(min(500, len(self._queue)))]
            answer = self._client.put_records(StreamName=STREAM, Records=entries)
            failed = [
                entry
                for entry, result in zip(entries, answer["Records"], strict=True)
                if "ErrorCode" in result
            ]
            with self._changed:
                self._queue.extendleft(reversed(failed))
                self._left -= len(entries) - len(failed)
                self._changed.notify_all()
                if failed:
                    self._changed.wait(0.1)


def measure(
    shards: int,
    batches: int,
    rows: int,
    size: int,
    make: Callable[[KinesisServer], tuple[Callable[[Iterable[pa.RecordBatch]], object], Any]],
) -> Run:
    """Let a producer write so many micro-batches of so many rows."""
    run = Run()
    with double(shards) as kinesis:
        produce, close = make(kinesis)
        produce(arrow_batches(1, size, str))  # connected, and warm
        first = len(kinesis.records(STREAM))
        began = time.time()

        def noted(items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for item in items:
                run.taken += [time.time() - began] * item.num_rows
                yield item

        for _ in range(batches):
            produce(noted(arrow_batches(rows, size, str)))
            run.commits.append(time.time() - began)
            time.sleep(COMMIT_S)
        close()
        stored = sorted(record.arrived for record in kinesis.records(STREAM))
        run.stored = [max(0.0, at - began) for at in stored[first:]]
    assert len(run.stored) == len(run.taken) == rows * batches
    return run


def draw(runs: dict[str, Run], shards: int) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots(len(runs), 1, sharex=True)
        for ax, (name, run) in zip(axes, runs.items(), strict=True):
            for what, times in (("taken", run.taken), ("stored", run.stored)):
                counts = [n / BIN_S for n in run.by_bin(times)]
                ax.step([i * BIN_S for i in range(len(counts))], counts, where="post", label=what)
            for commit in run.commits:
                ax.axvline(commit, color="gray", linewidth=0.5, linestyle=":")
            ax.set_title(f"{name}: {run.gaps(run.taken)} gaps of {BIN_S:g} s in what is taken")
            # What is taken into an unbounded queue would make all else a line at the bottom.
            ax.set_ylim(0, shards * 1000 * 4)
            ax.set_ylabel("rows a second")
            ax.legend(loc="upper right")
        axes[-1].set_xlabel("seconds (dotted: commits)")

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("sink_smoothness", args)
    shards = 1 if args.quick else SHARDS
    batches, rows, window = QUICK if args.quick else FULL
    options = {"maxInFlightRecords": str(window)}

    def ours(kinesis: KinesisServer) -> Any:
        return (lambda batches: write(kinesis, batches, options)), lambda: None

    def model(kinesis: KinesisServer) -> Any:
        producer = FlushedAtCommits(kinesis)
        return producer.write, producer.close

    makers = {"flushed at commits (a model)": model, "kinesis_ds": ours}
    runs = {name: measure(shards, batches, rows, ROW_BYTES, make) for name, make in makers.items()}
    report.rows = [
        {
            "": name,
            "seconds": run.seconds,
            "rows/s": len(run.stored) / run.seconds,
            "gaps, taken": run.gaps(run.taken),
            "gaps, stored": run.gaps(run.stored),
            "longest, taken": run.longest_pause(run.taken),
            "longest, stored": run.longest_pause(run.stored),
            "most waiting": run.most_waiting,
        }
        for name, run in runs.items()
    ]
    print(
        f"{batches} micro-batches of {rows} rows of {ROW_BYTES} bytes, {shards} shards of 1,000 "
        f"records a second; our bound: {window} rows. Gaps of {BIN_S * 1000:g} ms, pauses in s."
    )
    formats = {"seconds": ".1f", "rows/s": ".0f", "longest, taken": ".2f", "longest, stored": ".2f"}
    print(table(report.rows, formats))
    before, after = runs.values()
    print(
        "kinesis_ds against the model: "
        f"rows/s {before.seconds / after.seconds:.2f}, "
        f"gaps in what is taken {after.gaps(after.taken)} to {before.gaps(before.taken)}, "
        f"rows waiting {after.most_waiting / before.most_waiting:.2f}"
    )
    report.raw["by quarter of a second"] = {
        name: {"taken": run.by_bin(run.taken), "stored": run.by_bin(run.stored)}
        for name, run in runs.items()
    }
    report.finish(draw(runs, shards))


if __name__ == "__main__":
    main()
