"""How UpdateShardCount gets from the shards there are to equal ones. Pure.

AWS "performs splits or merges on individual shards. This can cause short-lived shards to be
created". It does not say which; here every missing boundary is made by a split first, and then what
lies between two wanted boundaries is merged from left to right. Doubling splits every shard of an
even stream once, halving merges neighbours, and both leave no short-lived shards.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.hashing import even_starts

if TYPE_CHECKING:
    from kinesis_ds.testing.stream import Stream


def scale(stream: Stream, target: int, now_ms: int) -> None:
    """Make this many shards of equal size."""
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
    """Equal ranges, but a boundary that is there already but for rounding stays where it is."""
    rounding = len(existing) + target
    starts: list[int] = []
    for start in even_starts(target):
        at = bisect_right(existing, start)
        near = min(existing[max(0, at - 1) : at + 1], key=lambda there: abs(there - start))
        starts.append(near if abs(near - start) <= rounding else start)
    return starts
