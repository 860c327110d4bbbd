"""Which shard a record goes into: the MD5 of its key, or the hash key that it names."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from integration.contract.stream import HASH_KEYS, INVALID, Stream, hash_range, refused
from integration.contract.targets import Target

KEYS = [*(f"key-{i}" for i in range(40)), "ä", "日本語", "🜁", " ", "x" * 256, "é" * 256]


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream with five shards."""
    with target.stream(5) as made:
        yield made


@pytest.fixture(scope="module")
def shards(stream: Stream) -> list[dict[str, Any]]:
    """Its shards, in the order of their hash keys."""
    return stream.open_shards()


def holder(shards: list[dict[str, Any]], hash_key: int) -> str:
    """The shard whose range has this hash key."""
    (shard,) = [s for s in shards if hash_range(s)[0] <= hash_key <= hash_range(s)[1]]
    return shard["ShardId"]


def test_new_shards_divide_all_hash_keys(shards: list[dict[str, Any]]) -> None:
    """The ranges of the shards follow each other without a gap from 0 to 2^128 - 1."""
    ranges = [hash_range(shard) for shard in shards]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == HASH_KEYS - 1
    assert all(one[1] + 1 == next_one[0] for one, next_one in itertools.pairwise(ranges))


def test_new_shards_are_of_equal_size(shards: list[dict[str, Any]]) -> None:
    """The ranges differ by less than the number of shards."""
    sizes = [last - first for first, last in map(hash_range, shards)]
    assert max(sizes) - min(sizes) < len(shards)


def test_partition_key_is_routed_by_its_md5(stream: Stream, shards: list[dict[str, Any]]) -> None:
    """The MD5 of the key's UTF-8 bytes, as a number of 128 bits, is the record's hash key."""
    answer = stream.client.put_records(
        StreamName=stream.name, Records=[{"PartitionKey": key, "Data": b"x"} for key in KEYS]
    )
    expected = [
        holder(shards, int(hashlib.md5(key.encode()).hexdigest(), 16))  # noqa: S324
        for key in KEYS
    ]
    assert [record["ShardId"] for record in answer["Records"]] == expected


def test_explicit_hash_key_overrides_the_partition_key(
    stream: Stream, shards: list[dict[str, Any]]
) -> None:
    """ExplicitHashKey is taken instead of the MD5, up to both ends of each shard's range."""
    for shard in shards:
        for hash_key in hash_range(shard):
            assert stream.put(hash_key=hash_key)["ShardId"] == shard["ShardId"]


def test_explicit_hash_key_leaves_the_partition_key_alone(
    stream: Stream, shards: list[dict[str, Any]]
) -> None:
    """A record is read with the partition key that it was written with."""
    last = shards[-1]
    stream.put(b"here", hash_key=hash_range(last)[0])
    records = stream.read(stream.iterator(last["ShardId"]), at_least=1)
    assert {r["PartitionKey"] for r in records if r["Data"] == b"here"} == {"key"}


@pytest.mark.parametrize("hash_key", [HASH_KEYS, -1], ids=["above", "below"])
def test_hash_key_outside_the_space_is_refused(stream: Stream, hash_key: int) -> None:
    """An ExplicitHashKey below 0 or above 2^128 - 1 is invalid."""
    with refused(*INVALID):
        stream.put(hash_key=hash_key)


def test_hash_key_that_is_no_number_is_refused(stream: Stream) -> None:
    """An ExplicitHashKey is a decimal number."""
    with refused(*INVALID):
        stream.client.put_record(
            StreamName=stream.name, PartitionKey="key", Data=b"x", ExplicitHashKey="0x10"
        )
