"""Shards, their lineage, and which of them may be read now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kinesis_ds.limits import MAX_HASH_KEY


@dataclass(frozen=True)
class Shard:
    """One shard as ListShards describes it.

    Attributes:
        shard_id: For example ``shardId-000000000000``.
        parents: Ids of the shards it was split or merged from; empty for an original shard.
        first_sequence_number: The lowest sequence number it may have.
        closed: True if it takes no more records; it may still hold unread ones. Its ending sequence
            number is not kept, because some servers always say 2**63-1.
        hash_range: First and last hash key, both included.
    """

    shard_id: str
    parents: tuple[str, ...] = ()
    first_sequence_number: str = "0"
    closed: bool = False
    hash_range: tuple[int, int] = (0, MAX_HASH_KEY)


ShardMap = Mapping[str, Shard]


def held_back(
    listed: ShardMap,
    tracked: Collection[str],
    drained: Collection[str],
    *,
    parents_first: bool = True,
) -> dict[str, set[str]]:
    """Return the shards that are not tracked yet, each with the parents that hold it back.

    A shard without such parents may be begun. A parent holds its children back until it is read to
    its end. A parent that is neither listed nor tracked has fallen out of retention and holds
    nothing back.

    Args:
        listed: All shards of the stream now.
        tracked: Ids of the shards that are being read, or were read to their end.
        drained: Those of ``tracked`` that were read to their end.
        parents_first: False: children may start beside their parents.
    """
    return {
        shard_id: {
            parent
            for parent in shard.parents
            if parents_first and parent not in drained and (parent in listed or parent in tracked)
        }
        for shard_id, shard in listed.items()
        if shard_id not in tracked
    }


def with_news(listed: ShardMap, news: ShardMap) -> ShardMap:
    """Return ``listed``, updated with a listing of only some shards.

    A shard that has a child is closed, even if the listing does not say so yet. If nothing is new,
    the very same object is returned.
    """
    changed = {s: shard for s, shard in closing_parents(news).items() if listed.get(s) != shard}
    for shard in news.values():
        for parent in shard.parents:
            if parent not in news and parent in listed and not listed[parent].closed:
                changed[parent] = replace(listed[parent], closed=True)
    return {**listed, **changed} if changed else listed


def closing_parents(listed: ShardMap) -> ShardMap:
    """Return the listing with each shard closed that has a child."""
    open_parents = {
        parent
        for shard in listed.values()
        for parent in shard.parents
        if parent in listed and not listed[parent].closed
    }
    if not open_parents:
        return listed
    return {s: replace(x, closed=True) if s in open_parents else x for s, x in listed.items()}


def vanished(listed: ShardMap, tracked: Collection[str], drained: Collection[str]) -> list[str]:
    """Return the shards still to be read that the stream does not list: their records are lost."""
    return sorted(s for s in tracked if s not in listed and s not in drained)
