"""Which shard queues are ready to send, and when the others will be. Pure.

Each queue that holds something is in one of three heaps, and changes place when something happens
to it, so that choosing the next queue costs the same however many there are.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kinesis_ds.writer.records import PackingLimits
    from kinesis_ds.writer.shard_queue import ShardQueue

# The states of a queue; in brackets its rank, by which the heap of the state is ordered.
_FULL: Final = "has enough for a request of its own"  # (since when its oldest record waits)
_PART: Final = "waits for its time in a combined request"  # (when that time comes)
_HELD_BACK: Final = "waits for the end of a pause, or for its shard's pace"  # (when that is)
_EMPTY: Final = ""


class Readiness:
    """The states of all shard queues of one scheduler.

    Args:
        limits: What a request may hold.
        linger_s: How long a record may wait for others, in seconds.

    Attributes:
        eager: Whether queues send without waiting for more records.
    """

    def __init__(self, limits: PackingLimits, linger_s: float) -> None:
        self._limits = limits
        self._linger_s = linger_s
        self.eager = False
        # An entry of a heap is out of date when the queue has another state or rank by now.
        self._heaps: dict[str, list[tuple[float, int, ShardQueue]]] = {
            _FULL: [],
            _PART: [],
            _HELD_BACK: [],
        }
        self._open_aggregates: list[tuple[float, int, ShardQueue]] = []
        self._number = count()

    def update(self, queue: ShardQueue, now: float) -> None:
        """Note what a queue waits for now. To be called after each change of the queue."""
        if not queue:
            queue.state = _EMPTY
            return
        state, rank = _PART, queue.since
        when = max(queue.paused_until, queue.pace.ready_at(queue.cost, now))
        if when > now:
            state, rank = _HELD_BACK, when
        else:
            records = self._limits.request_records / len(queue)
            share = min(records, self._limits.request_bytes / queue.size) if queue.size else records
            if share <= 1.0 and queue.pace.allowance(now) >= share * queue.cost:
                state = _FULL
            elif share > 1.0 and not queue.repeats:
                rank += self._linger_s
        if (state, rank) != (queue.state, queue.rank):
            queue.state, queue.rank = state, rank
            heapq.heappush(self._heaps[state], (rank, next(self._number), queue))

    def update_due(self, now: float) -> None:
        """Update the queues whose pause is over, or whose pace lets them send again."""
        while (queue := self._first(_HELD_BACK)) is not None and queue.rank <= now:
            heapq.heappop(self._heaps[_HELD_BACK])
            queue.state = _EMPTY
            self.update(queue, now)

    def next(self, now: float, *, alone: bool) -> ShardQueue | None:
        """Return the queue to take from next; None when none is ready.

        Args:
            now: In monotonic seconds.
            alone: Whether the request is still empty, so that a queue may fill it alone.
        """
        part = self._first(_PART)
        if part is not None and not self.eager and part.rank > now:
            part = None
        if not alone:
            return part
        full = self._first(_FULL)
        if full is None or (part is not None and part.since < full.rank):
            return part
        return full

    def wake_at(self, now: float) -> float | None:
        """Return when :meth:`next` may give a queue although nothing else happens."""
        if self._first(_FULL) is not None:
            return now
        times = []
        if (queue := self._first(_PART)) is not None:
            times.append(now if self.eager else queue.rank)
        if (queue := self._first(_HELD_BACK)) is not None:
            times.append(queue.rank)
        return min(times, default=None)

    def aggregate_opened(self, queue: ShardQueue, at: float) -> None:
        """Note that the queue's aggregator opened an aggregate."""
        heapq.heappush(self._open_aggregates, (at, next(self._number), queue))

    def oldest_aggregate(self) -> tuple[float, ShardQueue] | None:
        """Return the queue with the oldest open aggregate, and when that was opened."""
        while self._open_aggregates:
            at, _, queue = self._open_aggregates[0]
            if queue.aggregator is not None and queue.aggregator.opened_at == at:
                return at, queue
            heapq.heappop(self._open_aggregates)
        return None

    def clear(self) -> None:
        """Forget every queue; none of them holds anything any more."""
        for heap in self._heaps.values():
            for _, _, queue in heap:
                queue.state = _EMPTY
            heap.clear()
        self._open_aggregates.clear()

    def _first(self, state: str) -> ShardQueue | None:
        """Return the first queue that is still in this state."""
        heap = self._heaps[state]
        while heap:
            rank, _, queue = heap[0]
            if queue.state == state and queue.rank == rank:
                return queue
            heapq.heappop(heap)
        return None
