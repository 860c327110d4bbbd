"""Shards, their lineage, and which of them may be read now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kinesis_ds.limits import MAX_HASH_KEY


@dataclass(frozen=True)
class Shard:
    """One shard as ListShards describes it.

    Attributes:
        shard_id: For example ``shardId-000000000000``.
        parents: Ids of the shards it was split or merged from, none for an original shard.
        first_sequence_number: Where its sequence numbers begin.
        closed: Whether it takes no more records (it may still hold unread ones). The ending
            sequence number itself is never compared with: some servers say 2**63-1.
        hash_range: First and last hash key, both included.
    """

    shard_id: str
    parents: tuple[str, ...] = ()
    first_sequence_number: str = "0"
    closed: bool = False
    hash_range: tuple[int, int] = (0, MAX_HASH_KEY)


ShardMap = Mapping[str, Shard]


def startable(listed: ShardMap, tracked: Collection[str], drained: Collection[str]) -> list[Shard]:
    """Shards that are listed, not tracked yet, and whose parents have all been read to the end.

    A parent that is neither listed nor tracked has fallen out of retention and holds nothing back.

    Args:
        listed: All shards of the stream now.
        tracked: Shards already being read, or read to their end.
        drained: The subset of ``tracked`` that was read to its end.
    """
    return [
        shard
        for shard in sorted(listed.values(), key=lambda s: s.shard_id)
        if shard.shard_id not in tracked
        and all(
            parent in drained or (parent not in listed and parent not in tracked)
            for parent in shard.parents
        )
    ]


def vanished(listed: ShardMap, tracked: Collection[str], drained: Collection[str]) -> list[str]:
    """Shards still to be read that the stream no longer lists: their records are lost."""
    return sorted(s for s in tracked if s not in listed and s not in drained)
