"""Which offset comes next, and which ranges a batch has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.option_values import InitialPosition, Latest
from kinesis_ds.position import (
    SHARD_END,
    TRIM_HORIZON,
    AtTimestamp,
    Position,
    ShardEnd,
    TrimHorizon,
    precedes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_ds.offsets import StreamOffset
    from kinesis_ds.shards import ShardMap

# The host's clock is trusted to start at "now" unless it differs this much from the service's.
_CLOCK_SKEW_S = 2.0


@dataclass(frozen=True)
class ShardRange:
    """The records of one shard in ``(start, end]``."""

    shard_id: str
    start: Position
    end: Position


def pin_now_ms(host_time: float, server_time: float | None) -> int:
    """The moment that ``latest`` means, in milliseconds since the epoch.

    A host whose clock is ahead would leave out records, so the service's clock (whole seconds, from
    its answer's Date header) decides when the two differ noticeably.
    """
    if server_time is not None and abs(host_time - server_time) > _CLOCK_SKEW_S:
        return int(server_time) * 1000
    return int(host_time * 1000)


def first_positions(initial: InitialPosition, listed: ShardMap, now_ms: int) -> dict[str, Position]:
    """Where a new query starts in each shard.

    ``latest`` becomes a fixed time, and shards closed by now hold nothing later. Shards found later
    start at TRIM_HORIZON, so a start at the oldest record names only shards without listed parents.
    """
    if isinstance(initial, Latest):
        return {s.shard_id: SHARD_END if s.closed else AtTimestamp(now_ms) for s in listed.values()}
    if isinstance(initial, TrimHorizon):
        return {
            s.shard_id: TRIM_HORIZON
            for s in listed.values()
            if not any(parent in listed for parent in s.parents)
        }
    return {s.shard_id: initial for s in listed.values()}


def advance(
    base: StreamOffset, available: Mapping[str, Position], listed: ShardMap
) -> StreamOffset:
    """The furthest offset that may follow ``base``.

    A child shard moves only when ``base`` says that all its parents are read to the end: then
    records of one key stay in order across batches. The tombstone of an ended shard goes when the
    stream has forgotten the shard and all its children: a shard that is missing from one listing
    and comes back in the next must not be read a second time.
    """
    known = {*listed, *(parent for shard in listed.values() for parent in shard.parents)}
    shards = {s: p for s, p in base.shards.items() if not isinstance(p, ShardEnd) or s in known}
    for shard_id, reached in available.items():
        start = base.shards.get(shard_id)
        if isinstance(start, ShardEnd):
            continue
        if start is None and shard_id not in listed:
            continue
        parents = listed[shard_id].parents if shard_id in listed else ()
        if any(
            (p in base.shards or p in available) and not base.ended(p)
            for p in parents
            if p in listed
        ):
            continue
        if start is None or precedes(start, reached):
            shards[shard_id] = reached
    return base.with_shards(shards)


def has_news(
    base: StreamOffset,
    following: StreamOffset,
    count: Callable[[str, Position, Position], int | None],
) -> bool:
    """Whether a batch from ``base`` to ``following`` would do anything for the query.

    Records do; so does a shard newly at its end, because its children wait for that to be logged. A
    position that moved over silence does not.
    """
    for shard_range in ranges(base, following):
        if isinstance(shard_range.end, ShardEnd):
            return True
        if count(shard_range.shard_id, shard_range.start, shard_range.end) != 0:
            return True
    return False


def ranges(start: StreamOffset, end: StreamOffset) -> list[ShardRange]:
    """The ranges of a batch, by shard; shards that did not move are left out."""
    found = []
    for shard_id in sorted(end.shards):
        low = start.shards.get(shard_id, TRIM_HORIZON)
        high = end.shards[shard_id]
        if precedes(low, high):
            found.append(ShardRange(shard_id, low, high))
    return found
