"""Bounds what one task has in flight. It blocks; it never drops rows and never sleeps.

A row counts from the moment it is admitted until Kinesis has acknowledged it: while it waits for
others of its shard, for the shard's pace or in an aggregate, while it is with Kinesis, and before a
retry. A request counts while it is with Kinesis.

A thread that found the window full goes on at the low water mark, not when there is room for one
piece. Else the two threads would wake each other for every request.
"""

from __future__ import annotations

import copy
import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import InternalError, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

SLOW_WAIT_S = 10.0
# The part of each bound at which a full window is entered again. Low enough that the two threads do
# not wake each other for every request, and high enough that the rows of one slow shard may fill
# most of the window before they hold up others.
LOW_WATER = 0.9


@dataclass
class WindowStatistics:
    """What a window holds now, and what it has seen.

    Attributes:
        limit_records, limit_bytes, limit_requests: The bounds.
        records: Rows in flight now.
        bytes: Their data and partition keys.
        requests: Requests in flight now.
        peak_records, peak_bytes, peak_requests: The most that was in flight at a time.
        waits: How often a thread waited for room.
        waited_s: How long all these waits took together, in seconds.
    """

    limit_records: int
    limit_bytes: int
    limit_requests: int
    records: int = 0
    bytes: int = 0
    requests: int = 0
    peak_records: int = 0
    peak_bytes: int = 0
    peak_requests: int = 0
    waits: int = 0
    waited_s: float = 0.0


class InFlightWindow:
    """Bounds records, bytes and requests in flight. Thread-safe.

    The task's thread admits and waits; the network loop releases and reports failure.

    Args:
        max_records: Most rows in flight.
        max_bytes: Most bytes in flight. A piece that is larger by itself is admitted when nothing
            else is in flight, or it never would be.
        max_requests: Most requests in flight.
        label: Names the stream in messages.
        clock: Gives the time; a test may give another one.
        slow_wait_s: A wait of so many seconds is warned of, once.
        on_wait: Called with True when a wait for room begins, and with False when it ends.
    """

    def __init__(
        self,
        max_records: int,
        max_bytes: int,
        max_requests: int,
        *,
        label: str,
        clock: Clock | None = None,
        slow_wait_s: float = SLOW_WAIT_S,
        on_wait: Callable[[bool], None] = lambda _: None,
    ) -> None:
        if min(max_records, max_bytes, max_requests) < 1:
            raise ValueError("every bound must be >= 1")
        self._seen = WindowStatistics(max_records, max_bytes, max_requests)
        self._label = label
        self._clock = clock or SystemClock()
        self._slow_wait_s = slow_wait_s
        self._on_wait = on_wait
        self._released_at = 0.0
        # It is the lock that is entered, never the condition: an interrupt (Ctrl-C, a cancelled
        # task) that meets Condition.__enter__ leaves the lock held for ever.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._error: Exception | None = None
        self._waiting_since: list[float] = []

    def acquire(self, records: int, size: int, patience_s: float) -> None:
        """Admit some rows. Blocks until there is room for them.

        Args:
            records: How many rows.
            size: Their bytes.
            patience_s: Give up when nothing was acknowledged for so many seconds.

        Raises:
            WriteError: Nothing was acknowledged for ``patience_s`` seconds.
            Exception: The error that :meth:`fail` was given, before or during the wait. Nothing is
                admitted then.
        """
        with self._lock:
            if self._error is None and not self._has_room(records, size):
                self._seen.waits += 1
                self._waiting_since.append(since := self._clock.monotonic())
                self._on_wait(True)
                try:
                    self._wait(lambda: self._is_low(records, size), since, patience_s)
                finally:
                    self._on_wait(False)
                    self._waiting_since.remove(since)
                    self._seen.waited_s += self._clock.monotonic() - since
            self.check()
            self._seen.records += records
            self._seen.bytes += size
            self._seen.peak_records = max(self._seen.peak_records, self._seen.records)
            self._seen.peak_bytes = max(self._seen.peak_bytes, self._seen.bytes)

    def try_acquire_request(self) -> bool:
        """Count one more request, for rows admitted before; False when there is no room."""
        with self._lock:
            if self._seen.requests >= self._seen.limit_requests:
                return False
            self._seen.requests += 1
            self._seen.peak_requests = max(self._seen.peak_requests, self._seen.requests)
            return True

    def release(self, records: int = 0, size: int = 0, requests: int = 0) -> None:
        """Release what is acknowledged, and wake the thread that waits."""
        with self._lock:
            self._seen.records -= records
            self._seen.bytes -= size
            self._seen.requests -= requests
            if records:
                self._released_at = self._clock.monotonic()
            if min(self._seen.records, self._seen.bytes, self._seen.requests) < 0:
                raise InternalError(f"more was released than admitted: {self!r}", "Please report.")
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Make every present and future wait raise ``error``. The first error stays."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def check(self) -> None:
        """Raise a copy of the error that :meth:`fail` was given, if there is one.

        Its traceback would hold the frames of the task, and so the iterator of its rows, for as
        long as this window lives: until the next garbage collection.
        """
        if self._error is not None:
            error = copy.copy(self._error)
            error.__cause__ = self._error.__cause__
            raise error

    def drain(self, patience_s: float) -> None:
        """Block until nothing is in flight.

        Raises:
            WriteError: Nothing was acknowledged for ``patience_s`` seconds.
            Exception: The error that :meth:`fail` was given.
        """
        with self._lock:
            self._wait(self._is_empty, self._clock.monotonic(), patience_s)
            self.check()

    def statistics(self) -> WindowStatistics:
        """Return a consistent snapshot; a wait that still goes on is counted up to now."""
        with self._lock:
            now = self._clock.monotonic()
            waiting_s = sum(now - since for since in self._waiting_since)
            return replace(self._seen, waited_s=self._seen.waited_s + waiting_s)

    def __repr__(self) -> str:
        seen = self._seen
        return (
            f"<InFlightWindow {self._label}: {seen.records}/{seen.limit_records} records, "
            f"{seen.bytes}/{seen.limit_bytes} bytes, {seen.requests}/{seen.limit_requests} requests"
            f"{', failed' if self._error else ''}>"
        )

    def _has_room(self, records: int, size: int) -> bool:
        seen = self._seen
        return seen.records == 0 or (
            seen.records + records <= seen.limit_records and seen.bytes + size <= seen.limit_bytes
        )

    def _is_low(self, records: int, size: int) -> bool:
        seen = self._seen
        return self._has_room(records, size) and (
            seen.records <= seen.limit_records * LOW_WATER
            and seen.bytes <= seen.limit_bytes * LOW_WATER
        )

    def _is_empty(self) -> bool:
        return self._seen.records == self._seen.requests == 0

    def _wait(self, ready: Callable[[], bool], since: float, patience_s: float) -> None:
        warned = False
        while self._error is None and not ready():
            now = self._clock.monotonic()
            still = now - max(since, self._released_at)
            if still >= patience_s:
                raise WriteError(
                    f"Writing to {self._label} made no progress for {still:.0f}s with "
                    f"{self._seen.records} records ({self._seen.bytes} bytes) in flight.",
                    "Look at the stream's write limits and at the network.",
                )
            if not warned and now - since >= self._slow_wait_s:
                warned = True
                logger.warning(
                    "the writer has waited %.0fs for Kinesis to accept records target=%s "
                    "in_flight_records=%d in_flight_bytes=%d in_flight_requests=%d; "
                    "if this goes on, the stream needs more shards",
                    now - since,
                    self._label,
                    self._seen.records,
                    self._seen.bytes,
                    self._seen.requests,
                )
            longest = patience_s - still
            if not warned:
                longest = min(longest, since + self._slow_wait_s - now)
            self._changed.wait(max(0.0, longest))
