"""Count what became of the ranges that tasks were to fetch from an agent."""

from __future__ import annotations

import threading
from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from kinesis_ds.plan.position import Position, precedes

if TYPE_CHECKING:
    from kinesis_ds.plan.ranges import ShardRange


class Outcome(IntEnum):
    """The best that happened to a planned range, from worst to best."""

    NOT_FETCHED = 0  # no task asked for it
    REFUSED = 1  # a task asked, and the agent did not hold all of it any more
    BROKEN_OFF = 2  # a task began to fetch it and did not come to its end
    FETCHED = 3


class FetchCounts:
    """Counts the planned ranges that were committed, by their outcome. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Outcome] = Counter()

    def add(self, outcome: Outcome) -> None:
        with self._lock:
            self._counts[outcome] += 1

    def counters(self) -> dict[str, int]:
        """Return the number of ranges for each outcome, by its name in lower case."""
        with self._lock:
            return {outcome.name.lower(): self._counts[outcome] for outcome in Outcome}


class Fetches:
    """Follows the planned ranges of one stream until they are committed. Thread-safe.

    Holds no more than the ranges of the batches that Spark has not committed.

    Args:
        counts: Where a range is counted when it has been committed.
    """

    def __init__(self, counts: FetchCounts) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        # By shard, by start and end as text: the end, and the best that happened so far.
        self._planned: dict[str, dict[tuple[str, str], tuple[Position, Outcome]]] = {}

    def plan(self, planned: ShardRange) -> None:
        """Note that a task will ask for a range."""
        with self._lock:
            of_shard = self._planned.setdefault(planned.shard_id, {})
            key = str(planned.start), str(planned.end)
            of_shard.setdefault(key, (planned.end, Outcome.NOT_FETCHED))

    def note(self, shard_id: str, start: Position, end: Position, outcome: Outcome) -> None:
        """Note what happened to a range; a worse outcome does not replace a better one."""
        key = str(start), str(end)
        with self._lock:
            of_shard = self._planned.get(shard_id, {})
            if key in of_shard and of_shard[key][1] < outcome:
                of_shard[key] = end, outcome

    def commit(self, shard_id: str, position: Position) -> None:
        """Count the ranges of a shard that end at ``position`` or before, and forget them."""
        with self._lock:
            of_shard = self._planned.get(shard_id)
            if not of_shard:
                return
            done = [key for key, (end, _) in of_shard.items() if not precedes(position, end)]
            for key in done:
                self._counts.add(of_shard.pop(key)[1])
            if not of_shard:
                del self._planned[shard_id]
