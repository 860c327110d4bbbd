"""The ranges that a batch read, or a batch of ``Trigger.Once``, has in a stream. Pure.

The positions that a user gives cut the stream in two: the ancestors of a named shard lie before the
cut, its descendants behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kinesis_ds.errors import OptionError
from kinesis_ds.plan.lineage import ancestors, descendants
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    ShardEnd,
    may_hold_records,
)
from kinesis_ds.plan.ranges import ShardRange, forward_ranges, without_forgotten
from kinesis_ds.plan.start import Latest, few, first_positions

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import End, Start


def batch_ranges(start: Start, end: End, listed: ShardMap, now_ms: int) -> list[ShardRange]:
    """Return the ranges of a batch from ``start`` to ``end``, sorted by shard id.

    Args:
        start: Where the batch starts in the stream.
        end: Where it ends.
        listed: The shards of the stream. List them when every moment that ends the batch has
            passed: then a shard that is missing holds nothing that arrived earlier.
        now_ms: What ``latest`` means, in milliseconds since the epoch.

    Raises:
        OptionError: The positions belong to other shards, or some shards have none.
    """
    starts = first_positions(start, listed, now_ms)
    if isinstance(start, Mapping):
        _check_numbers("initialPosition", start, listed)
    if isinstance(end, Mapping):
        _check_numbers("endingPosition", end, listed)
        ends = _cut(end, listed, now_ms)
    else:
        ends = {s: _end_of(s, end, listed, now_ms) for s in listed}
    return forward_ranges(starts, ends)


def _end_of(shard_id: str, end: Position | Latest, listed: ShardMap, now_ms: int) -> Position:
    if not isinstance(end, Latest):
        return end
    # The end of a closed shard is proved by Kinesis, where a moment is only looked for.
    return SHARD_END if listed[shard_id].closed else AtTimestamp(now_ms)


def _cut(
    named: Mapping[str, Position | Latest], listed: ShardMap, now_ms: int
) -> dict[str, Position]:
    """Return the end of each shard. The descendants of named shards are not read and have none."""
    ends = {shard_id: _end_of(shard_id, end, listed, now_ms) for shard_id, end in named.items()}
    open_ended = [
        s for s, end in ends.items() if isinstance(end, ShardEnd) and not listed[s].closed
    ]
    if open_ended:
        raise OptionError(
            f"endingPosition is SHARD_END for {_names(open_ended)}, which Kinesis has not closed.",
            "Use LATEST to read all they hold by now.",
        )
    before, behind = ancestors(ends, listed), descendants(ends, listed)
    unclear = [s for s in listed if s not in ends and (s in before) == (s in behind)]
    if unclear:
        raise OptionError(
            f"endingPosition names some shards of the stream, and leaves out {_names(unclear)}.",
            "Name them too: with LATEST all they hold by now is read. A shard that is SHARD_END in "
            "initialPosition is not read.",
        )
    return {**dict.fromkeys(before - ends.keys(), SHARD_END), **ends}


def _check_numbers(option: str, named: Mapping[str, Position | Latest], listed: ShardMap) -> None:
    foreign = [
        s
        for s, p in named.items()
        if isinstance(p, (At, After)) and p.number < int(listed[s].first_sequence_number) - 1
    ]
    if foreign:
        raise OptionError(
            f"The sequence number that {option} names for {_names(foreign)} is lower than any of "
            "its own.",
            "Is it one of another shard?",
        )


def _names(shards: Collection[str]) -> str:
    return f"{'shard' if len(shards) == 1 else 'shards'} {few(shards, most=10)}"


def everything_until(
    start: Mapping[str, Position], listed: ShardMap, until_ms: int
) -> dict[str, Position]:
    """Return where a batch of all records ends: a time in open shards, the end of closed ones.

    Args:
        start: Where the batch starts. A shard that is not in it starts at its oldest record.
        listed: The shards of the stream.
        until_ms: The time, which has passed, in milliseconds since the epoch.
    """
    ends = without_forgotten(start, listed)
    for shard_id in listed:
        end = _end_of(shard_id, Latest(), listed, until_ms)
        if may_hold_records(ends.get(shard_id, TRIM_HORIZON), end):
            ends[shard_id] = end
    return ends
