"""JSON records of Kinesis to Arrow. Shared by the subscription (events) and by GetRecords."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pybase64 import b64decode

from kinesis_ds.errors import ProtocolError
from kinesis_ds.position import MAX_DIGITS, After, AtTimestamp, Position, is_number
from kinesis_ds.schema import RECORD_SCHEMA


@dataclass(frozen=True)
class Records:
    """Decoded records of one shard, in order.

    Attributes:
        batch: Columns of ``RECORD_SCHEMA``; at least one row.
        first, last: Sequence numbers of the first and last row, as integers.
    """

    batch: pa.RecordBatch
    first: int
    last: int


@dataclass(frozen=True)
class Event:
    """One SubscribeToShardEvent.

    Attributes:
        records: What is new behind the position it was decoded for, or None.
        received: How many records the event held, those dropped included.
        continuation: Where to go on, or None at the end of the shard.
        millis_behind: How far behind the tip, in milliseconds.
        has_children: Whether it named child shards.
    """

    records: Records | None
    received: int
    continuation: str | None
    millis_behind: int
    has_children: bool


def decode_event(payload: bytes | memoryview, position: Position) -> Event:
    """Decode an event and drop from its front what lies at or before ``position``.

    Raises:
        ProtocolError: Not what Kinesis documents. Nothing is skipped silently.
    """
    try:
        raw = orjson.loads(payload)
        continuation = raw.get("ContinuationSequenceNumber")
        if continuation is not None and not is_number(continuation):
            raise ValueError(f"continuation {continuation!r}")
        items = raw["Records"]
        if not isinstance(items, list):
            raise TypeError("the records are no list")
        return Event(
            records=decode_records(items, position),
            received=len(items),
            continuation=continuation,
            millis_behind=int(raw.get("MillisBehindLatest") or 0),
            has_children=bool(raw.get("ChildShards")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as exc:
        raise ProtocolError(f"An event could not be decoded ({type(exc).__name__}: {_brief(exc)}).") from exc


def decode_records(items: list[dict[str, Any]], position: Position) -> Records | None:
    """Records as JSON objects to Arrow, those at or before ``position`` dropped.

    ``AFTER`` drops what a repeated or careless server sends again. ``AT_TIMESTAMP`` drops the leading
    records that arrived earlier: some servers round the time down to a whole second.

    Raises:
        ProtocolError: A record is malformed or out of order.
    """
    if not items:
        return None
    try:
        numbers = [item["SequenceNumber"] for item in items]
        digits = "".join(numbers)
        if not (digits.isascii() and digits.isdigit() and max(map(len, numbers)) <= MAX_DIGITS):
            raise ValueError("a sequence number that is no number")
        order = [int(n) for n in numbers]
        if any(a > b for a, b in zip(order, order[1:], strict=False)):
            raise ProtocolError("Kinesis sent the records of a shard out of order.")
        stamps = [round(item["ApproximateArrivalTimestamp"] * 1000) for item in items]
        drop = _drop(order, stamps, position)
        if drop == len(items):
            return None
        if drop:
            items, numbers, order, stamps = items[drop:], numbers[drop:], order[drop:], stamps[drop:]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([item.get("PartitionKey") for item in items], pa.string()),
                pa.array([b64decode(item["Data"], validate=True) for item in items], pa.binary()),
                pa.array(numbers, pa.string()),
                pa.array([ms * 1000 for ms in stamps], pa.timestamp("us", tz="UTC")),
            ],
            schema=RECORD_SCHEMA,
        )
    except (ValueError, KeyError, TypeError, OverflowError, pa.ArrowException) as exc:
        raise ProtocolError(f"A record could not be decoded ({type(exc).__name__}: {_brief(exc)}).") from exc
    return Records(batch, order[0], order[-1])


def sequence_numbers(batch: pa.RecordBatch) -> list[int]:
    """The sequence numbers of a batch of ``RECORD_SCHEMA`` as integers."""
    return [int(n) for n in batch.column(2).to_pylist()]


def _drop(order: list[int], stamps: list[int], position: Position) -> int:
    if isinstance(position, After):
        return 0 if order[0] > position.number else bisect_right(order, position.number)
    if isinstance(position, AtTimestamp):
        return next((i for i, ms in enumerate(stamps) if ms >= position.ms), len(stamps))
    return 0


def _brief(exc: BaseException) -> str:
    text = str(exc)
    return text if len(text) <= 120 else text[:120] + "..."
