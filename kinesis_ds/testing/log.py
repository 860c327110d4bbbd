"""Keep the records of one shard in order, each as the JSON in which it is sent. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pybase64

# Forgotten records are cut off the lists when they are this many, and half of what is there.
_CUT_AT = 1024


@dataclass(frozen=True)
class StoredRecord:
    """One record as the service keeps it.

    Attributes:
        shard_id: The shard that it is in.
        sequence_number: Its sequence number.
        partition_key: Its partition key; None if it was put without one.
        explicit_hash_key: The explicit hash key that it was put with; None if there was none.
        arrived: When it arrived, in seconds since the epoch.
        base64: Its data in base64.
    """

    shard_id: str
    sequence_number: int
    partition_key: str | None
    explicit_hash_key: str | None
    arrived: float
    base64: str = field(repr=False)

    @property
    def data(self) -> bytes:
        return pybase64.b64decode(self.base64)


class RecordLog:
    """A shard's records. New ones are appended, old ones are forgotten from the front.

    A *place* in the log counts all records ever appended before it, so it stays valid when records
    are forgotten. Places are found by sequence number or by time, with a bisection.

    Attributes:
        forgotten: Sequence number of the last record that was forgotten; 0 if none was.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._cut = 0  # how many records are no longer in the lists
        self._head = 0  # how many records at the front of the lists are forgotten
        self._bytes_cut = 0
        self._bytes_in = 0  # bytes of all records ever
        self._numbers: list[int] = []
        self._arrivals: list[int] = []
        self._bytes: list[int] = []  # of all records up to this one, included
        self._jsons: list[bytes] = []
        self._explicit: dict[int, str] = {}

    @property
    def start(self) -> int:
        """The place of the oldest record."""
        return self._cut + self._head

    @property
    def stop(self) -> int:
        """The place after the newest record."""
        return self._cut + len(self._numbers)

    def append(
        self, number: int, arrived_ms: int, size: int, json: bytes, explicit: str | None
    ) -> None:
        self._numbers.append(number)
        self._arrivals.append(arrived_ms)
        self._bytes_in += size
        self._bytes.append(self._bytes_in)
        self._jsons.append(json)
        if explicit is not None:
            self._explicit[number] = explicit

    def number(self, place: int) -> int:
        return self._numbers[place - self._cut]

    def arrived_ms(self, place: int) -> int:
        return self._arrivals[place - self._cut]

    def after(self, number: int) -> int:
        """Return the place of the first record above a sequence number."""
        return self._cut + bisect_right(self._numbers, number, self._head)

    def since(self, time_ms: int) -> int:
        """Return the place of the first record that arrived at this time or later."""
        return self._cut + bisect_left(self._arrivals, time_ms, self._head)

    def fitting(self, place: int, max_records: int, max_bytes: int) -> int:
        """Return the place after the records that fit: at least one, if there is one."""
        at = place - self._cut
        if at >= len(self._numbers):
            return place
        limit = (self._bytes[at - 1] if at else self._bytes_cut) + max_bytes
        high = min(len(self._numbers), at + max_records)
        return self._cut + max(at + 1, bisect_right(self._bytes, limit, at, high))

    def size(self, place: int, stop: int) -> int:
        """Return the bytes of the data and keys from ``place`` to ``stop``."""
        if stop <= place:
            return 0
        at = place - self._cut
        before = self._bytes[at - 1] if at else self._bytes_cut
        return self._bytes[stop - 1 - self._cut] - before

    def json(self, place: int, stop: int) -> bytes:
        """Return a JSON array of the records from ``place`` to ``stop``."""
        return b"[%b]" % b",".join(self._jsons[place - self._cut : stop - self._cut])

    def expire(self, before_ms: int) -> None:
        """Forget the records that arrived before this time."""
        if self._head < len(self._arrivals) and self._arrivals[self._head] < before_ms:
            self.forget(self.since(before_ms))

    def forget(self, stop: int) -> None:
        """Forget the records before this place."""
        at = stop - self._cut
        if at <= self._head:
            return
        self.forgotten = self._numbers[at - 1]
        if self._explicit:
            for number in self._numbers[self._head : at]:
                self._explicit.pop(number, None)
        self._head = at
        if at >= _CUT_AT and at * 2 >= len(self._numbers):
            self._bytes_cut = self._bytes[at - 1]
            for column in (self._numbers, self._arrivals, self._bytes, self._jsons):
                del column[:at]
            self._cut += at
            self._head = 0

    def records(self, shard_id: str) -> Iterator[StoredRecord]:
        """Yield all records that are kept, in order."""
        for at in range(self._head, len(self._numbers)):
            fields = orjson.loads(self._jsons[at])
            yield StoredRecord(
                shard_id=shard_id,
                sequence_number=self._numbers[at],
                partition_key=fields.get("PartitionKey"),
                explicit_hash_key=self._explicit.get(self._numbers[at]),
                arrived=self._arrivals[at] / 1000,
                base64=fields["Data"],
            )
