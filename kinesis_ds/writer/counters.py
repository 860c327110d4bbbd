"""Counts what the sink of one worker process does, over all its tasks; for people and tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.writer.inflight import InFlightWindow


@dataclass
class _Totals:
    requests: int = 0
    stored_records: int = 0
    delivered_records: int = 0
    delivered_bytes: int = 0
    retried_records: int = 0
    misplaced_records: int = 0
    skipped_records: int = 0
    throttled: int = 0
    waits: int = 0
    waited_s: float = 0.0


class SinkCounters:
    """Counters of one stream, added to by every task that writes to it. Thread-safe.

    Args:
        stream: The label of the stream; ``*`` where the rows name their streams.
        max_records: The most rows that one task has in flight.
        max_bytes: The most bytes that one task has in flight.
    """

    def __init__(self, stream: str, max_records: int, max_bytes: int) -> None:
        self._stream = stream
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._totals = _Totals()
        self._open: list[InFlightWindow] = []
        self._after_task: Callable[[], None] | None = None

    def after_task(self, call: Callable[[], None]) -> None:
        """Call ``call`` whenever a task has ended."""
        self._after_task = call

    def opened(self, window: InFlightWindow) -> None:
        """Count a task that begins, with its window."""
        with self._lock:
            self._open.append(window)

    def closed(self, window: InFlightWindow) -> None:
        """Count a task that has ended; nothing of it is in flight any more."""
        with self._lock:
            self._open.remove(window)
            seen = window.statistics()
            self._totals.waits += seen.waits
            self._totals.waited_s += seen.waited_s
        if self._after_task is not None:
            self._after_task()

    def add_request(self) -> None:
        """Count a PutRecords call."""
        with self._lock:
            self._totals.requests += 1

    def add_delivered(self, rows: int, size: int, records: int) -> None:
        """Count rows that are stored, in so many Kinesis records; ``size`` in bytes with keys."""
        with self._lock:
            self._totals.delivered_records += rows
            self._totals.delivered_bytes += size
            self._totals.stored_records += records

    def add_retried(self, records: int, throttled: int) -> None:
        """Count rows to be sent again, ``throttled`` of them because of a service limit."""
        with self._lock:
            self._totals.retried_records += records
            self._totals.throttled += throttled

    def add_misplaced(self, rows: int, size: int) -> None:
        """Count rows to be sent again because their aggregate was stored in the wrong shard.

        They were counted as delivered, and no longer are.
        """
        with self._lock:
            self._totals.misplaced_records += rows
            self._totals.delivered_records -= rows
            self._totals.delivered_bytes -= size

    def add_skipped(self, rows: int) -> None:
        """Count rows that are left out because they are too large, as the user wants."""
        with self._lock:
            self._totals.skipped_records += rows

    def snapshot(self) -> dict[str, Any]:
        """Return the counters for the statistics file. The limits are those of one task."""
        with self._lock:
            totals = self._totals
            windows = [window.statistics() for window in self._open]
            return {
                "kind": "sink",
                "stream": self._stream,
                "tasks": len(windows),
                "requests": totals.requests,
                "delivered_records": totals.delivered_records,
                "delivered_bytes": totals.delivered_bytes,
                "stored_records": totals.stored_records,
                "retried_records": totals.retried_records,
                "misplaced_records": totals.misplaced_records,
                "skipped_records": totals.skipped_records,
                "throttled": totals.throttled,
                "in_flight_records": sum(w.records for w in windows),
                "in_flight_bytes": sum(w.bytes for w in windows),
                "in_flight_requests": sum(w.requests for w in windows),
                "waits": totals.waits + sum(w.waits for w in windows),
                "waited_s": totals.waited_s + sum(w.waited_s for w in windows),
                "limit_records": self._max_records,
                "limit_bytes": self._max_bytes,
            }
