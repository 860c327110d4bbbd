"""Where a record will land, by the open shards of its stream. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kinesis_ds import kpl

if TYPE_CHECKING:
    from kinesis_ds.shards import ShardMap
    from kinesis_ds.writer.records import Record


class Prediction:
    """Predicts shards as the service chooses them: by hash key, among the shards that are open.

    Args:
        shards: The stream's shards as listed, closed ones included; None when they are not known or
            do not matter, because the stream distributes records itself.

    Attributes:
        known: Whether shards were given.
        open: The ids of the open shards, by hash range.
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

    def __repr__(self) -> str:
        return f"Prediction({len(self.open)} open shards)"

    def shard_of(self, record: Record) -> str:
        """The shard that will take the record; empty when that is not known."""
        if self._only is not None:
            return self._only
        if not self._firsts:
            return ""
        key = hash_key_of(record)
        at = bisect_right(self._firsts, key) - 1
        # A listing made in the middle of a reshard may have a hole in it.
        return self.open[at] if at >= 0 and key <= self._lasts[at] else ""

    def hash_range(self, shard_id: str) -> tuple[int, int] | None:
        """First and last hash key of a shard, closed or not; None when it is not known."""
        return self._ranges.get(shard_id)


def hash_key_of(record: Record) -> int:
    """The explicit hash key, else the MD5 of the partition key."""
    if record.explicit_hash_key is not None:
        return int(record.explicit_hash_key)
    return kpl.hash_key_of(record.partition_key)
