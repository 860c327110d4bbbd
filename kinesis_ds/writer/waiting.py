"""The rows of one task that wait to be sent to one stream. Pure.

Each row waits in the queue of the shard that it is predicted for. On the way there it may wait in
the open aggregate of that shard, or, where order is kept, behind another row of its partition key.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kinesis_ds.writer.aggregating import user_records
from kinesis_ds.writer.key_order import KeyOrder
from kinesis_ds.writer.pacing import Pace
from kinesis_ds.writer.readiness import Readiness
from kinesis_ds.writer.records import Block, records_of
from kinesis_ds.writer.shard_queue import ShardQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesis_ds.writer.aggregating import Aggregator
    from kinesis_ds.writer.prediction import Prediction
    from kinesis_ds.writer.records import Item, PackingLimits, Record
    from kinesis_ds.writer.shard_queue import Taken


class WaitingRows:
    """The shard queues of one stream, and what is on the way into them.

    Args:
        limits: What a request may hold.
        prediction: Predicts the shard of a record.
        ordered: Whether rows of one partition key are stored in row order, whatever fails. At most
            one record of a key is then under way.
        linger_s: How long a record may wait for others.
        paces: The shards' paces, which outlive this object; new ones are added to it.
        new_aggregator: Makes the aggregator of one shard; None where each row is a record. Its
            argument says that each row must go alone: where the shard is not known, rows that are
            put together may not belong together.

    Attributes:
        prediction: Predicts the shard of a record.
        rows: How many rows wait, those in open aggregates included.
    """

    def __init__(
        self,
        limits: PackingLimits,
        prediction: Prediction,
        *,
        ordered: bool,
        linger_s: float,
        paces: dict[str, Pace],
        new_aggregator: Callable[[bool], Aggregator] | None,
    ) -> None:
        self._linger_s = linger_s
        self._paces = paces
        self._new_aggregator = new_aggregator
        self._order = KeyOrder() if ordered else None
        self._queues: dict[str, ShardQueue] = {}
        self._readiness = Readiness(limits, linger_s)
        # The queues that something was added to, in that order, until the readiness knows.
        self._touched: dict[ShardQueue, None] = {}
        self._flushing = False
        self.prediction = prediction
        self.rows = 0

    # In.

    def add(self, block: Block, now: float) -> None:
        """Take rows that were never sent, in row order."""
        self.rows += len(block)
        if self._new_aggregator is None and self._order is not None:
            # The rows of a key must get in line in their order, whatever their shards are.
            for record in block.records:
                self._enqueue(record, self._queue_for(record), now)
        else:
            for shard, rows in self.prediction.split(block).items():
                self._add_to(self._queue(shard), rows, now)
        self._update_touched(now)

    def put_back(self, queue: ShardQueue, records: list[Record], now: float) -> None:
        """Put failed records to the front of the queue that they were taken from.

        The caller calls :meth:`update` when it is done with the queue.
        """
        self.rows += sum(record.rows for record in records)
        queue.put_back(records, now)

    def replace(self, old: Record, rows: list[Record], now: float) -> None:
        """Put rows of a record that was sent to the front of the queues where they belong now.

        The other rows of the record are done. The rows are put together anew, if there is an
        aggregator.
        """
        self.rows += sum(row.rows for row in rows)
        packed = self._packed(rows, now) if rows != [old] else [(self._queue_for(old), old)]
        front = [record for _, record in packed]
        if self._order is not None and front != [old]:
            passing = self._order.replace(old, front)
            mine = set(front)
            front = [record for record in passing if record in mine]
            self._admit((record for record in passing if record not in mine), now)
        going = set(front)
        by_queue: dict[ShardQueue, list[Record]] = defaultdict(list)
        for queue, record in packed:
            if record in going:
                by_queue[queue].append(record)
        for queue, records in by_queue.items():
            queue.put_back(records, now)
            self._readiness.update(queue, now)

    def done(self, items: Iterable[Item], now: float) -> None:
        """Let the records pass that waited for these, which are stored."""
        if self._order is not None:
            passing = [free for record in records_of(items) for free in self._order.done(record)]
            if passing:
                self._admit(passing, now)

    def deal_out_anew(self, prediction: Prediction, sent: Iterable[Record], now: float) -> None:
        """Move all that waits to the queues of a new prediction, in row order.

        Aggregates are taken apart and made anew.

        Args:
            prediction: By the shards as they are now.
            sent: The records that are under way; they keep their place in the order of their keys.
            now: In monotonic seconds.
        """
        waiting = self._drain(sent)
        self.prediction = prediction
        if prediction.known:
            self._queues = {s: q for s, q in self._queues.items() if s in prediction.open}
            for shard in [s for s in self._paces if s not in prediction.open]:
                del self._paces[shard]
        waiting.sort(key=lambda record: record.row)
        tried = [record for record in waiting if record.tries]
        # The rows of a key that were tried come before those that were not.
        for queue, record in self._packed(tried, now):
            self.rows += record.rows
            self._enqueue(record, queue, now - self._linger_s)
        self._update_touched(now)
        if fresh := [record for record in waiting if not record.tries]:
            self.add(Block.of(fresh), now)

    # Out.

    def flush(self) -> None:
        """Let nothing wait for others, because no more rows come."""
        self._flushing = self._readiness.eager = True

    def hurry(self, on: bool) -> None:
        """Send all that can be sent while the task waits for room. Aggregates stay open."""
        self._readiness.eager = on or self._flushing

    def update_due(self, now: float) -> None:
        """See which queues are ready because of the time. Closes the aggregates that are due.

        An aggregate is due when it was open for the linger time, or when no more rows come.
        """
        while (oldest := self._readiness.oldest_aggregate()) is not None:
            at, queue = oldest
            if not self._flushing and at + self._linger_s > now:
                break
            assert queue.aggregator is not None
            if (closed := queue.aggregator.close()) is not None:
                self._enqueue(closed, queue, at)
        self._update_touched(now)
        self._readiness.update_due(now)

    def next(self, now: float, *, alone: bool) -> ShardQueue | None:
        """Return the queue to take from next; see :meth:`Readiness.next`."""
        while (queue := self._readiness.next(now, alone=alone)) is not None:
            if queue.pace.ready_at(queue.cost, now) <= now:
                return queue
            self._readiness.update(queue, now)  # another task has used its shard's pace up
        return None

    def take(self, queue: ShardQueue, records: int, room: int, now: float, *, alone: bool) -> Taken:
        """Take from a queue what fits into a request; see :meth:`ShardQueue.take`."""
        taken = queue.take(records, room, queue.pace.allowance(now), alone=alone)
        if taken.items:
            self.rows -= sum(item.rows for item in taken.items)
            queue.pace.sent(taken.cost, now)
            self._readiness.update(queue, now)
        return taken

    def update(self, queue: ShardQueue, now: float) -> None:
        """Note that the pace or the pause of a queue has changed."""
        self._readiness.update(queue, now)

    def wake_at(self, now: float) -> float | None:
        """Return when :meth:`next` may give a queue although nothing else happens."""
        at = self._readiness.wake_at(now)
        if (oldest := self._readiness.oldest_aggregate()) is None:
            return at
        closes_at = now if self._flushing else oldest[0] + self._linger_s
        return closes_at if at is None else min(at, closes_at)

    # In between.

    def _queue_for(self, record: Record) -> ShardQueue:
        return self._queue(self.prediction.shard_of(record))

    def _queue(self, shard: str) -> ShardQueue:
        queue = self._queues.get(shard)
        if queue is None:
            pace = self._paces.setdefault(shard, Pace())
            aggregator = None if self._new_aggregator is None else self._new_aggregator(not shard)
            queue = self._queues[shard] = ShardQueue(shard, pace, aggregator)
        return queue

    def _add_to(self, queue: ShardQueue, rows: Block, now: float) -> None:
        aggregator = queue.aggregator
        if aggregator is None:
            queue.add(rows, now)
            self._touched[queue] = None
            return
        opened = aggregator.opened_at
        for closed in aggregator.add(rows, now):
            self._enqueue(closed, queue, now if opened is None else opened)
            opened = None
        if aggregator.opened_at is not None and aggregator.opened_at != opened:
            self._readiness.aggregate_opened(queue, aggregator.opened_at)

    def _enqueue(self, record: Record, queue: ShardQueue, since: float) -> None:
        if self._order is None or self._order.add(record):
            queue.add(record, since)
            self._touched[queue] = None

    def _admit(self, records: Iterable[Record], now: float) -> None:
        """Queue records that have waited for others of their keys: they wait for nothing else."""
        for record in records:
            queue = self._queue_for(record)
            queue.add(record, now - self._linger_s)
            self._touched[queue] = None
        self._update_touched(now)

    def _update_touched(self, now: float) -> None:
        for queue in self._touched:
            self._readiness.update(queue, now)
        self._touched.clear()

    def _packed(self, rows: Iterable[Record], now: float) -> list[tuple[ShardQueue, Record]]:
        """Put plain records together as they travel by the present prediction.

        Returns the records to send, each with its queue; nothing stays in an open aggregate.
        """
        if self._new_aggregator is None:
            return [(self._queue_for(record), record) for record in rows]
        by_queue: dict[ShardQueue, list[Record]] = defaultdict(list)
        for record in rows:
            by_queue[self._queue_for(record)].append(record)
        packed = []
        for queue, records in by_queue.items():
            aggregator = self._new_aggregator(not queue.shard)
            for record in records:
                packed += [(queue, closed) for closed in aggregator.add(Block.of([record]), now)]
            if (last := aggregator.close()) is not None:
                packed.append((queue, last))
        return packed

    def _drain(self, sent: Iterable[Record]) -> list[Record]:
        """Take out everything that waits, as plain records; those of one key in their order."""
        waiting = []
        for queue in self._queues.values():
            waiting += queue.drain()
        if self._order is not None:
            waiting += self._order.drain(sent)
        for queue in self._queues.values():
            if queue.aggregator is not None and (last := queue.aggregator.close()) is not None:
                waiting.append(last)
        self._readiness.clear()
        self.rows = 0
        return [row for record in waiting for row in user_records(record)]
