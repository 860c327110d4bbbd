"""GetRecords: reading a closed range of a shard exactly, and asking whether a shard is drained.

The answers are decoded by the same code as the events of a subscription, so both ways of reading a
range give the same records.
"""

from __future__ import annotations

import asyncio
import logging
import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.aws.starting_position import shard_iterator_position
from kinesis_ds.errors import (
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
)
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
from kinesis_ds.wire.decode import (
    decode_records,
    label_protocol_errors,
    millis_behind,
    sequence_numbers,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# Failing this long without one good answer ends the read; Spark may then retry the task.
_GIVE_UP_AFTER_S = 180.0
_BACKOFF_CAP_S = 10.0
# Answers in a row that are empty, at the tip, and yet promise more, before an end is doubted.
_EMPTY_ANSWERS_AT_TIP = 10
# And before a time is taken to be behind all records: nothing has been received that proves it.
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
) -> AsyncIterator[pa.RecordBatch]:
    """The records in ``(start, end]``, in order, as batches of the schema of ``decoding``.

    Ends when a record behind ``end`` shows up, at the end of the shard, or at the tip: a sequence
    number that is an end was received once, and a time that is one has passed, so everything up to
    it is there. Never ends because time has passed.

    With ``fail_on_data_loss=False`` a start that is no longer in the stream is a warning, and what
    is left of the range comes.

    Raises:
        DataLossError: The start is no longer in the stream.
        KinesisConnectorError: Refused, or no good answer for three minutes.
    """
    pages = _Pages(connection, stream_arn, shard_id, start, label, clock)
    pages.fail_on_data_loss = fail_on_data_loss
    at_tip = 0
    told = False
    while True:
        answer = await pages.next()
        with label_protocol_errors(label):
            records = decode_records(answer.records, pages.position, decoding)
        if records is not None:
            if records.misplaced and not told:
                logger.warning(MISPLACED_WARNING, label)
                told = True
            batch = _up_to(records.batch, records.last, end)
            if batch.num_rows:
                yield batch
            if batch.num_rows < records.batch.num_rows or _reaches(records.last, end):
                return
            pages.position = records.end
        if pages.exhausted:
            return
        if answer.records or answer.behind_ms:
            at_tip = 0
            continue
        at_tip += 1
        if isinstance(end, ShardEnd):
            if at_tip >= _EMPTY_ANSWERS_AT_TIP:
                raise ProtocolError(
                    f"{label} was read to its end once, and now Kinesis says that more may come.",
                    "Was the stream deleted and created again?",
                )
        elif at_tip >= (_EMPTY_ANSWERS_AT_A_TIME if isinstance(end, AtTimestamp) else 1):
            return


async def shard_is_drained(
    connection: Connection,
    stream_arn: str,
    shard_id: str,
    position: Position,
    label: str,
    clock: Clock,
) -> bool:
    """Whether nothing lies behind ``position`` and nothing ever will.

    The evidence is Kinesis' own: no record, and no next iterator.

    Raises:
        KinesisConnectorError: Refused, or no good answer for three minutes: that is no evidence.
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


@dataclass(frozen=True)
class Page:
    """An answer of GetRecords.

    Attributes:
        records: As JSON carries them.
        following: The next iterator, None at the end of the shard.
        behind_ms: How far behind the tip.
        has_children: Whether it names child shards, as the last page of a shard does.
    """

    records: list[Any]
    following: str | None
    behind_ms: int
    has_children: bool = False


def parse_page(raw: dict[str, Any], label: str) -> Page:
    """Read an answer; what is missing must not pass for the end of a shard, or for its tip.

    Raises:
        ProtocolError: It is none of Kinesis.
    """
    records, following = raw.get("Records"), raw.get("NextShardIterator")
    if not isinstance(records, list):
        raise ProtocolError(f"GetRecords for {label} answered without records.")
    if following is not None and not isinstance(following, str):
        raise ProtocolError(f"GetRecords for {label} answered an iterator that is no text.")
    try:
        return Page(records, following or None, millis_behind(raw), _names_children(raw))
    except TypeError as exc:
        raise ProtocolError(f"GetRecords for {label} answered {exc}.") from exc


class _Pages:
    """GetRecords answers one after the other, at the shard's pace, through passing failures."""

    def __init__(
        self,
        connection: Connection,
        stream_arn: str,
        shard_id: str,
        position: Position,
        label: str,
        clock: Clock,
    ) -> None:
        self.position = position
        self.exhausted = False
        self.fail_on_data_loss = True
        self._lost: Position | None = None
        self._connection = connection
        self._stream_arn = stream_arn
        self._shard_id = shard_id
        self._label = label
        self._clock = clock
        self._iterator: str | None = None
        self._not_before = clock.monotonic()

    async def next(self) -> Page:
        give_up = self._clock.monotonic() + _GIVE_UP_AFTER_S
        failures = 0
        while True:
            try:
                return await self._once()
            except KinesisConnectorError as exc:
                if exc.code == "ExpiredIteratorException":
                    self._iterator = None  # a fresh one goes on behind the last record read
                elif not exc.retryable:
                    raise
                if self._clock.monotonic() > give_up:
                    raise
                failures += 1
                self._not_before = self._clock.monotonic() + random.uniform(
                    GET_RECORDS_MIN_INTERVAL_S, min(_BACKOFF_CAP_S, 0.25 * 2 ** min(failures, 10))
                )

    async def _once(self) -> Page:
        await asyncio.sleep(max(0.0, self._not_before - self._clock.monotonic()))
        if self._iterator is None:
            try:
                self._iterator = await shard_iterator(
                    self._connection,
                    self._stream_arn,
                    self._shard_id,
                    TRIM_HORIZON if self.position == self._lost else self.position,
                    self._label,
                )
            except InvalidRequestError as exc:
                if self.position == self._lost or not refuses_position(exc, self.position):
                    raise
                self._give_up_position(exc)
                return await self._once()
        raw = await self._connection.call(
            "GetRecords",
            get_records_request(self._stream_arn, self._iterator, GET_RECORDS_MAX_RECORDS),
            self._label,
        )
        self._not_before = self._clock.monotonic() + GET_RECORDS_MIN_INTERVAL_S
        answer = parse_page(raw, self._label)
        self._iterator = answer.following
        self.exhausted = answer.following is None
        return answer

    def _give_up_position(self, refusal: InvalidRequestError) -> None:
        """Go on at the oldest record. What was read already is dropped there, as always."""
        loss = position_refused(
            self._label, self.position, refusal.message, "reading what is left of the range"
        )
        loss.error.__cause__ = refusal
        logger.warning("%s", loss.accept(fail_on_data_loss=self.fail_on_data_loss))
        self._lost = self.position


def _names_children(raw: dict[str, Any]) -> bool:
    children = raw.get("ChildShards")
    return isinstance(children, list) and bool(children)


def get_records_request(stream_arn: str, iterator: str, limit: int) -> dict[str, Any]:
    """The members of GetRecords; the ARN is for the policy of a stream of another account."""
    return {"StreamARN": stream_arn, "ShardIterator": iterator, "Limit": limit}


async def shard_iterator(
    connection: Connection, stream_arn: str, shard_id: str, position: Position, label: str
) -> str:
    """A fresh iterator that starts at ``position``; it expires after five minutes.

    Raises:
        KinesisConnectorError: Refused, or the call failed.
    """
    answer = await connection.call(
        "GetShardIterator",
        {"StreamARN": stream_arn, "ShardId": shard_id, **shard_iterator_position(position)},
        label,
    )
    iterator = answer.get("ShardIterator")
    if not isinstance(iterator, str):
        raise ProtocolError(f"GetShardIterator for {label} answered without an iterator.")
    return iterator


def _up_to(batch: pa.RecordBatch, last: int, end: Position) -> pa.RecordBatch:
    if isinstance(end, AtTimestamp):
        late = pc.index(pc.greater_equal(batch.column(3).cast(pa.int64()), end.ms * 1000), True)
        return batch if late.as_py() < 0 else batch.slice(0, late.as_py())
    if isinstance(end, (At, After)) and last > end.number:
        return batch.slice(0, bisect_right(sequence_numbers(batch), end.number))
    return batch


def _reaches(last: int, end: Position) -> bool:
    return isinstance(end, (At, After)) and last >= end.number
