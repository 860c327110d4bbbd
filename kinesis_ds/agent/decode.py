"""JSON records of Kinesis to Arrow. Shared by the subscription (events) and by GetRecords."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
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
            raise ValueError("a continuation that is no sequence number")
        items = raw["Records"]
        if not isinstance(items, list):
            raise TypeError("the records are no list")
        return Event(
            records=decode_records(items, position),
            received=len(items),
            continuation=continuation,
            millis_behind=millis_behind(raw),
            has_children=_names_children(raw.get("ChildShards")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as exc:
        raise ProtocolError(
            f"An event could not be decoded ({type(exc).__name__}: {_brief(exc)})."
        ) from exc


def decode_records(items: list[dict[str, Any]], position: Position) -> Records | None:
    """Records as JSON objects to Arrow, those at or before ``position`` dropped.

    ``AFTER`` drops what a repeated or careless server sends again. ``AT_TIMESTAMP`` drops the
    leading records that arrived earlier: some servers round the time down to a whole second.

    Raises:
        ProtocolError: A record is malformed or out of order.
    """
    if not items:
        return None
    try:
        numbers = [item["SequenceNumber"] for item in items]
        _check_numbers(numbers)
        drop = _drop(numbers, items, position)
        if drop == len(items):
            return None
        if drop:
            items, numbers = items[drop:], numbers[drop:]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([item.get("PartitionKey") for item in items], pa.string()),
                pa.array([b64decode(item["Data"], validate=True) for item in items], pa.binary()),
                pa.array(numbers, pa.string()),
                _arrival_times([item["ApproximateArrivalTimestamp"] for item in items]),
            ],
            schema=RECORD_SCHEMA,
        )
    except (ValueError, KeyError, TypeError, OverflowError, pa.ArrowException) as exc:
        raise ProtocolError(
            f"A record could not be decoded ({type(exc).__name__}: {_brief(exc)})."
        ) from exc
    return Records(batch, int(numbers[0]), int(numbers[-1]))


def millis_behind(raw: dict[str, Any]) -> int:
    """How far behind the tip an event or an answer says it is; 0 where it says nothing.

    Raises:
        TypeError: It says something that is no whole number.
    """
    value = raw.get("MillisBehindLatest")
    if value is not None and type(value) is not int:
        raise TypeError("a distance from the tip that is no whole number")
    return value or 0


def sequence_numbers(batch: pa.RecordBatch) -> list[int]:
    """The sequence numbers of a batch of ``RECORD_SCHEMA`` as integers."""
    return [int(n) for n in batch.column(2).to_pylist()]


def _names_children(children: object) -> bool:
    """Whether child shards are named. That ends a shard, so nothing else may pass for it."""
    if children is None:
        return False
    if not isinstance(children, list) or not all(
        isinstance(child, dict) and isinstance(child.get("ShardId"), str) for child in children
    ):
        raise TypeError("child shards that are no list of shards")
    return bool(children)


def _check_numbers(numbers: list[str]) -> None:
    """Sequence numbers are digits and rise. Numbers of one length, the usual case, compare as
    text.
    """
    digits = "".join(numbers)
    lengths = set(map(len, numbers))
    if not (digits.isascii() and digits.isdigit() and max(lengths) <= MAX_DIGITS and min(lengths)):
        raise ValueError("a sequence number that is no number")
    if numbers != sorted(numbers, key=None if len(lengths) == 1 else int):
        raise ProtocolError("Kinesis sent the records of a shard out of order.")


def _arrival_times(seconds: list[float]) -> pa.Array:
    """Seconds since the epoch, rounded to the milliseconds that the service keeps."""
    _check_times(seconds)
    ms = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1000.0)).cast(pa.int64())
    return pc.multiply_checked(ms, 1000).cast(pa.timestamp("us", tz="UTC"))


def _check_times(seconds: list[float]) -> None:
    if not set(map(type, seconds)) <= {int, float}:
        raise TypeError("an arrival time that is no number")


def _drop(numbers: list[str], items: list[dict[str, Any]], position: Position) -> int:
    if isinstance(position, After):
        if int(numbers[0]) > position.number:
            return 0
        return bisect_right(numbers, position.number, key=int)
    if isinstance(position, AtTimestamp):
        seconds = [item["ApproximateArrivalTimestamp"] for item in items]
        _check_times(seconds)  # a long text times 1000 would be a very long text
        for i, arrived in enumerate(seconds):
            if round(arrived * 1000) >= position.ms:
                return i
        return len(items)
    return 0


def _brief(exc: BaseException) -> str:
    text = str(exc)
    return text if len(text) <= 120 else text[:120] + "..."
