"""One stream: its state, its shards and their lineage. Pure."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.hashing import even_starts
from kinesis_ds.testing.sequence import Origin
from kinesis_ds.testing.shard import Shard, shard_id

if TYPE_CHECKING:
    from kinesis_ds.testing.consumers import Consumer

HOUR_MS = 3_600_000


class Stream:
    """A stream and everything in it. Times are in seconds since the epoch.

    Changes that AWS makes in the background (a split, a new key, ...) happen when the UPDATING
    state ends: "After the operation is completed, Kinesis Data Streams sets the stream status to
    ACTIVE". Call :meth:`settle` before you look at the stream: it makes the change that is due.

    Attributes:
        created_s: When it was created, in whole seconds, as AWS shows it; part of its identity.
        shards: The shards that are listed, by id, oldest first.
        open_shards: The shards that take records, in the order of their hash keys.
        changed_at: When the UPDATING state ends; None in other states.
        gone_at: When the DELETING state ends; None in other states.
        key_state: The error of the KMS key that every read and write gets; None if the key works.
    """

    def __init__(
        self, name: str, arn: str, created_s: int, now: float, ready_s: float, rng: random.Random
    ) -> None:
        self.name = name
        self.arn = arn
        self.created_s = created_s
        self.created_ms = round(now * 1000)
        self.ready_at = now + ready_s
        self._ready_s = ready_s
        self.mode = "PROVISIONED"
        self.strategy = "USER_PARTITION_KEY"
        self.retention_hours = 24
        self.max_record_kib = 1024
        self.key_id: str | None = None
        self.key_state: str | None = None
        self.tags: dict[str, str | None] = {}
        self.consumers: dict[str, Consumer] = {}
        self.consumer_created_s: dict[str, int] = {}
        self.scaled_at: deque[float] = deque()
        self.changed_at: float | None = None
        self.gone_at: float | None = None
        self.shards: dict[str, Shard] = {}
        self.open_shards: list[Shard] = []
        self._starts: list[int] = []
        self._indexes: list[int] = []
        self._closed: deque[Shard] = deque()
        self._change: Callable[[int], object] | None = None
        self._next_index = 0
        self._turn = 0
        self._rng = rng

    def __repr__(self) -> str:
        return f"<{self.name} {len(self.open_shards)} open of {len(self.shards)} shards>"

    # --- state -----------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Make the change that is due, and forget closed shards whose retention is over."""
        if self.changed_at is not None and now >= self.changed_at:
            due, change = self.changed_at, self._change
            self.changed_at = self._change = None
            if change is not None:
                change(round(due * 1000))
        horizon_ms = self.horizon_ms(now)
        while self._closed and (self._closed[0].closed_ms or 0) < horizon_ms:
            self.forget(self._closed[0])

    def status(self, now: float) -> str:
        if self.gone_at is not None:
            return "DELETING"
        if now < self.ready_at:
            return "CREATING"
        return "UPDATING" if self.changed_at is not None else "ACTIVE"

    def change(self, now: float, make: Callable[[int], object]) -> None:
        """Be UPDATING for a while; then ``make`` is called, with the time in milliseconds."""
        self._change = make
        self.changed_at = now + self._ready_s
        self.settle(now)

    def horizon_ms(self, now: float) -> int:
        """Return the time, in milliseconds, before which records have expired."""
        return round(now * 1000) - self.retention_hours * HOUR_MS

    @property
    def encryption(self) -> str:
        return "NONE" if self.key_id is None else "KMS"

    # --- shards ----------------------------------------------------------------------------------

    def open_first(self, count: int) -> None:
        """Open the first shards of a new stream."""
        starts = even_starts(count)
        ends = [start - 1 for start in starts[1:]] + [MAX_HASH_KEY]
        for hashes in zip(starts, ends, strict=True):
            self._open(hashes, self.created_ms)

    def divide(self, parent: Shard, at: int, now_ms: int) -> tuple[Shard, Shard]:
        """Split a shard into the hash keys below ``at`` and those from ``at`` on."""
        self._close(parent, now_ms)
        lower = self._open((parent.first_hash, at - 1), now_ms, (parent,))
        upper = self._open((at, parent.last_hash), now_ms, (parent,))
        return lower, upper

    def unite(self, parent: Shard, adjacent: Shard, now_ms: int) -> Shard:
        """Merge two shards whose ranges touch."""
        for shard in (parent, adjacent):
            self._close(shard, now_ms)
        first = min(parent.first_hash, adjacent.first_hash)
        last = max(parent.last_hash, adjacent.last_hash)
        return self._open((first, last), now_ms, (parent, adjacent))

    def forget(self, shard: Shard) -> None:
        """Stop listing a closed shard."""
        del self.shards[shard.shard_id]
        self._indexes.remove(shard.origin.index)
        self._closed.remove(shard)
        for parent in shard.parents:
            if parent in self.shards:
                self.shards[parent].children.remove(shard)

    def shard(self, wanted: str, now: float) -> Shard:
        """Return a listed shard, after its expired records were forgotten.

        Raises:
            ServiceError: No such shard is listed.
        """
        shard = self.shards.get(wanted)
        if shard is None:
            account = self.arn.split(":")[4]
            raise ServiceError(
                "ResourceNotFoundException",
                f"Shard {wanted} in stream {self.name} under account {account} does not exist",
            )
        shard.log.expire(self.horizon_ms(now))
        return shard

    def shards_after(self, exclusive: str | None) -> Iterator[Shard]:
        """Yield the listed shards whose ids come after this one, in order; None: all."""
        index = -1 if exclusive is None else _index_of(exclusive)
        for at in range(bisect_right(self._indexes, index), len(self._indexes)):
            yield self.shards[shard_id(self._indexes[at])]

    def shard_for(self, hash_key: int) -> Shard:
        """Return the open shard whose range contains a hash key."""
        return self.open_shards[bisect_right(self._starts, hash_key) - 1]

    def next_in_turn(self) -> Shard:
        """Return the shard of the next record when the service distributes records itself."""
        self._turn = (self._turn + 1) % len(self.open_shards)
        return self.open_shards[self._turn]

    def _open(self, hashes: tuple[int, int], now_ms: int, parents: tuple[Shard, ...] = ()) -> Shard:
        # A later second than the parents', even if it lies ahead: their numbers stay below.
        later_s = [p.origin.created_s + 1 for p in parents]
        created_s = max([self.created_s, now_ms // 1000, *later_s])
        shard = Shard(Origin(created_s, self._next_index), hashes, now_ms, self._rng, parents)
        self._next_index += 1
        self.shards[shard.shard_id] = shard
        self._indexes.append(shard.origin.index)
        at = bisect_right(self._starts, shard.first_hash)
        self._starts.insert(at, shard.first_hash)
        self.open_shards.insert(at, shard)
        for parent in parents:
            parent.children.append(shard)
        return shard

    def _close(self, shard: Shard, now_ms: int) -> None:
        shard.close(now_ms)
        at = bisect_right(self._starts, shard.first_hash) - 1
        assert self.open_shards[at] is shard
        del self._starts[at]
        del self.open_shards[at]
        self._closed.append(shard)

    # --- consumers -------------------------------------------------------------------------------

    def registered(self, now: float) -> list[Consumer]:
        """Return its consumers in the order of their names, after removed ones were forgotten."""
        gone = [n for n, c in self.consumers.items() if c.status(now) == "GONE"]
        for name in gone:
            del self.consumers[name]
        return [self.consumers[name] for name in sorted(self.consumers)]

    # --- descriptions ----------------------------------------------------------------------------

    def description(self, now: float) -> dict[str, Any]:
        """Return the members that DescribeStream and DescribeStreamSummary have in common."""
        shown: dict[str, Any] = {
            "StreamName": self.name,
            "StreamARN": self.arn,
            "StreamStatus": self.status(now),
            "StreamModeDetails": {"StreamMode": self.mode},
            "RetentionPeriodHours": self.retention_hours,
            "StreamCreationTimestamp": float(self.created_s),
            "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
            "EncryptionType": self.encryption,
        }
        if self.key_id is not None:
            shown["KeyId"] = self.key_id
        return shown


def _index_of(wanted: str) -> int:
    """Return the index in a shard's id; for an id of another form a number above all shards'."""
    digits = wanted.removeprefix("shardId-")
    return int(digits) if digits.isdecimal() else 2**32
