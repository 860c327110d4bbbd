"""Enhanced fan-out rules on the one server that keeps them: ChildShards, five seconds, take-over.

Never for completeness across a reshard: this server drops the data of a parent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.server import Server
from integration.conftest import MakeStream
from integration.reading import ReaderQuery, account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put(kinesis: Any, stream: str, first: int, count: int) -> set[str]:
    ids = [f"r{i}" for i in range(first, first + count)]
    kinesis.put_records(
        StreamName=stream, Records=[{"Data": i.encode(), "PartitionKey": i} for i in ids]
    )
    return set(ids)


@pytest.mark.timeout(600)
def test_a_restart_within_five_seconds_waits_out_the_old_subscription(
    spark: SparkSession,
    ministack: Server,
    ministack_kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
) -> None:
    """Stopped, and started at once: ResourceInUse is waited out, nothing lost or repeated."""
    stream = make_stream(shards=2, client=ministack_kinesis)
    written = put(ministack_kinesis, stream, 0, 200)
    options = {
        "streamName": stream,
        "endpoint": ministack.endpoint,
        "initialPosition": "trim_horizon",
    }
    with ReaderQuery(spark, tmp_path, options) as job:
        job.wait_for(lambda: len(account(job.out).records) == 200, "the first part", 300)
    written |= put(ministack_kinesis, stream, 200, 200)
    with ReaderQuery(spark, tmp_path, options) as job:
        job.wait_for(lambda: len(account(job.out).records) == 400, "the second part", 300)
    account(tmp_path / "out").check(written)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_queries_with_one_consumer_name_wait_for_each_other(
    spark: SparkSession,
    ministack: Server,
    ministack_kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
) -> None:
    """The second takes over after five seconds; neither fails, neither loses or repeats a
    record.
    """
    stream = make_stream(shards=1, client=ministack_kinesis)
    options = {
        "streamName": stream,
        "endpoint": ministack.endpoint,
        "initialPosition": "trim_horizon",
        "consumerName": "shared",
    }
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    written = put(ministack_kinesis, stream, 0, 100)
    with ReaderQuery(spark, one, options) as first, ReaderQuery(spark, two, options) as second:
        for job in (first, second):
            job.wait_for(lambda j=job: len(account(j.out).records) == 100, "the first part", 300)
        written |= put(ministack_kinesis, stream, 100, 100)
        for job in (first, second):
            job.wait_for(lambda j=job: len(account(j.out).records) == 200, "the second part", 300)
            job.check_alive()
    account(one / "out").check(written)
    account(two / "out").check(written)


@pytest.mark.timeout(600)
def test_a_split_ends_the_parent_with_child_shards(
    spark: SparkSession,
    ministack: Server,
    ministack_kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
) -> None:
    """The parent's last event names its children; they are read from their oldest record."""
    stream = make_stream(shards=1, client=ministack_kinesis)
    options = {
        "streamName": stream,
        "endpoint": ministack.endpoint,
        "initialPosition": "trim_horizon",
        "shardFetchInterval": "2s",
    }
    with ReaderQuery(spark, tmp_path, options) as job:
        written = put(ministack_kinesis, stream, 0, 100)
        job.wait_for(lambda: len(account(job.out).records) == 100, "the parent's records", 300)
        (parent,) = ministack_kinesis.list_shards(StreamName=stream)["Shards"]
        ministack_kinesis.split_shard(
            StreamName=stream, ShardToSplit=parent["ShardId"], NewStartingHashKey=str(2**127)
        )
        written |= put(ministack_kinesis, stream, 100, 100)
        job.wait_for(lambda: len(account(job.out).records) == 200, "the children's records", 300)
    account(tmp_path / "out").check(written)
