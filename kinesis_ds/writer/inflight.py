"""The bound on what one task has under way. It blocks; it never drops and never sleeps.

A record counts from the moment it is admitted until Kinesis has acknowledged it: through the
request that carries it, the wait before a retry and the retry. A request counts while it is with
Kinesis, not while its failed records wait, so that waiting records keep no fresh ones from being
sent.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import InternalError, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

SLOW_WAIT_S = 10.0


@dataclass(frozen=True)
class WindowStatistics:
    """What a window holds now, and what it has seen."""

    records: int
    bytes: int
    requests: int
    limit_records: int
    limit_bytes: int
    limit_requests: int
    peak_records: int
    peak_bytes: int
    peak_requests: int
    waits: int
    waited_s: float


class InFlightWindow:
    """Bounds records, bytes and requests in flight. Thread-safe.

    The task's thread admits and waits; the network loop releases and reports failure.

    Args:
        max_records: Most records in flight.
        max_bytes: Most bytes in flight. A request that alone is larger is admitted when nothing
            else is in flight, as it could never be otherwise.
        max_requests: Most requests in flight.
        label: What is written to, for messages.
        slow_wait_s: A single wait this long is worth one warning.
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
    ) -> None:
        if min(max_records, max_bytes, max_requests) < 1:
            raise ValueError("every bound must be >= 1")
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._label = label
        self._clock = clock or SystemClock()
        self._slow_wait_s = slow_wait_s
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._records = self._bytes = self._requests = 0
        self._peak_records = self._peak_bytes = self._peak_requests = 0
        self._waits = 0
        self._waited_s = 0.0
        self._waiting_since: list[float] = []

    def acquire(self, records: int, size: int, deadline: float) -> None:
        """Admit one request; blocks until there is room for it.

        Args:
            deadline: Monotonic time after which waiting is given up.

        Raises:
            WriteError: There was no room before the deadline.
            Exception: Whatever :meth:`fail` was given, before or during the wait. Nothing is
                admitted then.
        """
        with self._changed:
            if self._error is None and not self._has_room(records, size):
                self._waits += 1
                self._waiting_since.append(since := self._clock.monotonic())
                try:
                    self._wait(lambda: self._has_room(records, size), since, deadline)
                finally:
                    self._waiting_since.remove(since)
                    self._waited_s += self._clock.monotonic() - since
            self._raise_if_failed()
            self._records += records
            self._bytes += size
            self._peak_records = max(self._peak_records, self._records)
            self._peak_bytes = max(self._peak_bytes, self._bytes)
            self._add_request()

    def try_acquire_request(self) -> bool:
        """Count one more request, for records admitted before; False when there is no room."""
        with self._changed:
            if self._requests >= self._max_requests:
                return False
            self._add_request()
            return True

    def release(self, records: int = 0, size: int = 0, requests: int = 0) -> None:
        """Take back what is acknowledged, and wake whoever waits."""
        with self._changed:
            self._records -= records
            self._bytes -= size
            self._requests -= requests
            if min(self._records, self._bytes, self._requests) < 0:
                raise InternalError(f"more was released than admitted: {self!r}", "Please report.")
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Make every present and future wait raise ``error``. The first error stays.

        This is also how a waiting task is cancelled.
        """
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what :meth:`fail` was given, if anything."""
        with self._changed:
            self._raise_if_failed()

    def drain(self, deadline: float) -> None:
        """Block until nothing is in flight.

        Raises:
            WriteError: Something still was at the deadline.
            Exception: Whatever :meth:`fail` was given.
        """
        with self._changed:
            self._wait(self._is_empty, self._clock.monotonic(), deadline)
            self._raise_if_failed()

    def statistics(self) -> WindowStatistics:
        """A consistent snapshot; a wait that still goes on is counted up to now."""
        with self._changed:
            now = self._clock.monotonic()
            return WindowStatistics(
                records=self._records,
                bytes=self._bytes,
                requests=self._requests,
                limit_records=self._max_records,
                limit_bytes=self._max_bytes,
                limit_requests=self._max_requests,
                peak_records=self._peak_records,
                peak_bytes=self._peak_bytes,
                peak_requests=self._peak_requests,
                waits=self._waits,
                waited_s=self._waited_s + sum(now - since for since in self._waiting_since),
            )

    def __repr__(self) -> str:
        return (
            f"<InFlightWindow {self._label}: {self._records}/{self._max_records} records, "
            f"{self._bytes}/{self._max_bytes} bytes, {self._requests}/{self._max_requests} requests"
            f"{', failed' if self._error else ''}>"
        )

    def _has_room(self, records: int, size: int) -> bool:
        if self._requests >= self._max_requests:
            return False
        return self._records == 0 or (
            self._records + records <= self._max_records and self._bytes + size <= self._max_bytes
        )

    def _is_empty(self) -> bool:
        return self._records == 0 and self._requests == 0

    def _add_request(self) -> None:
        self._requests += 1
        self._peak_requests = max(self._peak_requests, self._requests)

    def _wait(self, ready: Callable[[], bool], since: float, deadline: float) -> None:
        warned = False
        while self._error is None and not ready():
            now = self._clock.monotonic()
            if now >= deadline:
                raise WriteError(
                    f"Writing to {self._label} made no progress for {now - since:.0f}s with "
                    f"{self._records} records ({self._bytes} bytes) in flight.",
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
                    self._records,
                    self._bytes,
                    self._requests,
                )
            wake = deadline if warned else min(deadline, since + self._slow_wait_s)
            self._changed.wait(max(0.0, wake - now))

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error
