"""Records of 10 MiB, the most that a stream can be set to take: through the source and the sink.

    python -m benchmarks.large_values [--quick] [--json FILE] [--chart FILE]

One JVM (``local[2]``), servers at wire speed in a process of their own. Reading is counted as in
``benchmarks.source_throughput``, with the same peers. Written is one DataFrame of such rows, made
by Spark, in batch writes: by our sink, by plain boto3 in ``foreachPartition`` (``put_records`` with
one record a call, which is all that a call can hold), and to ``noop``, which is what Spark costs.

CPU is that of all processes but the server. Memory is the most that the JVM, the agent's process
and the Python workers had at any tenth of a second, above what they had before; workers stay from
one query to the next, so a later one may look cheaper than it is alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.queries import AGENT, JVM, WORKERS, Cpu, MemoryWatch, spark
from benchmarks.report import Report, arguments, table
from benchmarks.serving import Served, served
from benchmarks.source_peers import Ceiling, PlainFanOut, client_at
from benchmarks.source_throughput import Bench, Load
from kinesis_ds import KinesisDataSource
from kinesis_ds.limits import MIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, Row, SparkSession

READ, SWALLOWED = "read", "written"
# Of the data; the key counts too when it is written.
RECORD_BYTES = 10 * MIB
KEY_BYTES = 36
ROWS_A_TASK = 4


@dataclass(frozen=True)
class Plan:
    """How many records of each shard, of four, are read, and how many are written; and whether
    everything is done once before.
    """

    read: int
    written: int
    shards: int = 4
    warm: bool = True


FULL = Plan(read=5, written=16)
QUICK = Plan(read=1, written=2, warm=False)


def measure(report: Report, plan: Plan) -> None:
    """Fill the report's rows: one a way to read or write."""
    load = Load(READ, plan.shards, RECORD_BYTES, plan.read, 1)
    streams = ("--replay", load.argument, "--swallow", SWALLOWED)
    with served("--no-limits", *streams) as server, spark() as session:
        for source in (Ceiling, PlainFanOut, KinesisDataSource):
            session.dataSource.register(source)
        bench = Bench(session, server)
        ways = {
            "kinesis_ds": bench.ours,
            "ceiling": bench.ceiling,
            "plain fan-out": bench.fan_out,
        }
        if plan.warm:
            # With all of it: the JVM has not compiled what it needs after one record.
            for way in ways.values():
                way(load)
        for name, way in ways.items():
            with _memory(session) as memory:
                ran = way(load)
            _note(report, "read", name, ran.nbytes, ran.seconds, sum(ran.cpu.values()), memory)
        _writes(report, session, server, plan)


def _writes(report: Report, session: SparkSession, server: Served, plan: Plan) -> None:
    kinesis = client_at(server.endpoint)
    found = kinesis.describe_stream_summary(StreamName=SWALLOWED)["StreamDescriptionSummary"]
    kinesis.update_max_record_size(
        StreamARN=found["StreamARN"], MaxRecordSizeInKiB=RECORD_BYTES // 1024
    )
    time.sleep(1)  # it is UPDATING, and soon done
    endpoint, options = server.endpoint, server.options(SWALLOWED)
    options.pop("transport")

    def boto3(frame: DataFrame) -> None:
        frame.foreachPartition(lambda rows: _put(endpoint, rows))

    ways: dict[str, Callable[[DataFrame], None]] = {
        "noop": lambda frame: frame.write.format("noop").mode("append").save(),
        "kinesis_ds": lambda frame: (
            frame.write.format("kinesis").options(**options).mode("append").save()
        ),
        "plain boto3": boto3,
    }
    meter = Cpu(session)
    for name, write in ways.items():
        if plan.warm:
            write(_frame(session, 1))
        frame = _frame(session, plan.written)
        with _memory(session) as memory:
            before, began = sum(meter.used().values()), time.monotonic()
            write(frame)
            seconds, cpu = time.monotonic() - began, sum(meter.used().values()) - before
        _note(report, "write", name, plan.written * RECORD_BYTES, seconds, cpu, memory)


def _frame(session: SparkSession, rows: int) -> DataFrame:
    return session.range(0, rows, 1, max(1, rows // ROWS_A_TASK)).selectExpr(
        f"repeat('x', {RECORD_BYTES - KEY_BYTES}) AS data", "uuid() AS partitionKey"
    )


def _put(endpoint: str, rows: Iterable[Row]) -> None:
    kinesis = client_at(endpoint)
    for row in rows:
        record = {"Data": row.data.encode(), "PartitionKey": row.partitionKey}
        answer = kinesis.put_records(StreamName=SWALLOWED, Records=[record])
        assert not answer["FailedRecordCount"]


@contextlib.contextmanager
def _memory(session: SparkSession) -> Iterator[dict[str, int]]:
    """Filled at the end: the peak of each kind of process above what it had, in bytes."""
    grown: dict[str, int] = {}
    before = Cpu(session).rss()
    watch = MemoryWatch(session)
    try:
        yield grown
    finally:
        watch.close()
        grown |= {kind: peak - before[kind] for kind, peak in watch.peak.items()}


def _note(
    report: Report,
    what: str,
    name: str,
    nbytes: int,
    seconds: float,
    cpu: float,
    memory: dict[str, int],
) -> None:
    report.rows.append(
        {
            "": what,
            "with": name,
            "records": nbytes // RECORD_BYTES,
            "MB/s": nbytes / seconds / 1e6,
            "CPU s/GB": cpu / nbytes * 1e9,
            **{f"{kind}, MB": memory[kind] / 1e6 for kind in (JVM, AGENT, WORKERS)},
            "all, MB": sum(memory.values()) / 1e6,
        }
    )


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        for axes, key in zip(figure.subplots(1, 2), ("MB/s", "all, MB"), strict=True):
            names = [f"{row['']}, {row['with']}" for row in rows]
            axes.bar_label(axes.barh(names, [row[key] for row in rows]), fmt="%.0f")
            axes.invert_yaxis()
            axes.set_xlabel({"MB/s": "MB a second", "all, MB": "MB of memory at the peak"}[key])

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("large_values", args)
    measure(report, QUICK if args.quick else FULL)
    formats = dict.fromkeys(report.rows[0], ".0f") | {"": "", "with": "", "CPU s/GB": ".2f"}
    print(table(report.rows, formats))
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
