"""Shards in the double: how they are listed, split, merged and scaled, and when they expire."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.limits import MAX_HASH_KEY
from tests.support.model import Model, entry, is_open, shard_id, tiles


def indexes(shards: dict[str, dict[str, Any]]) -> list[int]:
    return [int(name.removeprefix("shardId-")) for name in shards]


def parents(shard: dict[str, Any]) -> list[int]:
    named = [shard.get("ParentShardId"), shard.get("AdjacentParentShardId")]
    return [int(name.removeprefix("shardId-")) for name in named if name]


def test_a_split_closes_one_shard_and_opens_two() -> None:
    """When the UPDATING state ends, not when it is asked for."""
    model = Model(stream_ready_s=2.0)
    model.create()
    model.ask("SplitShard", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    assert indexes(model.shards()) == [0]
    model.settle()

    parent, lower, upper = model.shards().values()
    assert not is_open(parent)
    assert parents(lower) == parents(upper) == [0]
    assert lower["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": "999"}
    assert upper["HashKeyRange"] == {
        "StartingHashKey": "1000",
        "EndingHashKey": str(MAX_HASH_KEY),
    }


def test_numbers_rise_along_the_lineage() -> None:
    """A closed shard ends at or above its last record, and its children begin above its end."""
    model = Model()
    model.create()
    [last] = model.put(b"x")
    model.split(0)
    model.put(b"y")
    model.merge(1, 2)

    shown = list(model.shards().values())
    assert int(shown[0]["SequenceNumberRange"]["EndingSequenceNumber"]) >= last
    for child in shown[1:]:
        for parent in parents(child):
            ending = shown[parent]["SequenceNumberRange"]["EndingSequenceNumber"]
            assert int(child["SequenceNumberRange"]["StartingSequenceNumber"]) > int(ending)


@pytest.mark.parametrize(
    ("shard", "key", "expected"),
    [
        (0, 2, "ok"),
        (0, 1, "InvalidArgumentException"),
        (0, 0, "InvalidArgumentException"),
        (0, MAX_HASH_KEY, "InvalidArgumentException"),
        (0, -1, "ValidationException"),
        (9, 5, "ResourceNotFoundException"),
    ],
)
def test_where_a_shard_may_be_split(shard: int, key: int, expected: str) -> None:
    """Inside its range, leaving keys on both sides."""
    model = Model()
    model.create()
    members = {"ShardToSplit": shard_id(shard), "NewStartingHashKey": str(key)}

    assert model.code("SplitShard", **members) == expected


@pytest.mark.parametrize(
    ("shard", "adjacent", "expected"),
    [
        (0, 1, "ok"),
        (1, 0, "ok"),
        (0, 2, "InvalidArgumentException"),
        (0, 0, "InvalidArgumentException"),
        (0, 9, "ResourceNotFoundException"),
    ],
)
def test_which_shards_may_be_merged(shard: int, adjacent: int, expected: str) -> None:
    """Neighbours, in either order."""
    model = Model()
    model.create(3)
    members = {"ShardToMerge": shard_id(shard), "AdjacentShardToMerge": shard_id(adjacent)}

    assert model.code("MergeShards", **members) == expected


def test_a_closed_shard_is_neither_split_nor_merged() -> None:
    """It was already."""
    model = Model()
    model.create(2)
    model.split(0)

    split = {"ShardToSplit": shard_id(0), "NewStartingHashKey": "1000"}
    merge = {"ShardToMerge": shard_id(0), "AdjacentShardToMerge": shard_id(1)}
    assert model.code("SplitShard", **split) == "InvalidArgumentException"
    assert model.code("MergeShards", **merge) == "InvalidArgumentException"


@pytest.mark.parametrize(
    ("start", "target", "listed"),
    [
        pytest.param(1, 2, 1 + 2, id="a split"),
        pytest.param(3, 6, 3 + 6, id="doubling splits each shard once"),
        pytest.param(6, 3, 6 + 3, id="halving merges neighbours"),
        pytest.param(2, 1, 2 + 1, id="a merge"),
        pytest.param(4, 5, None, id="up by a quarter"),
        pytest.param(5, 3, None, id="down, to no even share"),
    ],
)
def test_scaling(start: int, target: int, listed: int | None) -> None:
    """Ends in equal open shards, and every key's shards can be followed from parent to child."""
    model = Model()
    model.create(start)
    model.scale(target)

    shown = model.shards()
    opened = [s for s in shown.values() if is_open(s)]
    assert len(opened) == target
    assert tiles(opened)
    widths = [
        int(s["HashKeyRange"]["EndingHashKey"]) - int(s["HashKeyRange"]["StartingHashKey"])
        for s in opened
    ]
    assert max(widths) - min(widths) <= 2 * (start + target)
    assert listed is None or len(shown) == listed


def test_scaling_an_uneven_stream_keeps_tiny_shards_apart() -> None:
    """A boundary near a wanted one moves only where rounding put it."""
    model = Model()
    model.create()
    model.split(0, at=2)
    model.scale(4)

    opened = [s for s in model.shards().values() if is_open(s)]
    assert len(opened) == 4
    assert tiles(opened)
    assert min(int(s["HashKeyRange"]["StartingHashKey"]) for s in opened) == 0


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (4, "InvalidArgumentException"),
        (8, "ok"),
        (9, "LimitExceededException"),
        (2, "ok"),
        (1, "LimitExceededException"),
        (0, "ValidationException"),
    ],
)
def test_how_far_a_stream_scales(target: int, expected: str) -> None:
    """To double and to half at most."""
    model = Model()
    model.create(4)
    members = {"TargetShardCount": target, "ScalingType": "UNIFORM_SCALING"}

    assert model.code("UpdateShardCount", **members) == expected


def test_a_stream_scales_ten_times_a_day() -> None:
    """The eleventh waits for the first to be a day ago."""
    model = Model()
    model.create()
    for i in range(10):
        model.scale(2 - i % 2)
    members = {"TargetShardCount": 2, "ScalingType": "UNIFORM_SCALING"}

    assert model.code("UpdateShardCount", **members) == "LimitExceededException"
    model.now += 86_400
    assert model.code("UpdateShardCount", **members) == "ok"


def history() -> tuple[Model, float, float]:
    """Shard 0 split at t1, its children merged at t2: 0 | 1 2 | 3."""
    model = Model()
    model.create()
    model.now += 100
    model.split(0)
    split_at = model.now
    model.now += 100
    model.merge(1, 2)
    return model, split_at, model.now


@pytest.mark.parametrize(
    ("shard_filter", "expected"),
    [
        pytest.param(lambda _1, _2: None, [0, 1, 2, 3], id="none"),
        pytest.param(lambda _1, _2: {"Type": "FROM_TRIM_HORIZON"}, [0, 1, 2, 3], id="from oldest"),
        pytest.param(lambda _1, _2: {"Type": "AT_TRIM_HORIZON"}, [0], id="at oldest"),
        pytest.param(lambda _1, _2: {"Type": "AT_LATEST"}, [3], id="at latest"),
        pytest.param(
            lambda _1, _2: {"Type": "AFTER_SHARD_ID", "ShardId": shard_id(1)}, [2, 3], id="after"
        ),
        pytest.param(
            lambda t1, _2: {"Type": "AT_TIMESTAMP", "Timestamp": t1 + 50}, [1, 2], id="at a time"
        ),
        pytest.param(
            lambda t1, _2: {"Type": "AT_TIMESTAMP", "Timestamp": t1}, [0, 1, 2], id="at the split"
        ),
        pytest.param(
            lambda _1, t2: {"Type": "FROM_TIMESTAMP", "Timestamp": t2 - 1}, [1, 2, 3], id="from"
        ),
        pytest.param(
            lambda _1, t2: {"Type": "FROM_TIMESTAMP", "Timestamp": t2 + 1}, [3], id="from later"
        ),
        pytest.param(
            lambda _1, _2: {"Type": "FROM_TIMESTAMP", "Timestamp": 0}, [0, 1, 2, 3], id="long ago"
        ),
    ],
)
def test_shard_filters(shard_filter: Any, expected: list[int]) -> None:
    """As the service describes each of them."""
    model, split_at, merged_at = history()
    chosen = shard_filter(split_at, merged_at)
    members = {} if chosen is None else {"ShardFilter": chosen}

    assert indexes(model.shards(**members)) == expected
    assert indexes(model.shards(**members, MaxResults=1)) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"ShardFilter": {"Type": "AFTER_SHARD_ID"}}, "InvalidArgumentException"),
        ({"ShardFilter": {"Type": "AT_TIMESTAMP"}}, "InvalidArgumentException"),
        ({"ShardFilter": {"Type": "AT_LATEST", "Timestamp": 1}}, "InvalidArgumentException"),
        ({"ShardFilter": {"Type": "OTHER"}}, "ValidationException"),
        ({"ShardFilter": {}}, "ValidationException"),
        ({"MaxResults": 0}, "ValidationException"),
        ({"MaxResults": 10_001}, "ValidationException"),
    ],
)
def test_list_shards_refuses(members: dict[str, Any], expected: str) -> None:
    """What makes no sense."""
    model = Model()
    model.create()

    assert model.code("ListShards", **members) == expected


def test_pages_of_shards() -> None:
    """A token stands alone, is as good as the name it replaces, and expires."""
    model = Model()
    model.create(5)
    token = model.ask("ListShards", MaxResults=2)["NextToken"]

    assert list(model.shards(MaxResults=2)) == [shard_id(i) for i in range(5)]
    assert list(model.shards(ExclusiveStartShardId=shard_id(2))) == [shard_id(3), shard_id(4)]
    assert model.code("ListShards", NextToken=token) == "InvalidArgumentException"
    assert model.code("ListShards", None, NextToken="x") == "InvalidArgumentException"
    model.now += 300
    assert model.code("ListShards", None, NextToken=token) == "ok"
    model.now += 1
    assert model.code("ListShards", None, NextToken=token) == "ExpiredNextTokenException"


def test_thousands_of_shards_are_listed_a_thousand_at_a_time() -> None:
    """Whatever MaxResults says."""
    model = Model()
    model.create(2500)

    assert len(model.ask("ListShards", MaxResults=10_000)["Shards"]) == 1000
    assert len(model.shards()) == 2500


def test_a_closed_shard_expires_with_its_records() -> None:
    """A retention period after it was closed it is gone; its children still name it."""
    model, split_at, _ = history()
    model.now = split_at + 24 * 3600

    assert indexes(model.shards()) == [0, 1, 2, 3]
    model.now += 0.01
    shown = model.shards()
    assert indexes(shown) == [1, 2, 3]
    assert parents(shown[shard_id(1)]) == [0]
    lost = {"ShardId": shard_id(0), "ShardIteratorType": "TRIM_HORIZON"}
    assert model.code("GetShardIterator", **lost) == "ResourceNotFoundException"
    model.now += 24 * 3600
    assert indexes(model.shards()) == [3]


def test_a_closed_shard_may_be_forgotten_early() -> None:
    """By a test; an open one may not."""
    model, _, now = history()
    model.account.settle(now)
    model.account.forget_shard("s", shard_id(1))

    assert indexes(model.shards()) == [0, 2, 3]
    with pytest.raises(ValueError, match="is open"):
        model.account.forget_shard("s", shard_id(3))


def test_records_go_where_the_open_shards_are() -> None:
    """To the old shard while the split is under way, and to the children after it."""
    model = Model()
    model.create()
    model.ask("SplitShard", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    during = model.ask("PutRecords", Records=[entry(explicit=999), entry(explicit=1000)])
    model.settle()
    after = model.ask("PutRecords", Records=[entry(explicit=999), entry(explicit=1000)])

    assert [r["ShardId"] for r in during["Records"]] == [shard_id(0)] * 2
    assert [r["ShardId"] for r in after["Records"]] == [shard_id(1), shard_id(2)]
