"""Bounds the memory of all shards of a process together, in bytes and in records.

Half of the bytes are split into equal guaranteed shares, the other half is lent to shards that need
more: a hot shard gets room, and cannot take an idle shard's share. A message that is larger than a
share and all that can be lent has its turn, too: everybody waits behind it. Room is asked for
*before* a message is read off the socket, with a callback that never blocks.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.errors import InternalError
from kinesis_ds.limits import MAX_BUFFERED_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@dataclass(frozen=True)
class PoolStatistics:
    """The state of a pool.

    Attributes:
        used_bytes: Bytes held and reserved now.
        limit_bytes: The bound of ``used_bytes``.
        peak_bytes: The most that ``used_bytes`` has been.
        used_records: Records held now.
        limit_records: No room is given while so many records are held.
        waiting: Shards that wait for room.
    """

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
    """Room for the messages and records of all shards of a process. Thread-safe.

    Shards are known by a key that is unique among all streams, see
    :attr:`~kinesis_ds.agent.context.ShardContext.pool_key`.
    """

    def __init__(self, limit_bytes: int, limit_records: int = MAX_BUFFERED_RECORDS) -> None:
        self._limit_bytes = limit_bytes
        self._limit_records = limit_records
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        # Those that hold anything: of thousands of shards usually few.
        self._holding: set[str] = set()
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
            self._holding.discard(shard)
            self._waiters = deque(w for w in self._waiters if w.shard != shard)
            self._reshare()
            ready = self._admit_waiters()
        for waiter in ready:
            waiter.granted()

    def request(self, shard: str, nbytes: int, granted: Callable[[], None]) -> bool:
        """Ask for ``nbytes`` of room.

        Each shard has at most one request waiting. A shard that was closed is given none.

        Args:
            granted: Called from any thread when room that was not there at once is reserved. Must
                not block.

        Returns:
            True if the room is reserved now; then ``granted`` is not called.
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
        """Take back the shard's waiting request.

        Returns:
            False if there is none; it may have been granted.
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
        """Return the state of the pool."""
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
        """Return the bytes that a shard holds or has reserved."""
        with self._lock:
            return self._used.get(shard, 0)

    # --- with the lock held ---------------------------------------------------------------------

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
        """Return whether a request is larger than a share and all that can be lent together."""
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
        if used + nbytes:
            self._holding.add(shard)
        else:
            self._holding.discard(shard)
        self._total += nbytes
        self._peak = max(self._peak, self._total)

    def _reshare(self) -> None:
        self._share = self._limit_bytes // 2 // max(1, len(self._used))
        self._borrowed = sum(self._over(self._used[shard]) for shard in self._holding)

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
