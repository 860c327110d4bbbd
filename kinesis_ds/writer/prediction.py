"""Predicts the shard that a record will land on, by the open shards of its stream. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from kinesis_ds.wire.kpl import md5_hash_key

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.writer.records import Block, Record

# Keys are used again and again, and looking one up costs a tenth of hashing it.
_KEYS_KNOWN = 1 << 16


class Prediction:
    """Predicts shards as the service chooses them: by hash key, among the open shards.

    Args:
        shards: The shards of the stream as listed, closed ones included. None when they are not
            known, or do not matter because the stream distributes records itself.

    Attributes:
        known: Whether shards were given.
        open: The ids of the open shards, ordered by hash range.
    """

    def __init__(self, shards: ShardMap | None) -> None:
        listed = shards or {}
        self.known = bool(listed)
        # A closed shard takes nothing more, but what is on its way may have landed there.
        self._ranges = {name: shard.hash_range for name, shard in listed.items()}
        taking = sorted((s.hash_range, name) for name, s in listed.items() if not s.closed)
        self.open = tuple(name for _, name in taking)
        self._firsts = [first for (first, _), _ in taking]
        self._lasts = [last for (_, last), _ in taking]
        self._only = self.open[0] if len(taking) == 1 else None
        self._shard_of_key = lru_cache(_KEYS_KNOWN)(self._hashed)

    def __repr__(self) -> str:
        return f"Prediction({len(self.open)} open shards)"

    def shard_of(self, record: Record) -> str:
        """Return the id of the shard that will take the record; empty when it is not known."""
        return self._shard(record.partition_key, record.explicit_hash_key)

    def split(self, block: Block) -> dict[str, Block]:
        """Part the rows of a block by the shard that will take them, in their order."""
        if self._only is not None or not self._firsts:
            return {self._only or "": block}
        if block.hash_keys is None:
            shards = list(map(self._shard_of_key, block.keys))
        else:
            shards = list(map(self._shard, block.keys, block.hash_keys))
        places: defaultdict[str, list[int]] = defaultdict(list)
        for at, shard in enumerate(shards):
            places[shard].append(at)
        if len(places) == 1:
            return {shards[0]: block}
        return {shard: block.at(found) for shard, found in places.items()}

    def _shard(self, key: str, hash_key: str | None) -> str:
        if self._only is not None or not self._firsts:
            return self._only or ""
        return self._shard_of_key(key) if hash_key is None else self._holding(int(hash_key))

    def _hashed(self, key: str) -> str:
        return self._holding(md5_hash_key(key))

    def _holding(self, hash_key: int) -> str:
        at = bisect_right(self._firsts, hash_key) - 1
        # A listing made in the middle of a reshard may have a hole in it.
        return self.open[at] if at >= 0 and hash_key <= self._lasts[at] else ""

    def hash_range(self, shard_id: str) -> tuple[int, int] | None:
        """Return first and last hash key of a shard, open or closed; None when it is not known."""
        return self._ranges.get(shard_id)


def hash_key_of(record: Record) -> int:
    """Return the record's explicit hash key, or else the MD5 of its partition key."""
    if record.explicit_hash_key is not None:
        return int(record.explicit_hash_key)
    return md5_hash_key(record.partition_key)
