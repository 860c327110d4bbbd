"""The read task: reads closed ranges from the agent or, where that fails, from Kinesis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.read_range import read_range
from kinesis_ds.errors import AgentError, InternalError
from kinesis_ds.plan.loss import fewer_than_planned
from kinesis_ds.plan.position import After, Position, may_hold_records
from kinesis_ds.wire.schema import to_source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    import pyarrow as pa

    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.planned_range import PlannedRange

logger = logging.getLogger(__name__)

# Closing sends nothing and waits for nobody; whoever is interrupted by it must not hang.
_FINISH_WITHIN_S = 5.0


def read_all(
    ranges: Iterable[PlannedRange],
    aws: AwsOptions,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's ranges, one range after the other, as :func:`read_planned`.

    All that has to be read from Kinesis comes over one connection.

    Args:
        ranges: In the order of reading.
        aws: How to reach Kinesis.
        new_loop: Makes the loop that does so; a test may let its time pass faster.
    """
    with contextlib.closing(_Kinesis(aws, new_loop)) as kinesis:
        for planned in ranges:
            yield from _read(planned, kinesis)


def read_planned(
    planned: PlannedRange,
    aws: AwsOptions,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the records of a planned range, in order, as batches of ``SOURCE_SCHEMA``.

    If the agent is gone, was restarted or breaks off half-way, the rest of the range is read from
    Kinesis.

    Raises:
        DataLossError: Kinesis no longer holds all of the range, and the query is to fail then.
        KinesisConnectorError: Kinesis cannot be read.
    """
    return read_all((planned,), aws, new_loop)


def _read(planned: PlannedRange, kinesis: _Kinesis) -> Iterator[pa.RecordBatch]:
    rows = 0
    position = planned.start
    complete = False
    if planned.agent is not None:
        try:
            for batch in stream_range(planned.agent, planned.shard_id, planned.start, planned.end):
                rows += batch.num_rows
                position = After(batch.column(2)[-1].as_py())
                yield to_source_batch(batch, planned.stream, planned.shard_id)
            complete = True
        except AgentError as exc:
            logger.info(
                "%s Reading (%s, %s] from Kinesis instead.", exc.message, position, planned.end
            )
    if not complete and may_hold_records(position, planned.end):
        for batch in kinesis.read(planned, position, rows):
            rows += batch.num_rows
            yield to_source_batch(batch, planned.stream, planned.shard_id)
    if planned.records is not None and rows != planned.records:
        _on_other_count(planned, rows, complete)


def _on_other_count(planned: PlannedRange, rows: int, complete: bool) -> None:
    said = (
        f"{planned.label}: ({planned.start}, {planned.end}] held {planned.records} records when it "
        f"was planned and {rows} now."
    )
    if complete or rows > (planned.records or 0):
        raise InternalError(said, "Please report this.")
    loss = fewer_than_planned(said)
    logger.warning("%s", loss.accept(fail_on_data_loss=planned.fail_on_data_loss))


class _LoopClock:
    """The time that passes in a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return time.time()


class _Kinesis:
    """Reads ranges from Kinesis over one connection, opened with the first. Close it when done.

    Make it when the task begins: all its ranges are known by then.
    """

    def __init__(self, aws: AwsOptions, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._aws = aws
        self._loop = new_loop()
        self._clock = _LoopClock(self._loop)
        self._began = self._clock.monotonic()
        self._open = contextlib.AsyncExitStack()
        self._connection: Connection | None = None

    def read(
        self, planned: PlannedRange, position: Position, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range behind a position, as batches of ``RECORD_SCHEMA``.

        Args:
            planned: The range.
            position: Where to begin.
            rows: How many rows of the range lie before that.
        """
        loop = self._loop
        if self._connection is None:
            self._connection = loop.run_until_complete(
                self._open.enter_async_context(Connection(self._aws))
            )
        batches = read_range(
            self._connection,
            planned.stream_arn,
            planned.shard_id,
            position,
            planned.end,
            planned.label,
            self._clock,
            fail_on_data_loss=planned.fail_on_data_loss,
            decoding=planned.decoding,
            expected=None if planned.records is None else planned.records - rows,
            known_since=self._began,
        )
        try:
            while True:
                try:
                    yield loop.run_until_complete(batches.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            _finish(loop, batches.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        _finish(self._loop, self._open.aclose())
        self._loop.close()


def _finish(loop: asyncio.AbstractEventLoop, closing: Coroutine[Any, Any, None]) -> None:
    """Run what closes something on a loop that stands still, also from within another loop.

    Rows that nobody takes any more are closed where the garbage collector finds them, and that may
    be where another task's loop runs in this thread. A thread cannot run two loops at a time.
    """
    if asyncio._get_running_loop() is None:
        loop.run_until_complete(closing)
        return
    thread = threading.Thread(target=loop.run_until_complete, args=(closing,), daemon=True)
    thread.start()
    thread.join(_FINISH_WITHIN_S)
