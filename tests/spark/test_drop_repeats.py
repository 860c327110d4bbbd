"""Repeats dropped by their ids: what a sink sent twice, a query sees once, and nothing is lost."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kinesis_ds import SchemaError, drop_repeats
from kinesis_ds.testing import KinesisServer
from kinesis_ds.wire.schema import source_ddl
from kinesis_ds.writer.aggregating import Aggregator
from kinesis_ds.writer.records import Block, plain
from tests.spark.conftest import STREAM, Serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
PAGE = "docs/how-to/exactly-once-from-sink-to-source.md"
WITHIN_S = 240.0


def send(kinesis: KinesisServer, rows: Iterable[int], batch: int = 0) -> None:
    """What the sink sends of a batch: rows that hold their number, an aggregate for each key."""
    by_key: dict[str, list[int]] = {}
    for row in rows:
        by_key.setdefault(f"key{row % 10}", []).append(row)
    for key, its_rows in by_key.items():
        aggregator = Aggregator(50_000, 1_000, 1_000_000, f"query/{batch}/0")
        for row in its_rows:
            data = b"%d.%d" % (batch, row)
            record = plain(data, key, None, len(data) + len(key), row)
            assert aggregator.add(Block.of([record]), 0.0) == []
        whole = aggregator.close()
        assert whole is not None
        kinesis.put(STREAM, whole.data, partition_key=key)


def texts(rows: Iterable[Any]) -> Counter[str]:
    return Counter(bytes(row.data).decode() for row in rows)


def numbers(rows: Iterable[int], batch: int = 0) -> Counter[str]:
    return Counter(f"{batch}.{row}" for row in rows)


class Query:
    """A streaming query without repeats over one checkpoint, run after run."""

    def __init__(self, spark: SparkSession, kinesis: KinesisServer, folder: Path) -> None:
        self.batches: dict[int, list[Any]] = {}
        options = {"initialPosition": "earliest", "includeMetadata": "true"}
        self._source = (
            spark.readStream.format("kinesis")
            .options(**kinesis.options(STREAM), **options)
            .options(consumerMode="polling", shardFetchInterval="1s")
        )
        self._folder = folder

    def run(self, *steps: tuple[Callable[[], None], int]) -> None:
        """One run: each step, and then until so many rows were read by all steps of this run."""
        query = (
            drop_repeats(self._source.load())
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._folder))
            .start()
        )
        try:
            for step, rows in steps:
                step()
                deadline = time.monotonic() + WITHIN_S
                while sum(p["numInputRows"] for p in query.recentProgress) < rows:
                    if (error := query.exception()) is not None:
                        raise error
                    assert time.monotonic() < deadline, f"{rows} rows were not read in time"
                    time.sleep(0.05)
        finally:
            query.stop()

    @property
    def seen(self) -> Counter[str]:
        """The data of all rows of all batches."""
        return texts(row for rows in self.batches.values() for row in rows)

    def _keep(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = batch.collect()


def test_each_record_is_seen_once_over_batches_restarts_and_a_reshard(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """Repeats in the same batch, in a later one, behind a restart, and in other shards than the
    first time; records without an id come as often as they were put.
    """
    kinesis = serve(shards=2)
    query = Query(spark, kinesis, tmp_path)

    def twice_at_once() -> None:
        send(kinesis, range(60))
        send(kinesis, range(20))
        kinesis.put(STREAM, b"plain", b"plain", partition_key="a")

    def again() -> None:
        send(kinesis, range(40, 80))
        kinesis.put(STREAM, b"plain", partition_key="a")

    def in_other_shards() -> None:
        for shard in kinesis.open_shards(STREAM):
            kinesis.split(STREAM, shard)
        send(kinesis, range(100))
        send(kinesis, range(100), batch=1)
        kinesis.put(STREAM, b"plain", partition_key="a")

    query.run((twice_at_once, 82), (again, 123))
    assert query.seen == numbers(range(80)) + Counter(plain=3)
    send(kinesis, range(80))
    query.run((lambda: None, 80), (in_other_shards, 281))

    assert query.seen == numbers(range(100)) + numbers(range(100), 1) + Counter(plain=4)
    rows = [row for rows in query.batches.values() for row in rows]
    assert {row.shardId for row in rows} > {"shardId-000000000000", "shardId-000000000001"}
    assert list(rows[0].asDict()) == [c.split()[0] for c in source_ddl(metadata=True).split(", ")]
    assert {r.recordId for r in rows if bytes(r.data) != b"plain"} == {
        f"query/{batch}/0/{row}" for batch in (0, 1) for row in range(100)
    }


def test_a_batch_read_holds_each_record_once(spark: SparkSession, serve: Serve) -> None:
    """All repeats that are in it are dropped, and of the records without an id none."""
    kinesis = serve(shards=2)
    for rows in (range(50), range(30, 80), range(80)):
        send(kinesis, rows)
    kinesis.put(STREAM, *[b"plain"] * 3, partition_key="a")

    frame = spark.read.format("kinesis").options(**kinesis.options(STREAM), includeMetadata="true")
    once = drop_repeats(frame.load())

    assert texts(once.collect()) == numbers(range(80)) + Counter(plain=3)
    assert once.columns == frame.load().columns


def test_the_code_of_the_page_is_code(spark: SparkSession, serve: Serve) -> None:
    """What it says to read with gives a streaming DataFrame with all columns."""
    kinesis = serve()
    code = (ROOT / PAGE).read_text().split("```python\n")[2].partition("```")[0]
    assert ".load()" in code
    code = code.replace('.option("region", "eu-central-1")', ".options(**local)")
    found: dict[str, Any] = {"spark": spark, "local": kinesis.options(STREAM)}
    exec(compile(code, PAGE, "exec"), found)  # noqa: S102  # our own page

    assert found["once"].isStreaming
    assert found["once"].columns == found["orders"].columns


# --- what needs times of its own ------------------------------------------------------------------


class Files:
    """Files of rows as the source gives them, of any arrival; a file is a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._files = 0
        (folder / "in").mkdir()

    def put(self, *rows: tuple[str, int, str | None]) -> None:
        """Rows of their data, the minute of their arrival, and their id, as one batch."""
        self._files += 1
        path = self._folder / "in" / f"{self._files}.json"
        start = datetime(2026, 1, 1, tzinfo=timezone.utc)
        path.write_bytes(
            b"\n".join(
                orjson.dumps(
                    {
                        "data": b64encode(data.encode()).decode(),
                        "stream": STREAM,
                        "shardId": "shardId-000000000000",
                        "sequenceNumber": f"{self._files}{i}",
                        "subSequenceNumber": 0,
                        "approximateArrivalTimestamp": (
                            start + timedelta(minutes=minute)
                        ).isoformat(),
                        "recordId": record_id,
                    }
                )
                for i, (data, minute, record_id) in enumerate(rows)
            )
        )
        os.utime(path, (self._files, self._files))  # Spark takes the oldest file first

    def frame(self) -> DataFrame:
        source = self._spark.readStream.schema(source_ddl(metadata=True))
        return source.option("maxFilesPerTrigger", "1").json(str(self._folder / "in"))

    def seen(self, within: str) -> list[str]:
        """What passes, batch after batch, in a query of its own."""
        found: list[str] = []

        def keep(batch: DataFrame, number: int) -> None:
            found.extend(sorted(bytes(row.data).decode() for row in batch.collect()))

        query = (
            drop_repeats(self.frame(), within)
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder / within.replace(" ", "")))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(WITHIN_S))
        return found


def test_rows_in_another_order_cost_repeats_and_never_a_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A replayed batch may give a row's number to another row: both are kept. So are rows of the
    same data with other ids.
    """
    files = Files(spark, tmp_path)
    files.put(("a", 0, "q/0/0/0"), ("b", 0, "q/0/0/1"), ("b", 0, "q/0/0/2"))
    files.put(("b", 1, "q/0/0/0"), ("a", 1, "q/0/0/1"), ("b", 1, "q/0/0/2"))

    assert files.seen("1 hour") == ["a", "b", "b", "a", "b"]


def test_records_that_are_late_by_more_than_within_are_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark drops them in this operator, whether they are repeats or not: a shard that lags behind
    the others must lag by less. With the stream's retention it always does.
    """
    files = Files(spark, tmp_path)
    files.put(("first", 0, "q/0/0/0"))
    files.put(("newest", 120, "q/0/0/1"))
    files.put(("more", 120, "q/0/0/2"))  # Spark goes by the watermark that this batch begins with
    files.put(("late", 59, "q/0/0/3"), ("late, no id", 59, None), ("in time", 61, None))
    files.put(("in time", 119, "q/0/0/4"))

    kept = ["first", "newest", "more", "in time", "in time"]
    assert files.seen("1 hour") == kept
    assert files.seen("2 hours") == [*kept[:3], "in time", "late", "late, no id", "in time"]


def test_repeats_that_are_further_apart_than_within_pass(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An id is forgotten when the newest record is further ahead of it than twice ``within``; up to
    ``within`` it never is.
    """
    files = Files(spark, tmp_path)
    files.put(("kept", 0, "q/0/0/0"))
    files.put(("kept", 60, "q/0/0/0"))
    files.put(("other", 121, "q/0/0/1"))
    files.put(("another", 122, "q/0/0/2"))
    files.put(("kept", 123, "q/0/0/0"))

    assert files.seen("1 hour") == ["kept", "other", "another", "kept"]
    assert files.seen("3 hours") == ["kept", "other", "another"]


@pytest.mark.parametrize("missing", ["recordId", "subSequenceNumber", "data", "stream"])
def test_columns_that_are_missing_are_named_with_the_remedy(
    spark: SparkSession, tmp_path: Path, missing: str
) -> None:
    """When the query is written, not when it runs."""
    with pytest.raises(SchemaError, match=rf"without the columns {missing}\..*includeMetadata"):
        drop_repeats(Files(spark, tmp_path).frame().drop(missing))
