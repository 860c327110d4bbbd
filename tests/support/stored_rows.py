"""The rows that a reader of aggregates gets from a stream of the double."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kinesis_ds.wire.deaggregate import parse_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.testing import KinesisServer

_ITEM_BYTES = 8


@dataclass(frozen=True)
class StoredRow:
    """One row of a Kinesis record. Its data begins with its item, as in :func:`data_of`.

    Attributes:
        number, place: The sequence number of its Kinesis record, and where it is in that.
        record_id: The id that the sink gave it, if any.
    """

    item: int
    data: bytes
    partition_key: str
    shard_id: str
    number: int
    place: int
    record_id: str | None


def stored_rows(kinesis: KinesisServer, stream: str, *, misplaced: bool = False) -> list[StoredRow]:
    """Return every row that a reader gets, in the order of the sequence numbers.

    This is also the order within a shard, and of records of one key across reshards. User records
    that do not belong to their shard are left out, as all readers of aggregates do, unless
    ``misplaced`` is set.
    """
    ranges = {
        shard["ShardId"]: (
            int(shard["HashKeyRange"]["StartingHashKey"]),
            int(shard["HashKeyRange"]["EndingHashKey"]),
        )
        for shard in kinesis.shards(stream)
    }
    found = []
    for record in sorted(kinesis.records(stream), key=lambda r: r.sequence_number):
        shard, number = record.shard_id, record.sequence_number
        data = record.data
        aggregate = parse_aggregate(data, None if misplaced else ranges[shard], ids=True)
        if aggregate is None:
            key = record.partition_key or ""
            found.append(StoredRow(item_of(data), data, key, shard, number, 0, None))
            continue
        assert aggregate.ids is not None
        found += [
            StoredRow(item_of(user), user, key, shard, number, place, record_id)
            for user, key, place, record_id in zip(
                aggregate.data,
                aggregate.partition_keys,
                aggregate.sub_numbers,
                aggregate.ids,
                strict=True,
            )
        ]
    return found


def item_of(data: bytes) -> int:
    """Return the item that :func:`data_of` wrote into this data."""
    return int(data[:_ITEM_BYTES])


def times(rows: Iterable[StoredRow]) -> Counter[int]:
    """Return how often each item is there."""
    return Counter(row.item for row in rows)


def without_repeats(rows: Iterable[StoredRow]) -> list[StoredRow]:
    """Return the first row of each record id: the simplest way to use the ids.

    Rows without an id are all kept. Repeats must be alike.
    """
    first: dict[str, StoredRow] = {}
    kept = []
    for row in rows:
        if row.record_id is None:
            kept.append(row)
        elif row.record_id not in first:
            first[row.record_id] = row
            kept.append(row)
        else:
            other = first[row.record_id]
            assert (other.data, other.partition_key) == (row.data, row.partition_key), (other, row)
    return kept


def out_of_order(rows: Iterable[StoredRow]) -> list[tuple[str, int, int]]:
    """Return neighbours of one key whose first occurrences are not in the order of their items."""
    by_key: dict[str, list[int]] = defaultdict(list)
    seen: set[int] = set()
    for row in rows:
        if row.item not in seen:
            seen.add(row.item)
            by_key[row.partition_key].append(row.item)
    return [
        (key, before, after)
        for key, items in by_key.items()
        for before, after in pairwise(items)
        if after < before
    ]
