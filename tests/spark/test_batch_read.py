"""spark.read: every record between two positions, once, however often a task runs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql.functions import udf

from kinesis_ds.testing import KinesisServer
from tests.spark.conftest import STREAM, Serve

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FIRST = "shardId-000000000000"


def read(spark: SparkSession, kinesis: KinesisServer, **options: str) -> DataFrame:
    return spark.read.format("kinesis").options(**{**kinesis.options(STREAM), **options}).load()


def put(kinesis: KinesisServer, ids: Iterable[int], stream: str = STREAM) -> None:
    """Records that hold their number, of a hundred keys."""
    kinesis.put(
        stream, *[b"%d" % i for i in ids], partition_key=lambda data: f"key{int(data) % 100}"
    )


def numbers(rows: Iterable[Any]) -> list[int]:
    return [int(bytes(row.data)) for row in rows]


def assert_all_once_in_order(rows: list[Any], expected: Iterable[int]) -> None:
    """Each record once, and those of a shard in the order in which they were written."""
    assert Counter(numbers(rows)) == Counter(expected)
    last: dict[str, int] = {}
    for row in rows:
        assert last.get(row.shardId, 0) < int(row.sequenceNumber)
        last[row.shardId] = int(row.sequenceNumber)


def test_a_batch_holds_everything_that_was_written_before(
    spark: SparkSession, serve: Serve
) -> None:
    """From the oldest record to the latest by default, a task a shard, with every column. No
    consumer is registered, and nothing is subscribed to.
    """
    kinesis = serve(shards=4)
    put(kinesis, range(2_000))

    frame = read(spark, kinesis)
    rows = frame.collect()

    assert_all_once_in_order(rows, range(2_000))
    assert {row.shardId for row in rows} == set(kinesis.open_shards(STREAM))
    assert {row.stream for row in rows} == {STREAM}
    assert {row.partitionKey for row in rows} == {f"key{i}" for i in range(100)}
    assert frame.rdd.getNumPartitions() == 4
    assert {call.target.operation for call in kinesis.calls} == {
        "DescribeStreamSummary",
        "ListShards",
        "GetShardIterator",
        "GetRecords",
    }


def test_what_was_loaded_stays_what_it_is(spark: SparkSession, serve: Serve) -> None:
    """Planned at the first action, for all that follow, whatever is made of it; what is loaded
    again sees what was written since. PySpark 4.0 plans each DataFrame by itself.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(100))
    frame = read(spark, kinesis)
    first = frame.collect()

    put(kinesis, range(100, 150))

    assert frame.collect() == first
    assert read(spark, kinesis).count() == 150
    seen = 150 if pyspark.__version__.startswith("4.0.") else 100
    assert frame.count() == seen
    assert frame.where("length(data) = 2").select("data").count() == 90
    assert frame.union(frame).count() == 2 * seen


class Writer:
    """Writes on while the block runs, a few records every few milliseconds."""

    def __init__(self, kinesis: KinesisServer, following: int) -> None:
        self.following = following
        self._kinesis = kinesis
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(0.005):
            put(self._kinesis, range(self.following, self.following + 5))
            self.following += 5


def test_writers_that_go_on_change_nothing(spark: SparkSession, serve: Serve) -> None:
    """What was there when the read was planned is in, and then all shards end at one moment: of
    records written one after the other, none is missing before the last that is in.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(500))
    with Writer(kinesis, 500) as writer:
        frame = read(spark, kinesis)
        once = frame.collect()
        again = frame.collect()

    assert once == again
    assert_all_once_in_order(once, range(len(once)))
    assert 500 <= len(once) < writer.following


def test_every_record_is_read_across_reshards(spark: SparkSession, serve: Serve) -> None:
    """Splits, merges and closed shards that still hold records; a key's records in order, because
    a shard and what it was split or merged into are one task.
    """
    kinesis = serve(shards=3)
    put(kinesis, range(300))
    kinesis.split(STREAM, FIRST)
    put(kinesis, range(300, 600))
    kinesis.merge(STREAM, *kinesis.open_shards(STREAM)[-2:])
    put(kinesis, range(600, 900))
    kinesis.scale(STREAM, 2)
    put(kinesis, range(900, 1_200))

    frame = read(spark, kinesis)
    tasks = frame.rdd.glom().collect()

    assert_all_once_in_order([row for rows in tasks for row in rows], range(1_200))
    by_key: dict[str, list[int]] = {}
    for rows in tasks:
        for row in rows:
            by_key.setdefault(row.partitionKey, []).append(int(bytes(row.data)))
    assert all(found == sorted(found) for found in by_key.values())
    # Not tied to each other, every shard is a task of its own.
    apart = read(spark, kinesis, parentsFirst="false")
    assert apart.rdd.getNumPartitions() == len(kinesis.shards(STREAM)) > len(tasks)
    assert_all_once_in_order(apart.collect(), range(1_200))


def test_a_batch_lies_between_two_times(spark: SparkSession, serve: Serve) -> None:
    """From the first record that arrived at the one or later, to the last that arrived before the
    other, to the millisecond.
    """
    kinesis = serve(shards=2)
    for i in range(0, 300, 10):
        put(kinesis, range(i, i + 10))
        time.sleep(0.002)
    arrived = {
        int(row.data): int(row.arrival.timestamp() * 1000)
        for row in read(spark, kinesis)
        .selectExpr("cast(data as string) data", "approximateArrivalTimestamp arrival")
        .collect()
    }
    low, high = arrived[100], arrived[200]

    frame = read(
        spark,
        kinesis,
        initialPosition=f"at_timestamp {low / 1000:.3f}",
        endingPosition=f"at_timestamp {high / 1000:.3f}",
    )

    expected = [i for i, ms in arrived.items() if low <= ms < high]
    assert 0 < len(expected) < 300
    assert_all_once_in_order(frame.collect(), expected)


def test_batches_between_offsets_of_a_query_follow_each_other(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """A printed offset is where one batch ends and the next begins: none lost, none twice."""
    kinesis = serve(shards=2)
    put(kinesis, range(200))
    query = (
        spark.readStream.format("kinesis")
        .options(**kinesis.options(STREAM), initialPosition="earliest", consumerMode="polling")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        while (query.lastProgress or {}).get("numInputRows", 0) == 0:
            query.processAllAvailable()
        # Before 4.2, PySpark shows it as Python would.
        offset = str(query.lastProgress["sources"][0]["endOffset"]).replace("'", '"')
    finally:
        query.stop()
    kinesis.split(STREAM, FIRST)
    put(kinesis, range(200, 400))

    before = read(spark, kinesis, endingPosition=offset).collect()
    behind = read(spark, kinesis, initialPosition=offset).collect()

    assert len(before) > 0
    assert_all_once_in_order(before + behind, range(400))


def test_a_task_that_fails_and_runs_again_gives_the_same_rows(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """A worker dies in the middle of a shard, while somebody writes on: what its second try reads
    ends where the first would have, and so where the other shard does.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(1_000))
    died = tmp_path / "died"

    @udf(returnType="string", useArrow=False)
    def fragile(data: bytes) -> str:
        import os  # noqa: PLC0415

        if bytes(data) == b"500" and not died.exists():
            died.touch()
            os._exit(1)
        return bytes(data).decode()

    with Writer(kinesis, 1_000) as writer:
        frame = read(spark, kinesis).withColumn("text", fragile("data"))
        rows = frame.collect()

    assert died.exists()
    assert [int(row.text) for row in rows] == numbers(rows)
    assert_all_once_in_order(rows, range(len(rows)))
    assert 1_000 <= len(rows) < writer.following


def test_several_streams_are_read_as_one(spark: SparkSession, serve: Serve) -> None:
    """Each record with the name of its stream."""
    kinesis = serve(shards=2)
    kinesis.create_stream("returns", 1)
    put(kinesis, range(100))
    put(kinesis, range(50), stream="returns")

    frame = read(spark, kinesis, streamName=f"{STREAM},returns")
    rows = frame.collect()

    assert Counter(row.stream for row in rows) == {STREAM: 100, "returns": 50}
    assert frame.rdd.getNumPartitions() == 3


def test_tasks_are_as_few_as_the_user_wants(spark: SparkSession, serve: Serve) -> None:
    """Shards share tasks; a limited read stops early and closes what it opened."""
    kinesis = serve(shards=6)
    put(kinesis, range(600))

    few = read(spark, kinesis, maxPartitions="2")
    threes = read(spark, kinesis, shardsPerTask="3")

    assert (few.rdd.getNumPartitions(), threes.rdd.getNumPartitions()) == (2, 2)
    assert few.count() == threes.count() == 600
    assert len(few.limit(5).collect()) == 5


def test_an_empty_batch_is_empty(spark: SparkSession, serve: Serve) -> None:
    """A stream without records, and positions that are the wrong way round in one shard."""
    kinesis = serve()

    assert read(spark, kinesis).collect() == []
    put(kinesis, range(10))
    numbers = [record.sequence_number for record in kinesis.records(STREAM)]
    nothing = read(
        spark,
        kinesis,
        initialPosition=f'{{"{FIRST}": "AFTER:{numbers[5]}"}}',
        endingPosition=f'{{"{FIRST}": "AFTER:{numbers[5]}"}}',
    )
    assert nothing.collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"endingPosition": "at_timestamp 2200-01-01T00:00:00Z"}, "in the future", id="future"
        ),
        pytest.param(
            {"initialPosition": '{"shardId-000000000009": "TRIM_HORIZON"}'},
            "shardId-000000000009",
            id="a shard that is not there",
        ),
        pytest.param(
            {"endingPosition": f'{{"{FIRST}": "SHARD_END"}}'}, "has not closed", id="an open end"
        ),
    ],
)
def test_a_position_that_makes_no_sense_is_one_clear_error(
    spark: SparkSession, serve: Serve, options: dict[str, str], message: str
) -> None:
    """When the read is planned, before a task starts."""
    kinesis = serve(shards=1)

    with pytest.raises(Exception, match=rf"\[KINESIS_OPTIONS\].*{message}"):
        read(spark, kinesis, **options).collect()


@pytest.mark.skipif(
    pyspark.__version__ < "4.3", reason="how Spark 4.3 treats the options of tables"
)
def test_a_table_is_read_with_the_options_of_its_use(spark: SparkSession, serve: Serve) -> None:
    """Spark passes its own properties on when a table is created, and none of its options later. A
    view keeps them.
    """
    kinesis = serve(shards=1)
    put(kinesis, range(3))
    options = kinesis.options(STREAM)
    given = ", ".join(f"{name} '{value}'" for name, value in options.items())
    spark.sql(
        f"CREATE TABLE told USING kinesis OPTIONS ({given}) COMMENT 'c' TBLPROPERTIES ('p'='q')"
    )
    try:
        with pytest.raises(Exception, match="a table's own options do not reach the source"):
            spark.table("told").collect()
        assert numbers(spark.read.options(**options).table("told").collect()) == [0, 1, 2]
    finally:
        spark.sql("DROP TABLE told")
    spark.sql(f"CREATE TEMPORARY VIEW shown USING kinesis OPTIONS ({given})")
    try:
        assert numbers(spark.table("shown").collect()) == [0, 1, 2]
    finally:
        spark.sql("DROP VIEW shown")
