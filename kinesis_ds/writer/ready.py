"""What the lanes that hold something wait for. Pure.

Each is filed in one of three heaps, and filed anew when something happens to it, so that choosing
the next one costs the same however many there are.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

from kinesis_ds.writer.queues import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.writer.aggregating import Aggregator
    from kinesis_ds.writer.pacing import Pace
    from kinesis_ds.writer.records import PackingLimits

# What a lane waits for, and what orders the heap of it.
_FULL: Final = "a request of its own"  # since when its oldest record waits
_PART: Final = "its time in a combined request"  # when its oldest record has waited long enough
_LATER: Final = "the end of a pause, or its shard's pace"  # when that is
_NOTHING: Final = ""


class Lane:
    """One predicted shard's records, and what holds them back."""

    __slots__ = (
        "aggregator",
        "failed_at",
        "failures",
        "key",
        "kind",
        "pace",
        "paused_until",
        "queue",
        "shard",
    )

    def __init__(self, shard: str, pace: Pace, aggregator: Aggregator | None) -> None:
        self.shard = shard
        self.pace = pace
        self.aggregator = aggregator
        self.queue = Queue()
        self.failures = 0
        self.failed_at = float("-inf")
        self.paused_until = float("-inf")
        self.kind = _NOTHING
        self.key = 0.0


class Filing:
    """Lanes by what they wait for.

    Args:
        limits: What a request may hold.
        linger_s: How long a record may wait for others.

    Attributes:
        eager: Whether lanes go without waiting for company.
    """

    def __init__(self, limits: PackingLimits, linger_s: float) -> None:
        self._limits = limits
        self._linger_s = linger_s
        self.eager = False
        self._heaps: dict[str, list[tuple[float, int, Lane]]] = {_FULL: [], _PART: [], _LATER: []}
        self._opened: list[tuple[float, int, Lane]] = []
        self._number = count()

    def file(self, lane: Lane, now: float) -> None:
        """File a lane under what it waits for now."""
        queue = lane.queue
        if not queue:
            lane.kind = _NOTHING
            return
        kind, key = _PART, queue.since
        when = max(lane.paused_until, lane.pace.ready_at(queue.cost, now))
        if when > now:
            kind, key = _LATER, when
        else:
            records = self._limits.request_records / len(queue)
            share = min(records, self._limits.request_bytes / queue.size) if queue.size else records
            if share <= 1.0 and lane.pace.allowance(now) >= share * queue.cost:
                kind = _FULL
            elif share > 1.0 and not queue.again:
                key += self._linger_s
        if (kind, key) != (lane.kind, lane.key):
            lane.kind, lane.key = kind, key
            heapq.heappush(self._heaps[kind], (key, next(self._number), lane))

    def file_all(self, lanes: Iterable[Lane], now: float) -> None:
        for lane in lanes:
            self.file(lane, now)

    def _top(self, kind: str) -> Lane | None:
        """The first lane that is still filed there."""
        heap = self._heaps[kind]
        while heap:
            key, _, lane = heap[0]
            if lane.kind == kind and lane.key == key:
                return lane
            heapq.heappop(heap)
        return None

    def refile_due(self, now: float) -> None:
        """File those anew whose pause is over, or whose pace lets them go."""
        while (lane := self._top(_LATER)) is not None and lane.key <= now:
            heapq.heappop(self._heaps[_LATER])
            lane.kind = _NOTHING
            self.file(lane, now)

    def next(self, now: float, *, alone: bool) -> Lane | None:
        """The lane to take from next, a request's first or one to combine."""
        part = self._top(_PART)
        if part is not None and not self.eager and part.key > now:
            part = None
        if not alone:
            return part
        full = self._top(_FULL)
        if full is None or (part is not None and part.queue.since < full.key):
            return part
        return full

    def wake_at(self, now: float) -> float | None:
        """When :meth:`next` may give a lane although nothing else happens."""
        if self._top(_FULL) is not None:
            return now
        times = []
        if (lane := self._top(_PART)) is not None:
            times.append(now if self.eager else lane.key)
        if (lane := self._top(_LATER)) is not None:
            times.append(lane.key)
        return min(times, default=None)

    def opened(self, lane: Lane, at: float) -> None:
        """An aggregate was opened in the lane."""
        heapq.heappush(self._opened, (at, next(self._number), lane))

    def oldest_open(self) -> tuple[float, Lane] | None:
        """The lane with the oldest open aggregate, and when that was opened."""
        while self._opened:
            at, _, lane = self._opened[0]
            if lane.aggregator is not None and lane.aggregator.opened_at == at:
                return at, lane
            heapq.heappop(self._opened)
        return None

    def clear(self) -> None:
        """Forget every lane; none of them holds anything any more."""
        for heap in self._heaps.values():
            for _, _, lane in heap:
                lane.kind = _NOTHING
            heap.clear()
        self._opened.clear()
