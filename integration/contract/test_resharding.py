"""Splits, merges and UpdateShardCount: lineage, hash keys, numbers, and what ListShards gives."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from integration.contract.conftest import MakeStream
from integration.contract.stream import (
    HASH_KEYS,
    INVALID,
    Stream,
    hash_range,
    is_closed,
    parents,
    refused,
)
from integration.contract.targets import Target

SPLIT_AT = 12345


@dataclass(frozen=True)
class History:
    """A stream with two shards, the first of which was split when it had one record."""

    stream: Stream
    first: list[str]
    open: list[str]
    parent: dict[str, Any]
    record: str
    before: datetime.datetime
    after: datetime.datetime


@pytest.fixture(scope="module")
def history(target: Target) -> Iterator[History]:
    """Read only. Its times are the server's, more than a second away from the split."""

    def time_of_the_server() -> datetime.datetime:
        put = made.put(hash_key=HASH_KEYS - 1)
        iterator = made.iterator(
            put["ShardId"], "AT_SEQUENCE_NUMBER", StartingSequenceNumber=put["SequenceNumber"]
        )
        return made.read(iterator, at_least=1)[0]["ApproximateArrivalTimestamp"]

    with target.stream(2) as made:
        shards = made.open_shards()
        target.pass_time(1.1)
        before = time_of_the_server()
        target.pass_time(1.1)
        record = made.put(hash_key=0)["SequenceNumber"]
        made.split(shards[0], at=SPLIT_AT)
        target.pass_time(1.1)
        after = time_of_the_server()
        yield History(
            made,
            first=ids(shards),
            open=sorted(ids(made.open_shards())),
            parent=shards[0],
            record=record,
            before=before,
            after=after,
        )


def ids(shards: list[dict[str, Any]]) -> list[str]:
    return [shard["ShardId"] for shard in shards]


def every(history: History) -> list[str]:
    return sorted({*history.first, *history.open})


def assert_divide_all_hash_keys(shards: list[dict[str, Any]]) -> None:
    ranges = sorted(map(hash_range, shards))
    assert (ranges[0][0], ranges[-1][1]) == (0, HASH_KEYS - 1)
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ranges))


def read_all(stream: Stream) -> list[bytes]:
    return [data for shard in stream.shards() for data in stream.read_from(shard["ShardId"])]


def test_split_makes_two_children_of_one_parent(history: History) -> None:
    """The children have the parent's hash keys, those from NewStartingHashKey on in the second."""
    low, high = history.stream.children(history.parent)
    assert parents(low) == parents(high) == {history.parent["ShardId"]}
    first, last = hash_range(history.parent)
    assert hash_range(low) == (first, SPLIT_AT - 1)
    assert hash_range(high) == (SPLIT_AT, last)


def test_split_is_updating_then_active(target: Target, stream: Stream) -> None:
    """SplitShard returns at once with the stream UPDATING; a second change has to wait for it."""
    (shard,) = stream.shards()
    split = {"StreamName": stream.name, "NewStartingHashKey": str(HASH_KEYS // 2)}
    target.client.split_shard(ShardToSplit=shard["ShardId"], **split)
    assert stream.summary()["StreamStatus"] == "UPDATING"
    with refused("ResourceInUseException"):
        target.client.split_shard(ShardToSplit=shard["ShardId"], **split)
    stream.wait_until_active()


def test_writing_goes_on_while_updating(target: Target, stream: Stream) -> None:
    """Records are taken and read while the stream is UPDATING, and none of them is lost."""
    (shard,) = stream.shards()
    target.client.split_shard(
        StreamName=stream.name,
        ShardToSplit=shard["ShardId"],
        NewStartingHashKey=str(HASH_KEYS // 2),
    )
    written = []
    for i in range(20):
        written.append(f"r{i}".encode())
        stream.put(written[-1], hash_key=i * HASH_KEYS // 20)
    stream.wait_until_active()
    assert sorted(read_all(stream)) == sorted(written)


def test_closed_shard_has_an_ending_number(history: History) -> None:
    """A shard that was split or merged has an EndingSequenceNumber; an open one has none."""
    closed = [s["ShardId"] for s in history.stream.shards() if is_closed(s)]
    assert closed == [i for i in history.first if i not in history.open]


def test_ending_number_is_between_the_records_and_the_children(history: History) -> None:
    """The numbers of a closed shard have those of its records within, and its children's behind."""
    (closed,) = [s for s in history.stream.shards() if is_closed(s)]
    numbers = closed["SequenceNumberRange"]
    start, end = int(numbers["StartingSequenceNumber"]), int(numbers["EndingSequenceNumber"])
    assert start <= int(history.record) <= end
    children = history.stream.children(closed)
    starts = [int(c["SequenceNumberRange"]["StartingSequenceNumber"]) for c in children]
    assert min(starts) > end


def test_records_after_a_split_go_to_the_children(history: History) -> None:
    """A closed shard takes no more records; the child with the hash key does."""
    stream = history.stream
    for shard in stream.open_shards():
        assert stream.put(hash_key=hash_range(shard)[0])["ShardId"] == shard["ShardId"]


def test_merge_makes_one_child_of_two_parents(make_stream: MakeStream) -> None:
    """The child has the hash keys of both, and names both: parent and adjacent parent."""
    stream = make_stream(2)
    one, other = stream.open_shards()
    child = stream.merge(one, other)
    assert child["ParentShardId"] == one["ShardId"]
    assert child["AdjacentParentShardId"] == other["ShardId"]
    assert hash_range(child) == (0, HASH_KEYS - 1)
    assert ids(stream.open_shards()) == [child["ShardId"]]


def test_no_record_is_lost_by_resharding(make_stream: MakeStream) -> None:
    """What was written before, between and after a split and a merge can all be read."""
    stream = make_stream(2)
    written = []

    def write() -> None:
        data = [f"r{len(written) + i}".encode() for i in range(10)]
        stream.client.put_records(
            StreamName=stream.name,
            Records=[{"PartitionKey": d.decode(), "Data": d} for d in data],
        )
        written.extend(data)

    write()
    one, other = stream.open_shards()
    _, high = stream.split(one)
    write()
    stream.merge(high, other)
    write()
    assert sorted(read_all(stream)) == sorted(written)


def test_shards_apart_are_not_merged(make_stream: MakeStream) -> None:
    """Only shards whose hash keys follow each other can be merged."""
    stream = make_stream(3)
    one, _, other = stream.open_shards()
    with refused(*INVALID):
        stream.merge(one, other)


def test_split_outside_the_shard_is_refused(history: History) -> None:
    """NewStartingHashKey has to be among the hash keys of the shard."""
    stream = history.stream
    first = stream.open_shards()[0]
    with refused(*INVALID):
        stream.split(first, at=hash_range(first)[1] + 1)


def test_closed_shard_is_not_split(history: History) -> None:
    """A shard that was split or merged cannot be split again."""
    (closed,) = [s for s in history.stream.shards() if is_closed(s)]
    with refused(*INVALID, "ResourceInUseException"):
        history.stream.split(closed)


def test_update_shard_count_makes_equal_shards(target: Target, make_stream: MakeStream) -> None:
    """The open shards divide all hash keys evenly, descend from those before, and lose nothing."""
    stream = make_stream(2)
    before = ids(stream.open_shards())
    written = [stream.put(f"r{i}".encode(), hash_key=i * HASH_KEYS // 4) for i in range(4)]
    answer = target.client.update_shard_count(
        StreamName=stream.name, TargetShardCount=4, ScalingType="UNIFORM_SCALING"
    )
    assert (answer["CurrentShardCount"], answer["TargetShardCount"]) == (2, 4)
    stream.wait_until_active()
    shards = stream.open_shards()
    assert len(shards) == 4
    assert_divide_all_hash_keys(shards)
    sizes = [last - first for first, last in map(hash_range, shards)]
    assert max(sizes) - min(sizes) <= 4
    every_shard = {s["ShardId"]: s for s in stream.shards()}
    assert before == [i for i in every_shard if i in before]
    assert all(parents(shard) & every_shard.keys() for shard in shards)
    assert len(read_all(stream)) == len(written)


@pytest.mark.parametrize("count", [1, 9], ids=["below", "above"])
def test_shard_count_changes_by_a_factor_of_two_at_most(
    target: Target, make_stream: MakeStream, count: int
) -> None:
    """UpdateShardCount below half of the open shards, or beyond their double, is refused."""
    stream = make_stream(4)
    with refused(*INVALID, "LimitExceededException"):
        target.client.update_shard_count(
            StreamName=stream.name, TargetShardCount=count, ScalingType="UNIFORM_SCALING"
        )


def test_pages_of_shards_follow_by_token_alone(target: Target, history: History) -> None:
    """NextToken stands for the stream and the position; each shard comes once."""
    page = target.client.list_shards(StreamName=history.stream.name, MaxResults=1)
    found = ids(page["Shards"])
    while token := page.get("NextToken"):
        page = target.client.list_shards(NextToken=token, MaxResults=1)
        assert len(page["Shards"]) <= 1
        found += ids(page["Shards"])
    assert found == every(history)


def test_token_with_a_stream_is_refused(target: Target, history: History) -> None:
    """StreamName and NextToken exclude each other."""
    name = history.stream.name
    token = target.client.list_shards(StreamName=name, MaxResults=1)["NextToken"]
    with refused(*INVALID):
        target.client.list_shards(StreamName=name, NextToken=token)


@pytest.mark.takes(301)
def test_token_expires_after_five_minutes(target: Target, history: History) -> None:
    """A NextToken that is older than 300 seconds gets ExpiredNextTokenException."""
    page = target.client.list_shards(StreamName=history.stream.name, MaxResults=1)
    target.pass_time(301)
    with refused("ExpiredNextTokenException"):
        target.client.list_shards(NextToken=page["NextToken"])


def test_list_begins_after_a_shard(history: History) -> None:
    """ExclusiveStartShardId leaves out the shards up to this one."""
    expected = every(history)[2:]
    listed = history.stream.shards(ExclusiveStartShardId=every(history)[1])
    assert ids(listed) == expected


def filtered(history: History, kind: str, **more: Any) -> list[str]:
    return sorted(ids(history.stream.shards(ShardFilter={"Type": kind, **more})))


def test_filter_at_latest_gives_open_shards(history: History) -> None:
    """AT_LATEST: only the shards that are open now."""
    assert filtered(history, "AT_LATEST") == history.open


def test_filter_at_trim_horizon_gives_the_oldest_shards(history: History) -> None:
    """AT_TRIM_HORIZON: the shards that were open at the trim horizon."""
    assert filtered(history, "AT_TRIM_HORIZON") == sorted(history.first)


def test_filter_from_trim_horizon_gives_all_shards(history: History) -> None:
    """FROM_TRIM_HORIZON: all shards within the retention period, as without a filter."""
    assert filtered(history, "FROM_TRIM_HORIZON") == every(history)


def test_filter_after_shard_id_gives_later_shards(history: History) -> None:
    """AFTER_SHARD_ID: the shards whose ids follow this one."""
    after = every(history)[1]
    assert filtered(history, "AFTER_SHARD_ID", ShardId=after) == every(history)[2:]


def test_filter_at_timestamp_gives_the_shards_open_then(history: History) -> None:
    """AT_TIMESTAMP: the shards that were open at that time."""
    assert filtered(history, "AT_TIMESTAMP", Timestamp=history.before) == sorted(history.first)
    assert filtered(history, "AT_TIMESTAMP", Timestamp=history.after) == history.open


def test_filter_from_timestamp_gives_the_shards_open_since(history: History) -> None:
    """FROM_TIMESTAMP: the open shards, and the closed ones that ended at that time or later."""
    assert filtered(history, "FROM_TIMESTAMP", Timestamp=history.before) == every(history)
    assert filtered(history, "FROM_TIMESTAMP", Timestamp=history.after) == history.open


def test_filter_without_its_value_is_refused(history: History) -> None:
    """AFTER_SHARD_ID and AT_TIMESTAMP are refused without a shard or a time."""
    for kind in ("AFTER_SHARD_ID", "AT_TIMESTAMP"):
        with refused(*INVALID):
            filtered(history, kind)


def test_description_pages_its_shards(target: Target, history: History) -> None:
    """DescribeStream gives at most Limit shards, and says whether there are more."""
    name = history.stream.name
    first = target.client.describe_stream(StreamName=name, Limit=2)["StreamDescription"]
    assert (len(first["Shards"]), first["HasMoreShards"]) == (2, True)
    rest = target.client.describe_stream(
        StreamName=name, ExclusiveStartShardId=first["Shards"][-1]["ShardId"]
    )["StreamDescription"]
    assert ids(first["Shards"]) + ids(rest["Shards"]) == every(history)
    assert not rest["HasMoreShards"]
