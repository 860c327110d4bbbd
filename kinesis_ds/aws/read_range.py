"""Read a closed range of a shard exactly, or find out if a shard is drained, with GetRecords.

The answers are decoded by the same code as the events of a subscription, so both ways of reading a
range give the same records.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.aws.get_records import get_records_request, parse_page, shard_iterator
from kinesis_ds.errors import InvalidRequestError, KinesisConnectorError, ProtocolError
from kinesis_ds.limits import GET_RECORDS_MAX_RECORDS, GET_RECORDS_MIN_INTERVAL_S
from kinesis_ds.plan.decoding import PLAIN, Decoding
from kinesis_ds.plan.loss import position_refused
from kinesis_ds.plan.position import (
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    ShardEnd,
    refuses_position,
)
from kinesis_ds.wire.deaggregate import MISPLACED_WARNING
from kinesis_ds.wire.decode import decode_records, label_protocol_errors, sequence_numbers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.aws.get_records import Page
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# Calls that fail for so long end the read; Spark may then try the task again.
_GIVE_UP_AFTER_S = 180.0
_BACKOFF_CAP_S = 10.0
# GetRecords may show a record later than a subscription does. If an answer at the tip is empty and
# records are known to be missing, or the end of a shard, it is asked again until the range has been
# known for so long.
_PATIENCE_S = 30.0
# If it is not known whether anything is missing, as in a batch that is run again after a restart.
_SETTLED_AFTER_S = 3.0
# And not at all if the end was seen so long ago, by the clock of this host, which may be wrong.
_LONG_PAST_S = 60.0
# Between two such answers: what else reads the shard needs its five calls a second as well.
_TIP_PAUSE_S = 0.5
# Where a range ends with its shard: after so many empty answers in a row at the tip, none of which
# says that the shard has ended, the shard is not the one that was read to its end before.
_MAX_EMPTY_ANSWERS = 10
# Where a range ends at a time: so many empty answers in a row at the tip show that nothing more
# comes. One proves less, because no record has been received that lies behind the end.
_EMPTY_ANSWERS_AT_A_TIME = 2


async def read_range(
    connection: Connection,
    stream_arn: str,
    shard_id: str,
    start: Position,
    end: Position,
    label: str,
    clock: Clock,
    *,
    fail_on_data_loss: bool = True,
    decoding: Decoding = PLAIN,
    expected: int | None = None,
    known_since: float | None = None,
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the records in ``(start, end]``, in order, as batches of the schema of ``decoding``.

    Ends when a record behind ``end`` arrives, at the end of the shard, or at its tip: an end that
    is a sequence number was received before, and an end that is a time has passed, so everything up
    to the end is in the shard.

    GetRecords may show it later than a subscription did. So an empty answer at the tip is believed
    at once if all ``expected`` rows have come, and otherwise 30 s after ``known_since``. Where the
    number of rows is not known, it is believed 3 s after ``known_since``; at once if the end was
    seen more than a minute ago; and where the range ends at a time, the second one in a row is.

    Args:
        connection: Makes the calls.
        stream_arn: The stream.
        shard_id: The shard.
        start: The position before the first record.
        end: The last record, the time before which records arrived, or the end of the shard.
        label: The shard, for messages.
        clock: Measures pauses and the time without a good answer.
        fail_on_data_loss: If False, a start that is no longer in the stream is logged as a warning,
            and what is left of the range is read.
        decoding: What to make of the records.
        expected: The number of rows in the range, if it is known. Not many more records than that
            are asked for.
        known_since: When, by ``clock.monotonic()``, the range was known at the latest: everything
            in it had arrived. None: so long ago that GetRecords sees all of it.

    Raises:
        DataLossError: The start is no longer in the stream.
        KinesisConnectorError: A call was refused, or none succeeded for three minutes.
    """
    pages = _Pages(connection, stream_arn, shard_id, start, label, clock, fail_on_data_loss)
    missing = expected
    fewest = 1
    tip = _Tip(end, known_since, label, clock)
    warned = False
    while True:
        if missing is not None:
            # The record behind the last one shows that there are no more.
            pages.limit = min(max(missing + 1, fewest), GET_RECORDS_MAX_RECORDS)
        answer = await pages.next()
        with label_protocol_errors(label):
            records = decode_records(answer.records, pages.position, decoding)
        rows = 0
        if records is not None:
            if records.misplaced and not warned:
                logger.warning(MISPLACED_WARNING, label)
                warned = True
            batch = _up_to(records.batch, records.last, end)
            rows = batch.num_rows
            if rows:
                yield batch
            if rows < records.batch.num_rows or _reaches(records.last, end):
                return
            pages.position = records.end
        if pages.exhausted:
            return
        if missing is not None:
            missing -= rows
            # Records may hold no row of the range; where many do not, few calls pass them.
            fewest = 2 * len(answer.records) if rows < len(answer.records) else 1
        if answer.records or answer.behind_ms:
            tip.left()
            continue
        some_missing = missing is not None and not pages.position_lost
        if (missing is not None and missing <= 0) or tip.believed(some_missing=some_missing):
            return
        pages.pause(tip.pause_s)


@dataclass
class _Tip:
    """Decides when empty answers at the tip of a shard show that no more of a range comes.

    Attributes:
        end: The end of the range.
        known_since: As :func:`read_range` has it.
        label: The shard, for messages.
        clock: Measures the time since then.
        pause_s: How long to wait for the next answer.
    """

    end: Position
    known_since: float | None
    label: str
    clock: Clock
    pause_s: float = 0.0
    _answers: int = 0

    def left(self) -> None:
        """Note an answer that was not empty, or not at the tip."""
        self._answers = 0

    def believed(self, *, some_missing: bool) -> bool:
        """Count an empty answer at the tip; return True if it is proof enough.

        Args:
            some_missing: True if rows of the range are known to be missing.

        Raises:
            ProtocolError: The range ends with its shard, which does not end.
        """
        self._answers += 1
        early = self.clock.monotonic() < self._believed_from(some_missing=some_missing)
        self.pause_s = _TIP_PAUSE_S if early else 0.0
        if early or self._answers < self._needed():
            return False
        if isinstance(self.end, ShardEnd):
            raise ProtocolError(
                f"{self.label} was read to its end once, and now Kinesis says that more may come.",
                "Was the stream deleted and created again?",
            )
        return True

    def _believed_from(self, *, some_missing: bool) -> float:
        if self.known_since is None:
            return -math.inf
        if some_missing or isinstance(self.end, ShardEnd):
            return self.known_since + _PATIENCE_S
        if isinstance(self.end, AtTimestamp):
            return -math.inf
        seen_ms = self.end.seen_ms if isinstance(self.end, After) else None
        if seen_ms is not None and self.clock.wall() - seen_ms / 1000 >= _LONG_PAST_S:
            return -math.inf
        return self.known_since + _SETTLED_AFTER_S

    def _needed(self) -> int:
        if isinstance(self.end, ShardEnd):
            return _MAX_EMPTY_ANSWERS
        return _EMPTY_ANSWERS_AT_A_TIME if isinstance(self.end, AtTimestamp) else 1


async def shard_is_drained(
    connection: Connection,
    stream_arn: str,
    shard_id: str,
    position: Position,
    label: str,
    clock: Clock,
) -> bool:
    """Return True if nothing lies behind ``position`` and nothing ever will.

    The evidence is Kinesis' own: no record, and no next iterator.

    Raises:
        KinesisConnectorError: A call was refused, or none succeeded for three minutes. Then it is
            not known.
    """
    pages = _Pages(connection, stream_arn, shard_id, position, label, clock)
    while True:
        answer = await pages.next()
        with label_protocol_errors(label):
            more = decode_records(answer.records, position) is not None
        if more:
            return False
        if pages.exhausted:
            return True
        if not answer.behind_ms and not answer.records:
            return False


@dataclass
class _Pages:
    """The answers of GetRecords for one shard, one after the other.

    Waits between calls as the limits of a shard demand, and repeats calls that fail for a while.

    Attributes:
        position: Where to go on with a new iterator; set by the caller as it reads.
        exhausted: True after the last page of the shard.
        fail_on_data_loss: As :func:`read_range` has it.
        limit: The most records to ask for at once.
    """

    connection: Connection
    stream_arn: str
    shard_id: str
    position: Position
    label: str
    clock: Clock
    fail_on_data_loss: bool = True
    exhausted: bool = False
    limit: int = GET_RECORDS_MAX_RECORDS
    _lost: Position | None = None
    _iterator: str | None = None
    _not_before: float = 0.0

    @property
    def position_lost(self) -> bool:
        """True if a position was no longer in the stream, and the oldest record took its place."""
        return self._lost is not None

    def pause(self, seconds: float) -> None:
        """Let so much time pass from now before the next call."""
        self._not_before = max(self._not_before, self.clock.monotonic() + seconds)

    async def next(self) -> Page:
        give_up = self.clock.monotonic() + _GIVE_UP_AFTER_S
        failures = 0
        while True:
            try:
                return await self._once()
            except KinesisConnectorError as exc:
                if exc.code == "ExpiredIteratorException":
                    self._iterator = None  # a new one goes on behind the last record read
                elif not exc.retryable:
                    raise
                if self.clock.monotonic() > give_up:
                    raise
                failures += 1
                self._not_before = self.clock.monotonic() + random.uniform(
                    GET_RECORDS_MIN_INTERVAL_S, min(_BACKOFF_CAP_S, 0.25 * 2 ** min(failures, 10))
                )

    async def _once(self) -> Page:
        await asyncio.sleep(max(0.0, self._not_before - self.clock.monotonic()))
        if self._iterator is None:
            try:
                self._iterator = await shard_iterator(
                    self.connection,
                    self.stream_arn,
                    self.shard_id,
                    TRIM_HORIZON if self.position == self._lost else self.position,
                    self.label,
                )
            except InvalidRequestError as exc:
                if self.position == self._lost or not refuses_position(exc, self.position):
                    raise
                self._give_up_position(exc)
                return await self._once()
        raw = await self.connection.call(
            "GetRecords",
            get_records_request(self.stream_arn, self._iterator, self.limit),
            self.label,
        )
        self._not_before = self.clock.monotonic() + GET_RECORDS_MIN_INTERVAL_S
        answer = parse_page(raw, self.label)
        self._iterator = answer.following
        self.exhausted = answer.following is None
        return answer

    def _give_up_position(self, refusal: InvalidRequestError) -> None:
        """Go on at the oldest record; what was read already is dropped when it is decoded."""
        loss = position_refused(
            self.label, self.position, refusal.message, "reading what is left of the range"
        )
        loss.error.__cause__ = refusal
        logger.warning("%s", loss.accept(fail_on_data_loss=self.fail_on_data_loss))
        self._lost = self.position


def _up_to(batch: pa.RecordBatch, last: int, end: Position) -> pa.RecordBatch:
    if isinstance(end, AtTimestamp):
        late = pc.index(pc.greater_equal(batch.column(3).cast(pa.int64()), end.ms * 1000), True)
        return batch if late.as_py() < 0 else batch.slice(0, late.as_py())
    if isinstance(end, (At, After)) and last > end.number:
        return batch.slice(0, bisect_right(sequence_numbers(batch), end.number))
    return batch


def _reaches(last: int, end: Position) -> bool:
    return isinstance(end, (At, After)) and last >= end.number
