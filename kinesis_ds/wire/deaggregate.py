"""Aggregates of the Kinesis Producer Library taken apart: many user records in one Kinesis record.

The format is described in :mod:`kinesis_ds.wire.kpl`. What carries no mark, or another sum than its
own, is a plain record whose bytes happen to begin so. What carries both was made to be an
aggregate: if it is malformed then, that is an error and no guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import message

from kinesis_ds.limits import MAX_HASH_KEY, MIB, PARTITION_KEY_MAX_CHARS
from kinesis_ds.wire.kpl import DIGEST_BYTES, FRAME_BYTES, MAGIC, AggregatedRecord, ids_of, md5

_HASH_KEY_MAX_DIGITS = len(str(MAX_HASH_KEY))
# Ours. User records share what is stored once in an aggregate: keys, and the sequence number. A few
# bytes may thus stand for many, which nobody means who wants to save space.
_MAX_GROWTH = 64
_MAX_EXPANDED_BYTES = 128 * MIB
_ROW_BYTES = 128  # what a row costs in memory beside its key and its data


class MalformedAggregateError(ValueError):
    """Marked as an aggregate, its sum is right, and yet it is none."""


@dataclass(frozen=True)
class Aggregate:
    """The user records of one Kinesis record that belong to its shard, in order.

    Attributes:
        partition_keys, explicit_hash_keys, data: Of each.
        sub_numbers: The place of each in the aggregate, from 0. Those left out keep theirs.
        misplaced: How many were left out because they belong to another shard.
        ids: The record id of each, None where it has none; None when they were not asked for.
    """

    partition_keys: list[str]
    explicit_hash_keys: list[str | None]
    data: list[bytes]
    sub_numbers: list[int]
    misplaced: int
    ids: list[str | None] | None = None


def split(
    record: bytes, hash_range: tuple[int, int] | None, *, ids: bool = False
) -> Aggregate | None:
    """Take an aggregate apart.

    A user record whose hash key (the explicit one, else the MD5 of its partition key) is outside
    of the shard's is left out: the stream was resharded while the aggregate was under way, the KPL
    saw where it landed, and sent that user record again.

    Args:
        record: The data of a Kinesis record.
        hash_range: First and last hash key of the shard, or None to leave nothing out.
        ids: Whether record ids are wanted. What tags say wrongly is no id, and never an error.

    Returns:
        None when the record is none.

    Raises:
        MalformedAggregateError: Marked and summed up rightly, and no aggregate all the same.
    """
    if not record.startswith(MAGIC) or len(record) <= FRAME_BYTES:
        return None
    body = record[len(MAGIC) : -DIGEST_BYTES]
    if md5(body) != record[-DIGEST_BYTES:]:
        return None
    try:
        parsed = AggregatedRecord.FromString(body)
    except message.DecodeError as exc:
        raise MalformedAggregateError("it is not the message it should be") from exc
    if not parsed.IsInitialized():  # the C runtime does not look while it parses
        raise MalformedAggregateError("a user record is without its key or its data")
    keys = [_partition_key(raw) for raw in parsed.partition_key_table]
    hash_keys = [_hash_key(raw) for raw in parsed.explicit_hash_key_table]
    key_indices, hash_indices, data = _columns(parsed.records, len(keys), len(hash_keys))
    _check_growth(len(record), parsed.partition_key_table, key_indices)
    numbers = list(range(len(data)))
    found_ids = ids_of(parsed.records) if ids else None
    misplaced = 0
    if hash_range is not None:
        kept = _in_range(
            hash_range, parsed.partition_key_table, hash_keys, key_indices, hash_indices
        )
        if kept is not None:
            misplaced = len(data) - len(kept)
            numbers = kept
            key_indices = [key_indices[i] for i in kept]
            hash_indices = [hash_indices[i] for i in kept]
            data = [data[i] for i in kept]
            found_ids = None if found_ids is None else [found_ids[i] for i in kept]
    return Aggregate(
        partition_keys=[keys[i] for i in key_indices],
        explicit_hash_keys=[None if i is None else hash_keys[i] for i in hash_indices],
        data=data,
        sub_numbers=numbers,
        misplaced=misplaced,
        ids=found_ids,
    )


def _partition_key(raw: bytes) -> str:
    try:
        key = raw.decode()
    except UnicodeDecodeError as exc:
        raise MalformedAggregateError("a partition key is no UTF-8") from exc
    if len(key) > PARTITION_KEY_MAX_CHARS:
        raise MalformedAggregateError(
            f"a partition key has {len(key)} characters, and Kinesis allows "
            f"{PARTITION_KEY_MAX_CHARS}"
        )
    return key


def _hash_key(raw: bytes) -> str:
    if not raw.isdigit() or len(raw) > _HASH_KEY_MAX_DIGITS or int(raw) > MAX_HASH_KEY:
        raise MalformedAggregateError("an explicit hash key is no number from 0 to 2^128-1")
    return raw.decode("ascii")


def _columns(
    records: Any, keys: int, hash_keys: int
) -> tuple[list[int], list[int | None], list[bytes]]:
    """Of each user record the places of its keys in the tables, and its data."""
    key_indices: list[int] = []
    hash_indices: list[int | None] = []
    data: list[bytes] = []
    for record in records:
        key_indices.append(record.partition_key_index)
        hash_indices.append(
            record.explicit_hash_key_index if record.HasField("explicit_hash_key_index") else None
        )
        data.append(record.data)
    if max(key_indices, default=-1) >= keys:
        raise MalformedAggregateError("a user record names a partition key that is not there")
    if max((i for i in set(hash_indices) if i is not None), default=-1) >= hash_keys:
        raise MalformedAggregateError("a user record names an explicit hash key that is not there")
    return key_indices, hash_indices, data


def _check_growth(size: int, keys: Any, key_indices: list[int]) -> None:
    lengths = [len(key) for key in keys]
    expanded = size + len(key_indices) * _ROW_BYTES + sum(lengths[i] for i in key_indices)
    if expanded > min(size * _MAX_GROWTH, _MAX_EXPANDED_BYTES):
        raise MalformedAggregateError(
            f"its {size} bytes stand for {len(key_indices)} user records of {expanded} bytes"
        )


def _in_range(
    hash_range: tuple[int, int],
    keys: Any,
    hash_keys: list[str],
    key_indices: list[int],
    hash_indices: list[int | None],
) -> list[int] | None:
    """Which user records belong to the shard; None when all do."""
    first, last = hash_range
    if (first, last) == (0, MAX_HASH_KEY):
        return None
    low, high = first.to_bytes(DIGEST_BYTES, "big"), last.to_bytes(DIGEST_BYTES, "big")
    by_key = [
        low <= md5(key) <= high  # as Kinesis does
        for key in keys
    ]
    by_hash_key = [first <= int(key) <= last for key in hash_keys]
    if all(by_key) and all(by_hash_key):
        return None
    kept = [
        i
        for i, (key, hash_key) in enumerate(zip(key_indices, hash_indices, strict=True))
        if (by_key[key] if hash_key is None else by_hash_key[hash_key])
    ]
    return kept if len(kept) < len(key_indices) else None
