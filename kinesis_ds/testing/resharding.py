"""Scale a stream to a number of equal shards, as UpdateShardCount does. Pure.

AWS "performs splits or merges on individual shards. This can cause short-lived shards to be
created". It does not say which. Here every missing boundary is made by a split first; then the
shards between two wanted boundaries are merged from left to right. To double an even stream splits
every shard once, and to halve it merges neighbours; neither makes short-lived shards.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.hashing import even_starts

if TYPE_CHECKING:
    from kinesis_ds.testing.stream import Stream


def scale(stream: Stream, target: int, now_ms: int) -> None:
    """Split and merge until there are ``target`` shards of equal size."""
    starts = _wanted_starts([s.first_hash for s in stream.open_shards], target)
    for start in starts:
        holder = stream.shard_for(start)
        if holder.first_hash != start:
            stream.divide(holder, start, now_ms)
    for start, following in zip(starts, [*starts[1:], MAX_HASH_KEY + 1], strict=True):
        shard = stream.shard_for(start)
        while shard.last_hash + 1 < following:
            shard = stream.unite(shard, stream.shard_for(shard.last_hash + 1), now_ms)


def _wanted_starts(existing: list[int], target: int) -> list[int]:
    """Return the first hash keys of equal ranges; where an existing boundary differs only by
    rounding, return that one.
    """
    rounding = len(existing) + target
    starts: list[int] = []
    for start in even_starts(target):
        at = bisect_right(existing, start)
        near = min(existing[max(0, at - 1) : at + 1], key=lambda there: abs(there - start))
        starts.append(near if abs(near - start) <= rounding else start)
    return starts
