"""Take apart aggregates of the KPL: Kinesis records that hold many user records. Pure.

The format is described in :mod:`kinesis_ds.wire.kpl`. A record without the mark, or whose checksum
is wrong, is a plain record. A record with both was made as an aggregate: if it is malformed, that
is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from google.protobuf import message

from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_HASH_KEY, MIB, PARTITION_KEY_MAX_CHARS
from kinesis_ds.wire.kpl import DIGEST_BYTES, FRAME_BYTES, MAGIC, AggregatedRecord, md5_digest
from kinesis_ds.wire.record_ids import record_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_ds.plan.decoding import Decoding
    from kinesis_ds.wire.columns import ReceivedColumns

_HASH_KEY_MAX_DIGITS = len(str(MAX_HASH_KEY))
# Ours. An aggregate stores a key once for many user records, so a few bytes may expand to very
# many. Above these limits it is an attack or an error: nobody who wants to save space writes this.
_MAX_GROWTH = 64
_MAX_EXPANDED_BYTES = 128 * MIB
_ROW_BYTES = 128  # the memory that a row costs, besides its key and its data

# Logged once by each reader of a shard. To leave records out is right only if the producer sends
# them again.
MISPLACED_WARNING = (
    "%s: left out records of aggregates whose keys belong to other shards. The KPL sends such "
    "records again, to those shards. Where another producer made the aggregates they are lost; "
    "with deaggregate=false, aggregates come whole"
)


class MalformedAggregateError(ValueError):
    """The record has the mark and the checksum of an aggregate, but its content is malformed."""


@dataclass(frozen=True)
class Aggregate:
    """The user records of one aggregate that belong to its shard, in order.

    Attributes:
        partition_keys, explicit_hash_keys, data: Those of each user record.
        sub_numbers: The index of each user record in the aggregate, from 0. Records that are left
            out are counted too.
        misplaced: The number of user records left out because they belong to another shard.
        ids: The record id of each user record, None where it has none. The list is None if ids were
            not asked for.
    """

    partition_keys: list[str]
    explicit_hash_keys: list[str | None]
    data: list[bytes]
    sub_numbers: list[int]
    misplaced: int
    ids: list[str | None] | None = None


@dataclass
class UserRecords:
    """The rows of several Kinesis records, some of them aggregates. Lists have one item a row.

    Attributes:
        keys, hash_keys, data: Partition key, explicit hash key and data of each row.
        sub_numbers: The index of each row in its aggregate, from 0; 0 in a plain record.
        origin: The index of the Kinesis record that each row came from.
        ids: The record id of each row. Without metadata it is not complete and not used.
        misplaced: The number of user records left out because they belong to another shard.
    """

    keys: list[str | None] = field(default_factory=list)
    hash_keys: list[str | None] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    sub_numbers: list[int] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    misplaced: int = 0


def maybe_aggregated(data: pa.Array) -> bool:
    """Return whether a record may be an aggregate. It is quick: most streams have none."""
    return bool(pc.any(pc.starts_with(data, MAGIC)).as_py())


def deaggregate(columns: ReceivedColumns, decoding: Decoding) -> UserRecords:
    """Return the rows of all records, aggregates taken apart.

    Raises:
        ProtocolError: An aggregate is malformed.
    """
    rows = UserRecords()
    keys = columns.keys.to_pylist()
    for i, blob in enumerate(columns.data.to_pylist()):
        try:
            aggregate = parse_aggregate(blob, decoding.hash_range, ids=decoding.metadata)
        except MalformedAggregateError as exc:
            raise ProtocolError(
                f"The aggregate with sequence number {columns.numbers[i]} is malformed: {exc}.",
                "Set deaggregate=false to read such records as they were put.",
            ) from exc
        if aggregate is None:
            rows.keys.append(keys[i])
            rows.hash_keys.append(None)
            rows.data.append(blob)
            rows.sub_numbers.append(0)
            rows.origin.append(i)
            rows.ids.append(None)
            continue
        rows.keys += aggregate.partition_keys
        rows.hash_keys += aggregate.explicit_hash_keys
        rows.data += aggregate.data
        rows.sub_numbers += aggregate.sub_numbers
        rows.origin += [i] * len(aggregate.data)
        rows.ids += aggregate.ids or ()
        rows.misplaced += aggregate.misplaced
    return rows


def parse_aggregate(
    record: bytes, hash_range: tuple[int, int] | None, *, ids: bool = False
) -> Aggregate | None:
    """Take one aggregate apart.

    A user record is left out if its hash key (the explicit one, or else the MD5 of its partition
    key) is outside the shard's range. Then the stream was resharded while the aggregate was on its
    way, and the KPL, which sees where the aggregate landed, has sent that user record again.

    Args:
        record: The data of a Kinesis record.
        hash_range: First and last hash key of the shard, or None to leave nothing out.
        ids: Whether record ids are wanted. Tags of another form are no id, and never an error.

    Returns:
        None if the record is not an aggregate.

    Raises:
        MalformedAggregateError: Mark and checksum are right, but the content is malformed.
    """
    if not record.startswith(MAGIC) or len(record) <= FRAME_BYTES:
        return None
    body = record[len(MAGIC) : -DIGEST_BYTES]
    if md5_digest(body) != record[-DIGEST_BYTES:]:
        return None
    try:
        parsed = AggregatedRecord.FromString(body)
    except message.DecodeError as exc:
        raise MalformedAggregateError("it is not the message it should be") from exc
    if not parsed.IsInitialized():  # the C runtime does not check this while it parses
        raise MalformedAggregateError("a user record is without its key or its data")
    keys = [_partition_key(raw) for raw in parsed.partition_key_table]
    hash_keys = [_hash_key(raw) for raw in parsed.explicit_hash_key_table]
    key_indices, hash_indices, data = _columns(parsed.records, len(keys), len(hash_keys))
    _check_growth(len(record), parsed.partition_key_table, key_indices)
    numbers = list(range(len(data)))
    found_ids = record_ids(parsed.records) if ids else None
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
    """Return, for each user record, the indices of its keys in the two tables, and its data."""
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
    """Return the indices of the user records that belong to the shard; None if all do."""
    first, last = hash_range
    if (first, last) == (0, MAX_HASH_KEY):
        return None
    low, high = first.to_bytes(DIGEST_BYTES, "big"), last.to_bytes(DIGEST_BYTES, "big")
    by_key = [low <= md5_digest(key) <= high for key in keys]
    by_hash_key = [first <= int(key) <= last for key in hash_keys]
    if all(by_key) and all(by_hash_key):
        return None
    kept = [
        i
        for i, (key, hash_key) in enumerate(zip(key_indices, hash_indices, strict=True))
        if (by_key[key] if hash_key is None else by_hash_key[hash_key])
    ]
    return kept if len(kept) < len(key_indices) else None
