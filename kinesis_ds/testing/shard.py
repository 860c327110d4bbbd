"""One shard: its hash keys, its lineage, its records and its limits per second. Pure."""

from __future__ import annotations

import random
from typing import Any

import orjson

from kinesis_ds.limits import MIB
from kinesis_ds.testing.log import RecordLog
from kinesis_ds.testing.rates import Bucket
from kinesis_ds.testing.sequence import Origin, SequenceClock

READ_BYTES_PER_S = 2 * MIB


class Shard:
    """A range of hash keys and the records whose keys lie in it.

    Attributes:
        first_hash, last_hash: The first and the last hash key of the range.
        parents: The shards that it was split or merged from: none, one or two.
        children: The shards that it was split or merged into; empty while it is open.
        ending: Its ending sequence number; None while it is open.
        clock: Hands out its sequence numbers.
    """

    def __init__(
        self,
        origin: Origin,
        hashes: tuple[int, int],
        created_ms: int,
        rng: random.Random,
        parents: tuple[Shard, ...] = (),
    ) -> None:
        self.origin = origin
        self.shard_id = shard_id(origin.index)
        self.first_hash, self.last_hash = hashes
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        self.ending: int | None = None
        self.parents = tuple(p.shard_id for p in parents)
        self.children: list[Shard] = []
        self.clock = SequenceClock(origin, rng)
        self.log = RecordLog()
        self._arrived_ms = -1
        self._arrived = ""
        self.records_in = Bucket(1000)
        self.bytes_in = Bucket(MIB)
        self.bytes_out = Bucket(READ_BYTES_PER_S)

    def __repr__(self) -> str:
        state = "open" if self.ending is None else "closed"
        return f"<{self.shard_id} {state} {self.log.stop - self.log.start} records>"

    def admits(self, size: int, now: float) -> bool:
        """Count a record of this many bytes if it may be put now; return whether it may.

        A record above a second's allowance needs a bucket without debt, and makes a debt. (AWS only
        says that large records use burst capacity and that the average stays at 1 MiB/s.)
        """
        level = self.bytes_in.level(now)
        if level < size and (size <= self.bytes_in.rate or level < 0):
            return False
        if not self.records_in.take(1, now):
            return False
        self.bytes_in.borrow(size, now)
        return True

    def append(
        self,
        data: str,
        size: int,
        key: str | None,
        explicit: str | None,
        now_ms: int,
        extra: str = "",
    ) -> str:
        """Store a record and return its sequence number; ``extra`` is JSON of further fields.

        Arrival times never step back within a shard. AWS does not promise that, but the search by
        time relies on it.
        """
        number = self.clock.record(now_ms)
        text = str(number)
        if now_ms > self._arrived_ms:
            self._arrived_ms = now_ms
            self._arrived = f"{now_ms // 1000}.{now_ms % 1000:03d}"
        if key is not None:
            extra = f',"PartitionKey":{orjson.dumps(key).decode()}{extra}'
        json = (
            f'{{"SequenceNumber":"{text}","ApproximateArrivalTimestamp":{self._arrived},'
            f'"Data":"{data}"{extra}}}'
        )
        self.log.append(number, self._arrived_ms, size, json.encode(), explicit)
        return text

    def here(self, now_ms: int) -> int:
        """Return a number at or above every record so far, and below every record to come."""
        return self.clock.here(now_ms) if self.ending is None else self.ending

    def oldest(self) -> int:
        """Return the number behind which the oldest record lies."""
        return max(self.clock.first, self.log.forgotten)

    def close(self, now_ms: int) -> None:
        self.ending = self.clock.here(now_ms)
        self.closed_ms = now_ms

    def behind_ms(self, place: int, stop: int, now_ms: int) -> int:
        """Return MillisBehindLatest for an answer with the records from ``place`` to ``stop``."""
        if stop == self.log.stop:
            return 0
        return max(1, now_ms - self.log.arrived_ms(max(place, stop - 1)))

    def description(self) -> dict[str, Any]:
        """Return the shard as ListShards shows it."""
        shown: dict[str, Any] = {"ShardId": self.shard_id}
        if self.parents:
            shown["ParentShardId"] = self.parents[0]
        if len(self.parents) > 1:
            shown["AdjacentParentShardId"] = self.parents[1]
        shown["HashKeyRange"] = self._hash_range()
        shown["SequenceNumberRange"] = {"StartingSequenceNumber": str(self.clock.first)}
        if self.ending is not None:
            shown["SequenceNumberRange"]["EndingSequenceNumber"] = str(self.ending)
        return shown

    def child_descriptions(self) -> list[dict[str, Any]]:
        """Return the children as the answer at the end of a shard names them."""
        return [
            {
                "ShardId": child.shard_id,
                "ParentShards": list(child.parents),
                "HashKeyRange": child._hash_range(),
            }
            for child in self.children
        ]

    def _hash_range(self) -> dict[str, str]:
        return {"StartingHashKey": str(self.first_hash), "EndingHashKey": str(self.last_hash)}


def shard_id(index: int) -> str:
    return f"shardId-{index:012d}"
