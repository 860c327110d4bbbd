"""What an agent holds: per shard the records between *committed* and *available*, bounded together.

Four positions a shard: *received* (off the network), *available* (decoded, here), *planned* (in an
end offset that Spark has logged) and *committed* (Spark is done with it). Records enter at
*available* and leave at *committed*, so any planned range can be served again and again.

The pool is one bound in bytes for all shards. Half of it is split into equal guaranteed shares, the
other half is lent to whoever needs more: a hot shard gets room, and cannot take an idle shard's
share.
A message that is larger than a share and all that can be lent has its turn, too: behind it all
wait.
Room is asked for *before* a message is read off the socket, with a callback that never blocks.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.agent.decode import Records, sequence_numbers
from kinesis_ds.errors import AgentError, InternalError
from kinesis_ds.limits import MAX_BUFFERED_RECORDS
from kinesis_ds.position import SHARD_END, After, Position, ShardEnd, precedes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pyarrow as pa


@dataclass(frozen=True)
class PoolStatistics:
    """State of a pool: bytes and records held, their bounds and peak, shards waiting for room."""

    used_bytes: int
    limit_bytes: int
    peak_bytes: int
    used_records: int
    limit_records: int
    waiting: int


@dataclass
class _Waiter:
    shard: str
    nbytes: int
    granted: Callable[[], None]


class BufferPool:
    """Room for the messages and records of all shards of an agent. Thread-safe."""

    def __init__(self, limit_bytes: int, limit_records: int = MAX_BUFFERED_RECORDS) -> None:
        self._limit_bytes = limit_bytes
        self._limit_records = limit_records
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self._total = 0
        self._records = 0
        self._peak = 0
        self._borrowed = 0
        self._share = limit_bytes // 2
        self._waiters: deque[_Waiter] = deque()

    def open(self, shard: str) -> None:
        """Add a shard; every shard's guaranteed share shrinks accordingly."""
        with self._lock:
            self._used.setdefault(shard, 0)
            self._reshare()

    def close(self, shard: str) -> None:
        """Remove a shard and all it held."""
        with self._lock:
            self._total -= self._used.pop(shard, 0)
            self._waiters = deque(w for w in self._waiters if w.shard != shard)
            self._reshare()
            ready = self._admit_waiters()
        for waiter in ready:
            waiter.granted()

    def request(self, shard: str, nbytes: int, granted: Callable[[], None]) -> bool:
        """Ask for room. True: it is reserved. False: ``granted`` is called, from any thread, once
        it is.

        Each shard has at most one request waiting. ``granted`` must not block. A shard that was
        closed is never given any.
        """
        with self._lock:
            if shard not in self._used:
                return False
            if self._fits(shard, nbytes, self._waiters):
                self._take(shard, nbytes)
                return True
            self._waiters.append(_Waiter(shard, nbytes, granted))
            return False

    def withdraw(self, shard: str) -> bool:
        """Take back the shard's waiting request; False if there is none (it may have been
        granted).
        """
        with self._lock:
            before = len(self._waiters)
            self._waiters = deque(w for w in self._waiters if w.shard != shard)
            withdrawn = len(self._waiters) != before
            ready = self._admit_waiters() if withdrawn else []
        for waiter in ready:
            waiter.granted()
        return withdrawn

    def change(self, shard: str, nbytes: int, records: int) -> None:
        """Correct what a shard holds by ``nbytes`` and ``records``; both may be negative."""
        with self._lock:
            if shard not in self._used:
                return
            self._take(shard, nbytes)
            self._records += records
            ready = self._admit_waiters() if nbytes < 0 or records < 0 else []
        for waiter in ready:
            waiter.granted()

    def statistics(self) -> PoolStatistics:
        with self._lock:
            return PoolStatistics(
                self._total,
                self._limit_bytes,
                self._peak,
                self._records,
                self._limit_records,
                len(self._waiters),
            )

    def used(self, shard: str) -> int:
        """Bytes held for a shard."""
        with self._lock:
            return self._used.get(shard, 0)

    # All below: with the lock held.

    def _fits(self, shard: str, nbytes: int, ahead: Collection[_Waiter]) -> bool:
        if any(self._exceeds_loans(w.nbytes) for w in ahead):
            return False  # the pool empties for it
        if self._total == 0:
            return True  # one message larger than the whole bound must still get through
        used = self._used[shard]
        if ahead and used + nbytes > self._share:
            return False  # borrowing waits its turn, or a large message would wait for ever
        borrowed = self._borrowed - self._over(used) + self._over(used + nbytes)
        return (
            self._total + nbytes <= self._limit_bytes
            and (
                borrowed <= self._limit_bytes // 2
                or used + nbytes <= self._share
                or self._exceeds_loans(nbytes)
            )
            and self._records < self._limit_records
        )

    def _exceeds_loans(self, nbytes: int) -> bool:
        """Whether a request is larger than its shard's share and all that can be lent together."""
        return nbytes > self._share + self._limit_bytes // 2

    def _over(self, used: int) -> int:
        return max(0, used - self._share)

    def _take(self, shard: str, nbytes: int) -> None:
        used = self._used[shard]
        if used + nbytes < 0:
            raise InternalError(
                f"Shard {shard} gave back more room than it had. Please report this."
            )
        self._borrowed += self._over(used + nbytes) - self._over(used)
        self._used[shard] = used + nbytes
        self._total += nbytes
        self._peak = max(self._peak, self._total)

    def _reshare(self) -> None:
        self._share = self._limit_bytes // 2 // max(1, len(self._used))
        self._borrowed = sum(self._over(used) for used in self._used.values())

    def _admit_waiters(self) -> list[_Waiter]:
        ready: list[_Waiter] = []
        still: deque[_Waiter] = deque()
        for waiter in self._waiters:
            if self._fits(waiter.shard, waiter.nbytes, still):
                self._take(waiter.shard, waiter.nbytes)
                ready.append(waiter)
            else:
                still.append(waiter)
        self._waiters = still
        return ready


@dataclass(frozen=True)
class _Chunk:
    records: Records
    nbytes: int


class ShardBuffer:
    """The records of one shard, from ``start`` (behind it nothing was freed) to ``available``.

    ``append`` and ``end`` are called by the shard's lane and loop, the rest by anyone. Thread-safe.
    """

    def __init__(self, shard: str, start: Position, pool: BufferPool) -> None:
        self.shard = shard
        self._pool = pool
        self._lock = threading.Lock()
        self._chunks: deque[_Chunk] = deque()
        self._start = start
        self._available = start
        pool.open(shard)

    @property
    def available(self) -> Position:
        return self._available

    @property
    def start(self) -> Position:
        return self._start

    def append(self, records: Records | None, position: Position, reserved: int) -> None:
        """Take decoded records and move *available*; turns the room ``reserved`` into what they
        use.
        """
        nbytes = records.batch.nbytes if records else 0
        with self._lock:
            if isinstance(self._available, ShardEnd):
                # Decoded late, when the end had been confirmed: nothing new can be in it.
                records, nbytes = None, 0
            else:
                if records:
                    self._chunks.append(_Chunk(records, nbytes))
                self._available = position
        self._pool.change(self.shard, nbytes - reserved, records.batch.num_rows if records else 0)

    def end(self) -> None:
        """Mark the shard as read to its end."""
        with self._lock:
            self._available = SHARD_END

    def count(self, start: Position, end: Position) -> int | None:
        """How many records lie in ``(start, end]``; None when the buffer does not hold all of
        it.
        """
        with self._lock:
            if not self._holds(start, end):
                return None
            return sum(int(batch.num_rows) for batch in self._slices(start, end))

    def read(self, start: Position, end: Position) -> list[pa.RecordBatch]:
        """The records in ``(start, end]``, in order. Freeing later does not disturb what was
        returned.

        Raises:
            AgentError: The buffer does not hold all of the range.
        """
        with self._lock:
            if not self._holds(start, end):
                raise AgentError(
                    f"Shard {self.shard}: the agent holds ({self._start}, {self._available}], "
                    f"not ({start}, {end}]."
                )
            return list(self._slices(start, end))

    def free(self, position: Position) -> None:
        """Drop what lies at or before ``position``: Spark has committed it."""
        nbytes = rows = 0
        with self._lock:
            if not precedes(self._start, position):
                return
            while self._chunks and _within(self._chunks[0].records.last, position):
                chunk = self._chunks.popleft()
                nbytes += chunk.nbytes
                rows += chunk.records.batch.num_rows
            self._start = position
        self._pool.change(self.shard, -nbytes, -rows)
        if isinstance(position, ShardEnd):
            self._pool.close(self.shard)  # nothing will come: its share goes to the others

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            nbytes = sum(chunk.nbytes for chunk in self._chunks)
            rows = sum(chunk.records.batch.num_rows for chunk in self._chunks)
            self._chunks.clear()
        self._pool.change(self.shard, -nbytes, -rows)
        self._pool.close(self.shard)

    # All below: with the lock held.

    def _holds(self, start: Position, end: Position) -> bool:
        reaches_back = start == self._start or (
            isinstance(start, After) and _at_or_before(self._start, start)
        )
        return reaches_back and _at_or_before(end, self._available)

    def _slices(self, start: Position, end: Position) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks:
            records = chunk.records
            low = not isinstance(start, After) or records.first > start.number
            high = _within(records.last, end)
            if low and high:
                yield records.batch
                continue
            if not _within(records.first, end) or (
                isinstance(start, After) and records.last <= start.number
            ):
                continue
            numbers = sequence_numbers(records.batch)
            first = bisect_right(numbers, start.number) if isinstance(start, After) else 0
            behind = bisect_right(numbers, end.number) if isinstance(end, After) else len(numbers)
            if behind > first:
                yield records.batch.slice(first, behind - first)


def _within(number: int, end: Position) -> bool:
    return isinstance(end, ShardEnd) or (isinstance(end, After) and number <= end.number)


def _at_or_before(left: Position, right: Position) -> bool:
    if isinstance(left, After) and isinstance(right, After):
        return left.number <= right.number  # the same number may come padded and not
    return left == right or precedes(left, right)
