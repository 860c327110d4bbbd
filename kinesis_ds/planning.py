"""Which offset comes next, and which ranges a batch has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kinesis_ds.option_values import Latest
from kinesis_ds.position import (
    SHARD_END,
    TRIM_HORIZON,
    AtTimestamp,
    Position,
    ShardEnd,
    TrimHorizon,
    may_hold_records,
    precedes,
    seen_later,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinesis_ds.offsets import StreamOffset
    from kinesis_ds.shards import ShardMap

    # Where a query starts in a stream, as resolved for it.
    Start = Latest | TrimHorizon | AtTimestamp | Mapping[str, Position | Latest]

Name = TypeVar("Name")

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


def first_positions(initial: Start, listed: ShardMap, now_ms: int) -> dict[str, Position]:
    """Where a new query starts in each shard.

    ``latest`` becomes a fixed time, and shards closed by now hold nothing later. Shards found later
    start at TRIM_HORIZON, so a start at the oldest record names only shards without listed parents.

    Positions by shard are taken as they are; whoever has named a shard is done with those it came
    from. Shards that are not named and not among those are read from their oldest record.
    """
    if isinstance(initial, Latest):
        return {s.shard_id: SHARD_END if s.closed else AtTimestamp(now_ms) for s in listed.values()}
    if isinstance(initial, TrimHorizon):
        return {
            s.shard_id: TRIM_HORIZON
            for s in listed.values()
            if not any(parent in listed for parent in s.parents)
        }
    if isinstance(initial, AtTimestamp):
        return {s.shard_id: initial for s in listed.values()}
    positions: dict[str, Position] = dict.fromkeys(_ancestors(initial, listed), SHARD_END)
    for shard_id, position in initial.items():
        positions[shard_id] = AtTimestamp(now_ms) if isinstance(position, Latest) else position
    return positions


def _ancestors(shards: Mapping[str, object], listed: ShardMap) -> set[str]:
    """The listed shards that these came from."""
    found: set[str] = set()
    unseen = [shard for shard in shards if shard in listed]
    while unseen:
        for parent in listed[unseen.pop()].parents:
            if parent in listed and parent not in found:
                found.add(parent)
                unseen.append(parent)
    return found


def everything_until(
    start: Mapping[str, Position], listed: ShardMap, until_ms: int
) -> dict[str, Position]:
    """The end of a batch that takes all there is: a time in open shards, the end of closed ones.

    Args:
        start: Where the batch starts; a shard that is not in it starts at its oldest record.
        until_ms: A time that has passed, in milliseconds since the epoch.
    """
    known = {*listed, *(parent for shard in listed.values() for parent in shard.parents)}
    ends = {s: p for s, p in start.items() if not isinstance(p, ShardEnd) or s in known}
    for shard in listed.values():
        if isinstance(ends.get(shard.shard_id), ShardEnd):
            continue
        end = SHARD_END if shard.closed else AtTimestamp(until_ms)
        if may_hold_records(ends.get(shard.shard_id, TRIM_HORIZON), end):
            ends[shard.shard_id] = end
    return ends


def advance(
    base: StreamOffset,
    available: Mapping[str, Position],
    listed: ShardMap,
    *,
    parents_first: bool = True,
) -> StreamOffset:
    """The furthest offset that may follow ``base``.

    Unless ``parents_first`` is off, a child shard moves only when ``base`` says that all its
    parents are read to the end: then records of one key stay in order across batches. The tombstone
    of an ended shard goes when the stream has forgotten the shard and all its children: a shard
    that is missing from one listing and comes back in the next must not be read a second time.
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
        if parents_first and any(
            (p in base.shards or p in available) and not base.ended(p)
            for p in parents
            if p in listed
        ):
            continue
        if start is None or precedes(start, reached) or seen_later(start, reached):
            shards[shard_id] = reached
    return base.with_shards(shards)


def has_news(
    base: StreamOffset,
    following: StreamOffset,
    any_records: Callable[[Sequence[ShardRange]], bool],
) -> bool:
    """Whether a batch from ``base`` to ``following`` would do anything for the query.

    Records do; so does a shard newly at its end, because its children wait for that to be logged. A
    position that moved over silence does not.
    """
    found = ranges(base, following)
    return any(isinstance(r.end, ShardEnd) for r in found) or (bool(found) and any_records(found))


def ranges(start: StreamOffset, end: StreamOffset) -> list[ShardRange]:
    """The ranges of a batch, by shard; shards that did not move are left out."""
    found = []
    for shard_id in sorted(end.shards):
        low = start.shards.get(shard_id, TRIM_HORIZON)
        high = end.shards[shard_id]
        if may_hold_records(low, high):
            found.append(ShardRange(shard_id, low, high))
    return found


def share_out(limit: int, wanted: Mapping[Name, int], order: Sequence[Name]) -> dict[Name, int]:
    """Divide a limit among those who want parts of it: nobody gets more than he wants, nor less
    than another who wants more, but for the remainder, which goes to the first in ``order``.

    Args:
        order: All of ``wanted``, the most urgent first.
    """
    shares: dict[Name, int] = {}
    left = limit
    unserved = sorted(order, key=lambda name: wanted[name])
    while unserved and wanted[unserved[0]] * len(unserved) <= left:
        modest = unserved.pop(0)
        shares[modest] = wanted[modest]
        left -= wanted[modest]
    equal, remainder = divmod(left, len(unserved)) if unserved else (0, 0)
    for name in order:
        if name not in shares:
            shares[name] = equal + (remainder > 0)
            remainder -= remainder > 0
    return shares
