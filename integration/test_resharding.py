"""Reshards while a query reads: nothing is lost or repeated, and every key stays in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.conftest import MakeStream
from integration.reading import Account, ReaderQuery, account
from integration.streams import wait_until_active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = [f"key-{i}" for i in range(40)]


class KeyedProducer:
    """Writes one record a key in each round; a key's records are written one after the other."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self.written: set[str] = set()
        self._kinesis = kinesis
        self._stream = stream
        self._round = 0

    def write(self, rounds: int) -> None:
        for _ in range(rounds):
            answer = self._kinesis.put_records(
                StreamName=self._stream,
                Records=[{"Data": f"{k}:{self._round}".encode(), "PartitionKey": k} for k in KEYS],
            )
            assert answer["FailedRecordCount"] == 0
            self.written |= {f"{k}:{self._round}" for k in KEYS}
            self._round += 1


def keys_out_of_order(result: Account) -> list[tuple[str, int, int]]:
    """Neighbours of one key, in the order delivered, whose rounds do not rise."""
    last: dict[str, int] = {}
    wrong = []
    for _, _, data in result.records:
        key, _, number = data.partition(":")
        if int(number) <= last.get(key, -1):
            wrong.append((key, last[key], int(number)))
        last[key] = int(number)
    return wrong


def open_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    shards = kinesis.list_shards(StreamName=stream)["Shards"]
    live = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
    return sorted(live, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))


def split_first(kinesis: Any, stream: str) -> None:
    shard = open_shards(kinesis, stream)[0]
    low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
    kinesis.split_shard(
        StreamName=stream,
        ShardToSplit=shard["ShardId"],
        NewStartingHashKey=str((low + high) // 2 + 1),
    )
    wait_until_active(kinesis, stream)


def merge_last_two(kinesis: Any, stream: str) -> None:
    left, right = open_shards(kinesis, stream)[-2:]
    kinesis.merge_shards(
        StreamName=stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
    )
    wait_until_active(kinesis, stream)


@pytest.mark.timeout(600)
def test_split_and_merge_while_reading_keep_every_key_in_order(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Two generations of reshards under a running query."""
    stream = make_stream(shards=3)
    producer = KeyedProducer(kinesis, stream)
    options = {
        "streamName": stream,
        "endpoint": endpoint,
        "initialPosition": "trim_horizon",
        "shardFetchInterval": "2s",
    }
    with ReaderQuery(spark, tmp_path, options) as job:
        producer.write(10)
        job.wait_for(lambda: account(job.out).records, "the first records", 300)
        split_first(kinesis, stream)
        producer.write(10)
        merge_last_two(kinesis, stream)
        producer.write(10)
        split_first(kinesis, stream)
        producer.write(10)
        job.wait_for(
            lambda: len(account(job.out).records) >= len(producer.written), "all records", 120
        )
    result = account(tmp_path / "out")
    result.check(producer.written)
    assert keys_out_of_order(result) == []


@pytest.mark.timeout(600)
def test_a_reshard_while_the_query_is_down_is_caught_up(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Parents closed with unread records, children with records: read after the restart, in
    order.
    """
    stream = make_stream(shards=2)
    producer = KeyedProducer(kinesis, stream)
    options = {"streamName": stream, "endpoint": endpoint, "initialPosition": "trim_horizon"}
    producer.write(5)
    with ReaderQuery(spark, tmp_path, options) as job:
        job.wait_for(lambda: len(account(job.out).records) >= 5 * len(KEYS), "the first part", 300)
    producer.write(5)
    split_first(kinesis, stream)
    producer.write(5)
    merge_last_two(kinesis, stream)
    producer.write(5)
    with ReaderQuery(spark, tmp_path, options) as job:
        job.wait_for(
            lambda: len(account(job.out).records) >= len(producer.written), "all records", 120
        )
    result = account(tmp_path / "out")
    result.check(producer.written)
    assert keys_out_of_order(result) == []


@pytest.mark.timeout(600)
def test_latest_on_a_resharded_stream_starts_at_now_in_every_shard(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Children that exist at the start are not read from their oldest record."""
    stream = make_stream(shards=1)
    before = KeyedProducer(kinesis, stream)
    before.write(2)
    split_first(kinesis, stream)
    before.write(2)
    options = {"streamName": stream, "endpoint": endpoint, "initialPosition": "latest"}
    with ReaderQuery(spark, tmp_path, options) as job:
        job.wait_for((tmp_path / "checkpoint" / "commits" / "0").exists, "the start is pinned")
        after = KeyedProducer(kinesis, stream)
        after._round = 100
        after.write(3)
        job.wait_for(
            lambda: len(account(job.out).records) >= len(after.written), "new records", 300
        )
    account(tmp_path / "out").check(after.written)
