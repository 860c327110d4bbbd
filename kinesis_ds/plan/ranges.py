"""Find the next offset, and the ranges between two offsets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.plan.held import Limits
from kinesis_ds.plan.position import (
    TRIM_HORIZON,
    Position,
    ShardEnd,
    may_hold_records,
    precedes,
    seen_later,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_ds.plan.held import Hold
    from kinesis_ds.plan.offsets import StreamOffset
    from kinesis_ds.plan.shards import ShardMap

_ASKED_FIRST = 64
_ANY = Limits(max_records=1, at_least_one=True)


@dataclass(frozen=True)
class ShardRange:
    """The records of one shard behind ``start``, up to and with ``end``.

    Attributes:
        shard_id: The shard.
        start: The range begins behind this position.
        end: The last position of the range, included.
    """

    shard_id: str
    start: Position
    end: Position


def advance(
    base: StreamOffset,
    available: Mapping[str, Position],
    listed: ShardMap,
    *,
    parents_first: bool = True,
) -> StreamOffset:
    """Return the furthest offset that may follow ``base``.

    Unless ``parents_first`` is off, a child shard moves only when ``base`` says that all its
    parents are read to the end: then records of one key stay in order across batches. The tombstone
    of an ended shard goes when the stream has forgotten the shard and all its children: a shard
    that is missing from one listing and comes back in the next must not be read a second time.
    """
    shards = without_forgotten(base.shards, listed)
    for shard_id, reached in available.items():
        start = base.shards.get(shard_id)
        if isinstance(start, ShardEnd) or (start is None and shard_id not in listed):
            continue
        parents = listed[shard_id].parents if parents_first and shard_id in listed else ()
        if any(
            p in listed and (p in base.shards or p in available) and not base.ended(p)
            for p in parents
        ):
            continue
        if start is None or precedes(start, reached) or seen_later(start, reached):
            shards[shard_id] = reached
    return base.with_shards(shards)


def without_forgotten(shards: Mapping[str, Position], listed: ShardMap) -> dict[str, Position]:
    """Return the positions without the ended shards that are neither listed nor a listed parent."""
    known = {*listed, *(parent for shard in listed.values() for parent in shard.parents)}
    return {s: p for s, p in shards.items() if not isinstance(p, ShardEnd) or s in known}


def has_news(base: StreamOffset, following: StreamOffset, hold: Hold) -> bool:
    """Return whether a batch from ``base`` to ``following`` would do anything for the query.

    Records do; so does a shard newly at its end, because its children wait for that to be logged. A
    position that moved over silence does not.
    """
    found = ranges(base, following)
    return any(isinstance(r.end, ShardEnd) for r in found) or any_records(found, hold)


def any_records(wanted: Sequence[ShardRange], hold: Hold) -> bool:
    """Return whether one of the ranges holds a record, or is not all held and so may hold one."""
    # Of a busy stream the first few tell, and an answer may be a message to another process.
    parts = (wanted[:_ASKED_FIRST], wanted[_ASKED_FIRST:])
    return any(
        held is None or held.records > 0
        for part in parts
        if part
        for held in hold(part, [_ANY] * len(part))
    )


def ranges(start: StreamOffset, end: StreamOffset) -> list[ShardRange]:
    """Return the ranges of a batch, ordered by shard id, without shards that did not move."""
    return forward_ranges(start.shards, end.shards)


def forward_ranges(
    starts: Mapping[str, Position], ends: Mapping[str, Position]
) -> list[ShardRange]:
    """Return the ranges that go forward, by shard id. Without a start, it is the oldest record."""
    return [
        ShardRange(shard_id, low, high)
        for shard_id, high in sorted(ends.items())
        if may_hold_records(low := starts.get(shard_id, TRIM_HORIZON), high)
    ]
