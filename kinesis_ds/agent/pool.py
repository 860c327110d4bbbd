"""Bounds the memory of all shards of a process together, in bytes and in records.

Half of the bytes are split into equal guaranteed shares, the other half is lent to shards that need
more: a hot shard gets room, and cannot take an idle shard's share. A message that is larger than a
share and all that can be lent has its turn, too: everybody waits behind it. Room is asked for
*before* a message is read off the socket, with a callback that never blocks.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.errors import InternalError
from kinesis_ds.limits import MAX_BUFFERED_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable


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


@dataclass(frozen=True)
class _Waiter:
    number: int
    shard: str
    nbytes: int
    granted: Callable[[], None]


class BufferPool:
    """Room for the messages and records of all shards of a process. Thread-safe.

    Shards are known by a key that is unique among all streams, see
    :attr:`~kinesis_ds.agent.context.ShardContext.pool_key`.

    However many shards wait, giving room back looks at few of them: only the first in the queue may
    borrow, and of those who stay within their shares each fits unless the bound itself is reached,
    so they are looked at in turn until one does not.
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
        self._numbers = itertools.count()
        # All who wait, in their order. Ordered dictionaries give their first item at once.
        self._waiters: OrderedDict[str, _Waiter] = OrderedDict()
        # The first of them that is larger than a share and all loans: nobody behind has a turn.
        self._large: _Waiter | None = None
        # Those before it who would stay within their shares.
        self._modest: OrderedDict[str, _Waiter] = OrderedDict()

    def open(self, shard: str) -> None:
        """Add a shard; every shard's guaranteed share shrinks accordingly."""
        with self._lock:
            self._used.setdefault(shard, 0)
            self._reshare()

    def close(self, shard: str) -> None:
        """Remove a shard and all it held."""
        with self._lock:
            used = self._used.pop(shard, 0)
            self._total -= used
            self._borrowed -= self._over(used)
            self._holding.discard(shard)
            self._leave(shard)
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
            if self._large is None and self._fits(shard, nbytes, first=not self._waiters):
                self._take(shard, nbytes)
                return True
            waiter = _Waiter(next(self._numbers), shard, nbytes, granted)
            self._waiters[shard] = waiter
            self._sort_in(waiter)
            return False

    def withdraw(self, shard: str) -> bool:
        """Take back the shard's waiting request.

        Returns:
            False if there is none; it may have been granted.
        """
        with self._lock:
            withdrawn = self._leave(shard)
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
            if (own := self._waiters.get(shard)) is not None:
                self._sort_in(own)
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

    def _fits(self, shard: str, nbytes: int, *, first: bool) -> bool:
        if first and self._total == 0:
            return True  # one message larger than the whole bound must still get through
        if self._total + nbytes > self._limit_bytes or self._records >= self._limit_records:
            return False
        if self._within_share(shard, nbytes):
            return True
        if not first:
            return False  # borrowing waits its turn, or a large message would wait for ever
        used = self._used[shard]
        borrowed = self._borrowed - self._over(used) + self._over(used + nbytes)
        return borrowed <= self._limit_bytes // 2 or self._exceeds_loans(nbytes)

    def _within_share(self, shard: str, nbytes: int) -> bool:
        return self._used[shard] + nbytes <= self._share

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
        """Divide the guaranteed half among the shards, and among up to 6% that are to come: so it
        is divided, and everybody looked at, a few times and not with each of thousands of shards.
        """
        shards = max(1, len(self._used))
        step = 1 << max(0, shards.bit_length() - 5)
        share = self._limit_bytes // 2 // (-(-shards // step) * step)
        if share == self._share:
            return
        self._share = share
        self._borrowed = sum(self._over(self._used[shard]) for shard in self._holding)
        self._large = None
        self._modest.clear()
        self._sort_in_behind(-1)

    def _sort_in(self, waiter: _Waiter) -> None:
        """Note whether a waiter is large or modest, anew after what its shard holds changed."""
        if self._large is not None and waiter.number >= self._large.number:
            return
        if self._exceeds_loans(waiter.nbytes):
            self._large = waiter
        elif self._within_share(waiter.shard, waiter.nbytes):
            self._modest.setdefault(waiter.shard, waiter)
        else:
            self._modest.pop(waiter.shard, None)

    def _sort_in_behind(self, number: int) -> None:
        for waiter in self._waiters.values():
            if waiter.number > number:
                self._sort_in(waiter)
                if self._large is waiter:
                    return

    def _leave(self, shard: str) -> bool:
        """Remove the shard's waiter, and return whether there was one."""
        waiter = self._waiters.pop(shard, None)
        if waiter is None:
            return False
        self._modest.pop(shard, None)
        if waiter is self._large:
            self._large = None
            self._sort_in_behind(waiter.number)
        return True

    def _admit_waiters(self) -> list[_Waiter]:
        ready: list[_Waiter] = []
        while (waiter := self._next_to_admit()) is not None:
            self._leave(waiter.shard)
            self._take(waiter.shard, waiter.nbytes)
            ready.append(waiter)
        return ready

    def _next_to_admit(self) -> _Waiter | None:
        first = next(iter(self._waiters.values()), None)
        if first is None or self._fits(first.shard, first.nbytes, first=True):
            return first
        modest = next(iter(self._modest.values()), None)
        if modest is not None and self._fits(modest.shard, modest.nbytes, first=False):
            return modest
        return None
