"""The queue of one shard: the records that may be sent to it, and what holds them back. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kinesis_ds.writer.records import Block, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.writer.aggregating import Aggregator
    from kinesis_ds.writer.pacing import Pace
    from kinesis_ds.writer.records import Item, Record

_BACKOFF_BASE_S: Final = 0.1
_BACKOFF_CAP_S: Final = 5.0


class Taken(NamedTuple):
    """The records that a queue gave for a request.

    Attributes:
        queue: The queue.
        items: Blocks and records, in their order.
        size: Their bytes, partition keys included.
        cost: Their cost in shard-seconds.
        request_full: Whether the next item of the queue did not fit into the request.
    """

    queue: ShardQueue
    items: list[Item]
    size: int
    cost: float
    request_full: bool


class ShardQueue:
    """The records that may be sent to one shard, first in, first out. Its length is their number.

    Args:
        shard: The id of the shard; empty for records whose shard is not known.
        pace: How fast the shard takes records.
        aggregator: Puts rows together before they come into the queue; None where each row is a
            record.

    Attributes:
        size: The bytes of its records, partition keys included.
        cost: Their cost in shard-seconds.
        repeats: How many of them were sent before.
        failures: How many requests in a row had failed records of this shard.
        paused_until: When something may be sent again after a failure, in monotonic seconds.
        state, rank: What the queue waits for; set by its ``Readiness``.
    """

    def __init__(self, shard: str, pace: Pace, aggregator: Aggregator | None) -> None:
        self.shard = shard
        self.pace = pace
        self.aggregator = aggregator
        self._items: deque[Item] = deque()
        self._records = 0
        self.size = 0
        self.cost = 0.0
        self.repeats = 0
        self.failures = 0
        self._failed_at = float("-inf")
        self.paused_until = float("-inf")
        self.state = ""
        self.rank = 0.0

    def __len__(self) -> int:
        return self._records

    @property
    def since(self) -> float:
        """When the record at the front began to wait, or was first sent, in monotonic seconds."""
        return self._items[0].since

    def add(self, item: Item, since: float) -> None:
        """Put an item at the end; it has waited since then."""
        item.since = since
        self._items.append(item)
        self._count(item)

    def put_back(self, records: list[Record], now: float) -> None:
        """Put records to the front, in their order."""
        for record in reversed(records):
            record.since = now if record.first_try is None else record.first_try
            self._items.appendleft(record)
            self._count(record)

    def take(self, records: int, room: int, allowance: float, *, alone: bool) -> Taken:
        """Take from the front as much as three limits allow, and at least one record.

        The cost of the first record is not looked at: the caller has asked the pace. If it would be
        ``alone`` in its request, its size is not looked at either.

        Args:
            records: The most records.
            room: The most bytes.
            allowance: The most shard-seconds.
            alone: Whether the request is still empty.
        """
        taken: list[Item] = []
        size, cost, full = 0, 0.0, False
        waiting = self._items
        while waiting:
            item = waiting[0]
            if not records or (size + item.first_size > room and (taken or not alone)):
                full = True
                break
            if taken and cost + item.first_cost > allowance:
                break
            if isinstance(item, Block):
                fitting = max(1, item.fitting(records, room - size, allowance - cost))
                if fitting < len(item):
                    item, waiting[0] = item.cut(fitting)
                else:
                    waiting.popleft()
            else:
                waiting.popleft()
            taken.append(item)
            records -= len(item)
            size += item.size
            cost += item.cost
            if item.tries:
                self.repeats -= len(item)
            self._records -= len(item)
        self.size -= size
        self.cost = self.cost - cost if waiting else 0.0
        return Taken(self, taken, size, cost, full)

    def drain(self) -> list[Record]:
        """Take out everything, record by record."""
        records = records_of(self._items)
        self._items.clear()
        self._records, self.size, self.cost, self.repeats = 0, 0, 0.0, 0
        return records

    def pause(self, sent_at: float, now: float, uniform: Callable[[float, float], float]) -> None:
        """Send nothing for a while, because some of what was sent at ``sent_at`` failed.

        The pause is drawn with ``uniform``, up to 0.1 s; up to twice as long after each further
        failure, and up to 5 s at most.
        """
        # What was sent before the last failure was known is part of that failure.
        if self.failures and sent_at < self._failed_at:
            return
        self._failed_at = now
        self.failures += 1
        longest = min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * 2 ** min(self.failures - 1, 10))
        self.paused_until = now + uniform(0.0, longest)

    def _count(self, item: Item) -> None:
        self._records += len(item)
        self.size += item.size
        self.cost += item.cost
        if item.tries:
            self.repeats += len(item)
