"""Measure speed and cost of the sink, beside two peers that write the same rows.

    python -m benchmarks.sink_throughput [--quick] [--json FILE] [--chart FILE]

Rows of 100 B, 1 KB and 10 KB with a partition key each (10,000 different ones) go to a server of
the test kit in a process of its own that acknowledges at wire speed and keeps nothing. Measured is
the time until all is acknowledged, and the CPU time of everything but the server.

* **kinesis_ds**: one task (``write_task``), with and without aggregation and ``ordering=key``.
* **boto3**: ``put_records`` of 500 rows at a time in a loop, from a pool of threads with as many
  requests under way as our sink may have. A client as plain as boto3 makes it, with enough
  connections.
* **async-kinesis**: its producer, without its rate limits, and handed bytes, so that it neither
  waits nor serializes. It has one request under way at a time, so several of them share a loop.

All get the same Arrow batches in this process, one after the other, in turn for each round; rates
and ratios are the medians of the rounds. Then the same through Spark (``local[2]``, 1 KB): our sink
and boto3 as the writers of two data sources, for the same DataFrame; and one that writes nothing,
for what Spark itself costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import boto3
import psutil
import pyarrow as pa
from botocore.config import Config
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks.queries import spark
from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import served
from kinesis_ds import KinesisDataSource
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.writer import registry
from kinesis_ds.writer.slices import arrow_slices
from kinesis_ds.writer.task import TaskId, write_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

IN_FLIGHT = 16
KEYS = 10_000
REGION = "us-east-1"
# As Spark hands them over.
ROWS_A_BATCH = 10_000
# The stream with four shards costs a prediction a row; the bars are of the one with one.
ONE, FOUR = "one", "four"
# Of async-kinesis in one event loop; more are slower.
PRODUCERS = 4
# Of rows of this size each writer gets so many in a round: well below a second's worth.
SIZES = {100: (80_000, 16_000), 1024: (40_000, 12_000), 10_240: (5_000, 3_000)}
ROUNDS = 3
FORMATS = {
    "rows/s": ".0f",
    "MB/s": ".1f",
    "CPU s/M rows": ".2f",
    "rate/boto3": ".1f",
    "CPU boto3/it": ".1f",
}
SPARK_ROWS, SPARK_PEER_ROWS = 200_000, 50_000


@dataclass(frozen=True)
class Cost:
    """The cost of a round: rows, and seconds of the clock and of the processors."""

    rows: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_a_million(self) -> float:
        return self.cpu / self.rows * 1e6


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    """Rows in Arrow; of each the first bytes are its number."""
    rest = b"." * size
    found = []
    for first in range(0, count, ROWS_A_BATCH):
        numbers = range(first, min(count, first + ROWS_A_BATCH))
        columns = {
            "data": pa.array([(b"%08d" % n + rest)[:size] for n in numbers], pa.binary()),
            "partitionKey": pa.array([f"key-{n % KEYS}" for n in numbers], pa.string()),
        }
        found.append(pa.record_batch(columns))
    return found


def credentials(endpoint: str, stream: str) -> dict[str, str]:
    return {
        "streamName": stream,
        "endpoint": endpoint,
        "region": REGION,
        "awsAccessKey": "test",
        "awsSecretKey": "test",
    }


def ours(endpoint: str, stream: str, **options: str) -> Callable[[list[pa.RecordBatch]], None]:
    parsed = parse_write_options(
        {**credentials(endpoint, stream), "maxInFlightRequests": str(IN_FLIGHT), **options}
    )

    def write(rows: list[pa.RecordBatch]) -> None:
        write_task(arrow_slices(rows), parsed, TaskId(), "benchmark")

    return write


def plain_client(endpoint: str) -> Any:
    return boto3.session.Session().client(
        "kinesis",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106  # of the double
        config=Config(max_pool_connections=IN_FLIGHT),
    )


def entries_of(rows: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
    """Return the entries for ``put_records``, 500 at a time."""
    for first in range(0, rows.num_rows, 500):
        part = rows.slice(first, 500)
        values, keys = (part.column(name).to_pylist() for name in ("data", "partitionKey"))
        yield [{"Data": d, "PartitionKey": k} for d, k in zip(values, keys, strict=True)]


def put(client: Any, requests: Iterator[list[dict[str, Any]]], stream: str) -> None:
    """Put all entries, with so many calls under way at once."""
    lock = threading.Lock()

    def send(_: int) -> None:
        while True:
            with lock:
                entries = next(requests, None)
            if entries is None:
                return
            answer = client.put_records(StreamName=stream, Records=entries)
            assert answer["FailedRecordCount"] == 0

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(send, range(IN_FLIGHT)))


def boto(endpoint: str, stream: str) -> Callable[[list[pa.RecordBatch]], None]:
    client = plain_client(endpoint)

    def write(rows: list[pa.RecordBatch]) -> None:
        put(client, (entries for batch in rows for entries in entries_of(batch)), stream)

    return write


def async_kinesis(endpoint: str, stream: str) -> Callable[[list[pa.RecordBatch]], None]:
    from aiobotocore.session import AioSession  # noqa: PLC0415  # beside what needs it
    from kinesis import Producer  # type: ignore[import-untyped]  # noqa: PLC0415  # extra bench
    from kinesis.aggregators import SimpleAggregator  # type: ignore[import-untyped]  # noqa: PLC0415
    from kinesis.utils import Throttler  # type: ignore[import-untyped]  # noqa: PLC0415

    logging.getLogger("kinesis").setLevel(logging.ERROR)

    class Bytes(SimpleAggregator):  # type: ignore[misc]
        def serialize(self, item: bytes) -> bytes:
            return item

    class Unlimited(Producer):  # type: ignore[misc]
        def set_put_rate_throttle(self) -> None:
            # A high limit would cost it more: it adds up all records of the last second for each.
            self.put_rate_throttle = self.put_bandwidth_throttle = Throttler()

    async def write_all(rows: list[pa.RecordBatch]) -> None:
        session = AioSession()
        async with contextlib.AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(
                    Unlimited(
                        stream, session=session, endpoint_url=endpoint, region_name=REGION,
                        processor=Bytes(), skip_describe_stream=True, max_queue_size=2000,
                    )
                )
                for _ in range(PRODUCERS)
            ]  # fmt: skip
            turns = [rows[n::PRODUCERS] for n in range(PRODUCERS)]
            await asyncio.gather(*map(feed, producers, turns))

    async def feed(producer: Any, rows: list[pa.RecordBatch]) -> None:
        for batch in rows:
            values, keys = (batch.column(name).to_pylist() for name in ("data", "partitionKey"))
            for value, key in zip(values, keys, strict=True):
                await producer.put(value, key)
        await producer.flush()

    return lambda rows: asyncio.run(write_all(rows))


def measured(write: Callable[[list[pa.RecordBatch]], None], rows: list[pa.RecordBatch]) -> Cost:
    cpu, began = time.process_time(), time.perf_counter()
    write(rows)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Cost(sum(batch.num_rows for batch in rows), seconds, cpu)


def tree_cpu(but: int) -> float:
    """CPU seconds of this process and all below it, but for the server."""
    found = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid != but:
                times = process.cpu_times()
                found += times.user + times.system + times.children_user + times.children_system
    return found


def frame(session: SparkSession, count: int, size: int) -> DataFrame:
    """The same rows as :func:`batches`, in two partitions."""
    return session.range(0, count, 1, 2).selectExpr(
        f"cast(rpad(lpad(id, 8, '0'), {size}, '.') as binary) as data",
        f"concat('key-', id % {KEYS}) as partitionKey",
    )


class PlainSource(DataSource):
    """boto3 as a sink of Spark: ``format("plain")``. Without an endpoint it drops what it gets."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return PlainWriter(self.options.get("endpoint"))


class PlainWriter(DataSourceArrowWriter):
    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._endpoint is None:
            for _ in iterator:
                pass
        else:
            requests = (entries for batch in iterator for entries in entries_of(batch))
            put(plain_client(self._endpoint), requests, ONE)
        return WriterCommitMessage()


def through_spark(session: SparkSession, endpoint: str, server_pid: int) -> dict[str, list[Cost]]:
    """Our sink, the peer, and a sink that does nothing, in turn. The first round is to warm up."""
    session.dataSource.register(KinesisDataSource)
    session.dataSource.register(PlainSource)
    options = credentials(endpoint, ONE) | {"maxInFlightRequests": str(IN_FLIGHT)}
    writers: dict[str, tuple[str, dict[str, str], int]] = {
        "kinesis_ds": ("kinesis", options, SPARK_ROWS),
        "boto3": ("plain", {"endpoint": endpoint}, SPARK_PEER_ROWS),
        "no sink": ("plain", {}, SPARK_ROWS),
    }
    found: dict[str, list[Cost]] = {name: [] for name in writers}
    for round_ in range(ROUNDS + 1):
        for name, (kind, given, full) in writers.items():
            count = full if round_ else 2_000
            cpu, began = tree_cpu(server_pid), time.perf_counter()
            frame(session, count, 1024).write.format(kind).options(**given).mode("append").save()
            seconds = time.perf_counter() - began
            if round_:
                found[name].append(Cost(count, seconds, tree_cpu(server_pid) - cpu))
    return found


def in_one_task(endpoint: str, quick: bool) -> dict[tuple[int, str], list[Cost]]:
    """Every writer with every size, in turn."""
    found: dict[tuple[int, str], list[Cost]] = {}
    for size, (many, few) in SIZES.items():
        writers = {
            "kinesis_ds": (ours(endpoint, ONE), many),
            "kinesis_ds, 4 shards": (ours(endpoint, FOUR), many),
            "kinesis_ds, ordered": (ours(endpoint, ONE, ordering="key"), many // 4),
            "kinesis_ds, aggregated": (ours(endpoint, ONE, aggregation="true"), many),
            "kinesis_ds, aggregated, ordered": (
                ours(endpoint, ONE, aggregation="true", ordering="key"),
                many,
            ),
            "boto3": (boto(endpoint, ONE), few),
            "async-kinesis": (async_kinesis(endpoint, ONE), few),
        }
        for name, (write, count) in writers.items():
            write(batches(500, size))  # connected, and warm
            found[size, name] = []
            writers[name] = (write, count // 40 if quick else count)
        rows = {count: batches(count, size) for _, count in writers.values()}
        for _ in range(1 if quick else ROUNDS):
            for name, (write, count) in writers.items():
                found[size, name].append(measured(write, rows[count]))
    return found


def ratio(one: list[Cost], other: list[Cost], what: Callable[[Cost], float]) -> float:
    """Return the ratio of two ways that were measured in the same rounds."""
    return median(what(a) / what(b) for a, b in zip(one, other, strict=True))


def row_of(size: int, name: str, costs: list[Cost], peer: list[Cost]) -> dict[str, Any]:
    rate = median(cost.rate for cost in costs)
    return {
        "bytes": size,
        "writer": name,
        "rows/s": rate,
        "MB/s": rate * size / 1e6,
        "CPU s/M rows": median(cost.cpu_a_million for cost in costs),
        "rate/boto3": ratio(costs, peer, lambda cost: cost.rate),
        "CPU boto3/it": ratio(peer, costs, lambda cost: cost.cpu_a_million),
    }


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        tasks = [row for row in rows if row["where"] == "task"]
        writers = list(dict.fromkeys(row["writer"] for row in tasks))
        for ax, size in zip(figure.subplots(1, len(SIZES)), SIZES, strict=True):
            rates = {row["writer"]: row["rows/s"] for row in tasks if row["bytes"] == size}
            bars = ax.barh(writers, [rates[name] for name in writers])
            ax.bar_label(bars, [f"{rates[name] / rates['boto3']:.1f}x" for name in writers])
            ax.set_title(f"rows of {size} B")
            ax.set_xlabel("rows a second")
            ax.invert_yaxis()
            ax.margins(x=0.2)
            if size != next(iter(SIZES)):
                ax.set_yticklabels([])

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("sink_throughput", args)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")  # noqa: S106
    with served("--no-limits", "--swallow", ONE, "--swallow", f"{FOUR}:4") as server:
        try:
            found = in_one_task(server.endpoint, args.quick)
        finally:
            registry.REGISTRY.close()
        for (size, name), costs in found.items():
            line = row_of(size, name, costs, found[size, "boto3"])
            report.rows.append({"where": "task", **line})
        print(table(report.rows, FORMATS), flush=True)
        if not args.quick:
            with spark() as session:
                sparks = through_spark(session, server.endpoint, server.pid)
            lines = [
                {"where": "spark", **row_of(1024, name, costs, sparks["boto3"])}
                for name, costs in sparks.items()
            ]
            print(table(lines, FORMATS), flush=True)
            report.rows += lines

    def bar(what: str, wanted: float, size: int, name: str, peer: str) -> None:
        seen = ratio(found[size, name], found[size, peer], lambda cost: cost.rate)
        report.bars.append(Bar(what, wanted, seen))

    bar("sink, 1 KB, records/s against boto3", 5, 1024, "kinesis_ds", "boto3")
    bar("sink, 1 KB, records/s against async-kinesis", 2, 1024, "kinesis_ds", "async-kinesis")
    bar(
        "sink, 100 B, aggregation, rows/s against boto3",
        20, 100, "kinesis_ds, aggregated", "boto3",
    )  # fmt: skip
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
