"""Prediction: which shard takes a record."""

from __future__ import annotations

import hashlib

import pytest

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.shards import Shard
from kinesis_ds.writer.prediction import Prediction, hash_key_of
from kinesis_ds.writer.records import Record, plain

HALF = 2**127


def record(key: str = "k", hash_key: int | None = None) -> Record:
    return plain(b"", key, None if hash_key is None else str(hash_key), len(key), 0)


def halves() -> dict[str, Shard]:
    return {
        "old": Shard("old", closed=True),
        "high": Shard("high", ("old",), hash_range=(HALF, MAX_HASH_KEY)),
        "low": Shard("low", ("old",), hash_range=(0, HALF - 1)),
    }


@pytest.mark.parametrize(
    ("hash_key", "shard"), [(0, "low"), (HALF - 1, "low"), (HALF, "high"), (MAX_HASH_KEY, "high")]
)
def test_both_ends_of_a_hash_range_belong_to_its_shard(hash_key: int, shard: str) -> None:
    """Ranges include their first and their last hash key."""
    assert Prediction(halves()).shard_of(record(hash_key=hash_key)) == shard


@pytest.mark.parametrize("key", ["", "a", "order-17", "schlüssel", "鍵"])
def test_without_an_explicit_hash_key_the_md5_of_the_key_decides(key: str) -> None:
    """The MD5 of the UTF-8 bytes, as a number of 128 bits."""
    expected = int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16)

    assert hash_key_of(record(key)) == expected
    assert Prediction(halves()).shard_of(record(key)) == ("low" if expected < HALF else "high")


def test_an_explicit_hash_key_overrules_the_partition_key() -> None:
    """Both given: the partition key does not matter."""
    shards = {Prediction(halves()).shard_of(record(f"key{n}", HALF)) for n in range(20)}

    assert shards == {"high"}


def test_one_open_shard_takes_everything() -> None:
    """Whatever the listing says of closed ones."""
    shards = {"s1": Shard("s1", closed=True), "s2": Shard("s2", ("s1",))}

    assert Prediction(shards).shard_of(record(hash_key=HALF)) == "s2"
    assert Prediction(shards).open == ("s2",)


def test_nothing_is_predicted_where_no_open_shard_is_known() -> None:
    """Neither without shards nor in a hole of a listing that was made during a reshard."""
    with_hole = halves() | {"high": Shard("high", hash_range=(HALF + 10, MAX_HASH_KEY))}

    assert not Prediction(None).known
    assert Prediction(None).shard_of(record()) == ""
    assert Prediction(None).hash_range("low") is None
    assert Prediction(with_hole).shard_of(record(hash_key=HALF)) == ""
    assert Prediction(with_hole).shard_of(record(hash_key=HALF + 10)) == "high"


def test_ranges_of_closed_shards_are_known() -> None:
    """A record that was under way when the shard closed may have landed in it."""
    prediction = Prediction(halves())

    assert prediction.hash_range("old") == (0, MAX_HASH_KEY)
    assert prediction.hash_range("low") == (0, HALF - 1)
    assert prediction.hash_range("never heard of") is None
    assert prediction.open == ("low", "high")
