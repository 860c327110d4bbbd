"""``df.write`` and rows that name their streams, over real Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import STREAM, Serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kinesis_ds.testing import KinesisServer

ROWS = 5000
NUMBERED = ["CAST(id AS STRING) AS data", "CAST(id % 97 AS STRING) AS partitionKey"]


@pytest.fixture
def kinesis(serve: Serve) -> KinesisServer:
    return serve(shards=3)


def write(df: DataFrame, kinesis: KinesisServer, mode: str = "append", **options: str) -> None:
    raw = {**kinesis.options(STREAM), **options}
    df.write.format("kinesis").options(**raw).mode(mode).save()


def test_each_row_of_a_batch_is_stored_once(spark: SparkSession, kinesis: KinesisServer) -> None:
    """With its key, over all shards, in two tasks."""
    write(spark.range(0, ROWS, 1, 2).selectExpr(*NUMBERED), kinesis)

    records = kinesis.records(STREAM)
    assert Counter(int(r.data) for r in records) == Counter(range(ROWS))
    assert all(int(r.data) % 97 == int(r.partition_key or "") for r in records)
    assert len({r.shard_id for r in records}) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"aggregation": "true"},
        {"recordIds": "true"},
        {"ordering": "key"},
        {"ordering": "key", "aggregation": "true", "aggregationMaxRecords": "50"},
    ],
    ids=str,
)
def test_what_a_batch_writes_a_batch_reads(
    spark: SparkSession, kinesis: KinesisServer, options: dict[str, str]
) -> None:
    """Aggregated or not, each row once; in the order of its key where that is wanted."""
    write(spark.range(0, ROWS, 1, 1).selectExpr(*NUMBERED), kinesis, **options)
    read = spark.read.format("kinesis").options(**kinesis.options(STREAM))
    rows = (
        read.option("initialPosition", "trim_horizon").option("includeMetadata", "true").load()
    ).collect()

    assert Counter(int(row.data) for row in rows) == Counter(range(ROWS))
    if "ordering" in options:
        place = sorted(rows, key=lambda r: (int(r.sequenceNumber), r.subSequenceNumber or 0))
        for key in range(97):
            mine = [int(r.data) for r in place if r.partitionKey == str(key)]
            assert mine == sorted(mine)
    ids = {row.recordId for row in rows}
    assert len(ids) == (ROWS if "recordIds" in options else 1)
    if options != {"ordering": "key"}:
        assert len(kinesis.records(STREAM)) < ROWS / 20


def test_rows_go_to_the_streams_that_they_name(spark: SparkSession, kinesis: KinesisServer) -> None:
    """By name or ARN; those that name none go to the query's."""
    kinesis.create_stream("clicks", 2)
    kinesis.create_stream("views", 1)
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/views"
    stream = f"CASE id % 3 WHEN 0 THEN 'clicks' WHEN 1 THEN '{arn}' END AS stream"
    write(spark.range(0, 3000, 1, 2).selectExpr(*NUMBERED, stream), kinesis)

    for name, rest in (("clicks", 0), ("views", 1), (STREAM, 2)):
        stored = Counter(int(r.data) for r in kinesis.records(name))
        assert stored == Counter(range(rest, 3000, 3)), name


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ("'nowhere'", {}, "There is no stream nowhere"),
        ("'no such name'", {}, "Row 0 of partition 0 cannot be written: its stream is 'no such"),
        ("CAST(NULL AS STRING)", {"streamName": ""}, "its stream is null, and the query names"),
    ],
)
def test_a_stream_that_cannot_be_written_to_is_named(
    spark: SparkSession, kinesis: KinesisServer, column: str, options: dict[str, str], said: str
) -> None:
    """With the row, or with the name that is not there."""
    df = spark.range(0, 5, 1, 1).selectExpr(*NUMBERED, f"{column} AS stream")
    raw: dict[str, Any] = {**kinesis.options(STREAM), **options}
    if not raw["streamName"]:
        del raw["streamName"]

    with pytest.raises(PySparkException, match=said):
        df.write.format("kinesis").options(**raw).mode("append").save()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("overwrite", "cannot be overwritten"),
        ("errorifexists", "(?i)use either the .append. "),
        ("ignore", "(?i)use either the .append. "),
    ],
)
def test_other_modes_are_refused(
    spark: SparkSession, kinesis: KinesisServer, mode: str, said: str
) -> None:
    """With a sentence, and nothing is written."""
    with pytest.raises(PySparkException, match=said):
        write(spark.range(5).selectExpr(*NUMBERED), kinesis, mode)
    assert kinesis.records(STREAM) == []
