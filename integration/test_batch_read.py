"""spark.read over LocalStack: exact counts across a reshard, between times, and during writes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from devtools.server import REGION
from integration.streams import wait_until_active

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from integration.conftest import MakeStream

# A session is started for this file, and everybody else may be busy.
pytestmark = pytest.mark.timeout(600)


def write(kinesis: Any, stream: str, ids: Iterable[int]) -> None:
    records = [{"Data": b"%d" % i, "PartitionKey": f"key{i % 50}"} for i in ids]
    for i in range(0, len(records), 100):
        assert (
            kinesis.put_records(StreamName=stream, Records=records[i : i + 100])[
                "FailedRecordCount"
            ]
            == 0
        )


def read(spark: SparkSession, endpoint: str, stream: str, **options: str) -> DataFrame:
    return (
        spark.read.format("kinesis")
        .options(streamName=stream, endpoint=endpoint, region=REGION, **options)
        .load()
    )


def check(rows: list[Any], expected: Iterable[int]) -> None:
    """Check that each record is there once, in the order of its shard and of its key."""
    assert Counter(int(bytes(row.data)) for row in rows) == Counter(expected)
    shards: dict[str, int] = {}
    keys: dict[str, int] = {}
    for row in rows:
        assert shards.get(row.shardId, 0) < int(row.sequenceNumber)
        assert keys.get(row.partitionKey, -1) < int(bytes(row.data))
        shards[row.shardId] = int(row.sequenceNumber)
        keys[row.partitionKey] = int(bytes(row.data))


def test_a_batch_is_exact_across_split_and_merge(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream
) -> None:
    """All shards, closed and open ones, each to its end; the same rows when read again."""
    stream = make_stream(shards=3)
    write(kinesis, stream, range(300))
    kinesis.split_shard(
        StreamName=stream,
        ShardToSplit="shardId-000000000000",
        NewStartingHashKey=str(2**126),
    )
    wait_until_active(kinesis, stream)
    write(kinesis, stream, range(300, 600))
    kinesis.merge_shards(
        StreamName=stream,
        ShardToMerge="shardId-000000000001",
        AdjacentShardToMerge="shardId-000000000002",
    )
    wait_until_active(kinesis, stream)
    write(kinesis, stream, range(600, 900))

    frame = read(spark, endpoint, stream)
    rows = frame.collect()

    check(rows, range(900))
    write(kinesis, stream, range(900, 1_000))
    assert frame.collect() == rows
    check(read(spark, endpoint, stream).collect(), range(1_000))


@pytest.mark.long
def test_a_batch_ends_while_a_writer_goes_on(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream
) -> None:
    """Everything that was there before is in; the rest starts where the batch ended."""
    stream = make_stream(shards=2)
    write(kinesis, stream, range(200))
    stop = threading.Event()
    written = 200

    def write_on() -> None:
        nonlocal written
        while not stop.wait(0.02):
            write(kinesis, stream, range(written, written + 10))
            written += 10

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        frame = read(spark, endpoint, stream)
        rows = frame.collect()
        assert frame.collect() == rows
    finally:
        stop.set()
        writing.join()

    assert 200 <= len(rows) < written
    check(rows, range(len(rows)))


def test_a_batch_lies_between_two_times(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream
) -> None:
    """To the millisecond, though LocalStack takes AT_TIMESTAMP in whole seconds."""
    stream = make_stream()
    for i in range(0, 100, 5):
        write(kinesis, stream, range(i, i + 5))
    arrived = {
        int(row.data): row.ms
        for row in read(spark, endpoint, stream)
        .selectExpr("cast(data as string) data", "unix_millis(approximateArrivalTimestamp) ms")
        .collect()
    }
    low, high = arrived[30], arrived[70]

    rows = read(
        spark,
        endpoint,
        stream,
        initialPosition=f"at_timestamp {low}",
        endingPosition=f"at_timestamp {high}",
    ).collect()

    expected = [i for i, ms in arrived.items() if low <= ms < high]
    assert 0 < len(expected) < 100
    check(rows, expected)


@pytest.mark.long
def test_an_idle_stream_is_empty(
    spark: SparkSession, endpoint: str, make_stream: MakeStream
) -> None:
    """A shard that never had a record ends at the tip."""
    assert read(spark, endpoint, make_stream(shards=3)).collect() == []
