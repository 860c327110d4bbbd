"""Holds the records of a shard from when they are decoded until Spark has committed them.

A shard has four positions: *received* (read off the network), *available* (decoded, and here),
*planned* (in an end offset that Spark has logged) and *committed* (Spark is done with it). Records
enter at *available* and leave at *committed*, so any planned range can be served again and again.
The pool bounds what all shards hold together.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.errors import AgentError
from kinesis_ds.plan.held import NO_LIMITS, Held, Limits
from kinesis_ds.plan.position import SHARD_END, After, At, AtTimestamp, Position, ShardEnd, precedes
from kinesis_ds.wire.decode import Records, sequence_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_ds.agent.pool import BufferPool


class OnMoved(Protocol):
    """A function to call when *available* has moved. With ``news``, records or the end came."""

    def __call__(self, *, news: bool) -> None: ...


def _nobody(*, news: bool) -> None:
    del news


@dataclass(frozen=True)
class _Chunk:
    records: Records
    nbytes: int


class ShardBuffer:
    """The records of one shard, from ``start`` (what lies before it was freed) to ``available``.

    ``append`` and ``end`` are called by the shard's executor and on the loop, the rest by any
    thread. Thread-safe.

    Args:
        shard: The shard's id, for messages.
        start: Where reading starts.
        on_moved: Called from any thread when *available* has moved. Must not block.
        pool_key: The shard's name in the pool; its id unless given.
    """

    def __init__(
        self,
        shard: str,
        start: Position,
        pool: BufferPool,
        on_moved: OnMoved | None = None,
        pool_key: str = "",
    ) -> None:
        self.shard = shard
        self.pool_key = pool_key or shard
        self._pool = pool
        self._on_moved = on_moved or _nobody
        self._lock = threading.Lock()
        self._chunks: deque[_Chunk] = deque()
        self._start = start
        self._available = start
        # Where this began at a time: up to when no record came.
        self._silent_ms = start.ms if isinstance(start, AtTimestamp) else -1
        pool.open(self.pool_key)

    @property
    def available(self) -> Position:
        return self._available

    @property
    def start(self) -> Position:
        return self._start

    def append(self, records: Records | None, position: Position, reserved: int) -> None:
        """Add decoded records and move *available* to ``position``.

        Args:
            records: None where only the position moves.
            reserved: Bytes that were reserved in the pool for the records. From now on they use as
                many as their Arrow batch has.
        """
        if records is not None and not records.batch.num_rows:
            records = None  # an aggregate that belongs to another shard
        nbytes = records.batch.nbytes if records else 0
        with self._lock:
            if isinstance(self._available, ShardEnd):
                # Decoded late, when the end had been confirmed: nothing new can be in it.
                records, nbytes = None, 0
            else:
                if records and _within(records.last, self._start):
                    # Freed before it came: it was planned from an agent that is gone.
                    records, nbytes = None, 0
                if records:
                    self._chunks.append(_Chunk(records, nbytes))
                self._available = position
                if isinstance(position, AtTimestamp):
                    self._silent_ms = position.ms
        self._pool.change(
            self.pool_key, nbytes - reserved, records.batch.num_rows if records else 0
        )
        self._on_moved(news=records is not None)

    def end(self) -> None:
        """Mark the shard as read to its end."""
        with self._lock:
            self._available = SHARD_END
        self._on_moved(news=True)

    def hold(self, start: Position, end: Position, limits: Limits = NO_LIMITS) -> Held | None:
        """Return how much of ``(start, end]`` is within the limits, counted from its front.

        Records that share a sequence number are never parted: all of an aggregate is within a
        limit, or nothing.

        Returns:
            None when the buffer does not hold all of the range.
        """
        with self._lock:
            if not self._holds(start, end):
                return None
            batches = list(self._slices(start, end)) if self._chunks else ()
        if not batches:
            return Held(0, 0, end)
        max_records, max_bytes, at_least_one = limits
        oldest_ms = _arrival_ms(batches[0], 0)
        nbytes = rows = 0
        last: pa.RecordBatch | None = None
        for batch in batches:
            size = _payload_bytes(batch)
            if (max_records is None or rows + batch.num_rows <= max_records) and (
                max_bytes is None or nbytes + size <= max_bytes
            ):
                rows, nbytes, last = rows + batch.num_rows, nbytes + size, batch
                continue
            taken = _rows_within(
                batch,
                None if max_records is None else max_records - rows,
                None if max_bytes is None else max_bytes - nbytes,
            )
            if not rows and not taken and at_least_one:
                taken = _rows_of_the_first(batch)
            if taken:
                last = batch.slice(0, taken)
                rows, nbytes = rows + taken, nbytes + _payload_bytes(last)
            return Held(rows, nbytes, start if last is None else _behind(last), oldest_ms)
        return Held(rows, nbytes, end, oldest_ms)

    def until(self, ms: int) -> Position | None:
        """Return the position before the first record held that arrived at ``ms`` or later.

        Args:
            ms: In milliseconds since the epoch, by the service's clock.

        Returns:
            None when no such record is held.
        """
        with self._lock:
            chunks = list(self._chunks)
            behind = self._start
        for chunk in chunks:
            batch = chunk.records.batch
            newest = pc.max(batch.column(3)).cast(pa.int64()).as_py() // 1000
            if newest < ms:
                behind = _behind(batch)
                continue
            row = next(i for i in range(batch.num_rows) if _arrival_ms(batch, i) >= ms)
            return _behind(batch.slice(0, row)) if row else behind
        return None

    def read(self, start: Position, end: Position) -> list[pa.RecordBatch]:
        """Return the records in ``(start, end]``, in order.

        Freeing them later does not disturb what was returned.

        Raises:
            AgentError: The buffer does not hold all of the range.
        """
        with self._lock:
            if not self._holds(start, end):
                raise AgentError(
                    f"Shard {self.shard}: the agent holds ({self._start}, {self._available}], "
                    f"not ({start}, {end}]."
                )
            return list(self._slices(start, end))

    def free(self, position: Position) -> None:
        """Drop what lies at or before ``position``: Spark has committed it."""
        nbytes = rows = 0
        with self._lock:
            if not precedes(self._start, position):
                return
            while self._chunks and _within(self._chunks[0].records.last, position):
                chunk = self._chunks.popleft()
                nbytes += chunk.nbytes
                rows += chunk.records.batch.num_rows
            self._start = position
        self._pool.change(self.pool_key, -nbytes, -rows)
        if isinstance(position, ShardEnd):
            self._pool.close(self.pool_key)  # nothing will come: its share goes to the others

    def close(self) -> None:
        """Drop all records and leave the pool."""
        with self._lock:
            nbytes = sum(chunk.nbytes for chunk in self._chunks)
            rows = sum(chunk.records.batch.num_rows for chunk in self._chunks)
            self._chunks.clear()
        self._pool.change(self.pool_key, -nbytes, -rows)
        self._pool.close(self.pool_key)

    # --- with the lock held ---------------------------------------------------------------------

    def _holds(self, start: Position, end: Position) -> bool:
        if isinstance(end, AtTimestamp):
            # Only reading tells where that is, except for times up to which there was silence.
            return start == self._start and end.ms <= self._silent_ms
        # Nor does a number tell whether it lies before the time at which this began.
        reaches_back = start == self._start or (
            isinstance(start, (At, After))
            and not isinstance(self._start, AtTimestamp)
            and _at_or_before(self._start, start)
        )
        return reaches_back and _at_or_before(end, self._available)

    def _slices(self, start: Position, end: Position) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks:
            records = chunk.records
            low = not isinstance(start, (At, After)) or records.first > start.number
            high = _within(records.last, end)
            if low and high:
                yield records.batch
                continue
            if not _within(records.first, end) or (
                isinstance(start, (At, After)) and records.last <= start.number
            ):
                continue
            numbers = sequence_numbers(records.batch)
            first = bisect_right(numbers, start.number) if isinstance(start, (At, After)) else 0
            behind = bisect_right(numbers, end.number) if isinstance(end, After) else len(numbers)
            if behind > first:
                yield records.batch.slice(first, behind - first)


def _payload_bytes(batch: pa.RecordBatch) -> int:
    return _bytes_of(batch.column(0)) + _bytes_of(batch.column(1))


def _bytes_of(column: pa.Array) -> int:
    # From the offsets of the first and the last value: on the few rows of an event this costs a
    # tenth of Arrow's own functions.
    offsets = memoryview(column.buffers()[1]).cast("i")
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


def _rows_within(batch: pa.RecordBatch, max_records: int | None, max_bytes: int | None) -> int:
    """Return how many rows from the front are within both limits, no sequence number parted."""
    rows: int = batch.num_rows if max_records is None else min(batch.num_rows, max_records)
    if max_bytes is not None:
        keys, data = (pc.fill_null(pc.binary_length(batch.column(i)), 0) for i in (0, 1))
        reached = pc.cumulative_sum(pc.add(keys, data).cast(pa.int64())).to_pylist()
        rows = min(rows, bisect_right(reached, max_bytes))
    numbers = batch.column(2)
    while 0 < rows < batch.num_rows and numbers[rows].as_py() == numbers[rows - 1].as_py():
        rows -= 1
    return rows


def _rows_of_the_first(batch: pa.RecordBatch) -> int:
    numbers = batch.column(2)
    first = numbers[0].as_py()
    rows = range(1, batch.num_rows)
    return next((i for i in rows if numbers[i].as_py() != first), batch.num_rows)


def _behind(batch: pa.RecordBatch) -> After:
    last = batch.num_rows - 1
    return After(batch.column(2)[last].as_py(), _arrival_ms(batch, last))


def _arrival_ms(batch: pa.RecordBatch, row: int) -> int:
    arrived: int = batch.column(3)[row].value
    return arrived // 1000


def _within(number: int, end: Position) -> bool:
    return isinstance(end, ShardEnd) or (isinstance(end, After) and number <= end.number)


def _at_or_before(left: Position, right: Position) -> bool:
    if isinstance(left, (At, After)) and isinstance(right, (At, After)):
        return left.number <= right.number  # the same number may come padded and not
    return left == right or precedes(left, right)
