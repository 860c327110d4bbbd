"""Counts what the sink of one worker process does, over all its tasks; for people and tests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.writer.inflight import InFlightWindow


_COUNTED = (
    "requests",
    "delivered_records",
    "delivered_bytes",
    "stored_records",
    "retried_records",
    "misplaced_records",
    "skipped_records",
    "throttled",
)


class SinkCounters:
    """Counters of one stream, added to by every task that writes to it. Thread-safe.

    Args:
        stream: The label of the stream; ``*`` where the rows name their streams.
        max_records: The most rows that one task has in flight.
        max_bytes: The most bytes that one task has in flight.

    Attributes:
        after_task: Called whenever a task has ended.
    """

    def __init__(self, stream: str, max_records: int, max_bytes: int) -> None:
        self._stream = stream
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._waits = 0
        self._waited_s = 0.0
        self._open: list[InFlightWindow] = []
        self.after_task: Callable[[], None] = lambda: None

    def opened(self, window: InFlightWindow) -> None:
        """Count a task that begins, with its window."""
        with self._lock:
            self._open.append(window)

    def closed(self, window: InFlightWindow) -> None:
        """Count a task that has ended; nothing of it is in flight any more."""
        with self._lock:
            self._open.remove(window)
            seen = window.statistics()
            self._waits += seen.waits
            self._waited_s += seen.waited_s
        self.after_task()

    def add(self, **counts: int) -> None:
        """Add to some of the counters, by the names that they have in the statistics file.

        Rows of an aggregate that was stored in the wrong shard are sent again. They were counted as
        delivered, and are taken off there when they count as misplaced.
        """
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def snapshot(self) -> dict[str, Any]:
        """Return the counters for the statistics file. The limits are those of one task."""
        with self._lock:
            windows = [window.statistics() for window in self._open]
            return {
                "kind": "sink",
                "stream": self._stream,
                "tasks": len(windows),
                **self._counts,
                "in_flight_records": sum(w.records for w in windows),
                "in_flight_bytes": sum(w.bytes for w in windows),
                "in_flight_requests": sum(w.requests for w in windows),
                "waits": self._waits + sum(w.waits for w in windows),
                "waited_s": self._waited_s + sum(w.waited_s for w in windows),
                "limit_records": self._max_records,
                "limit_bytes": self._max_bytes,
            }
