"""Decode events and records of Kinesis from JSON to Arrow: both ways of reading use this. Pure."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kinesis_ds.codecs import loads
from kinesis_ds.errors import ProtocolError, shown
from kinesis_ds.plan.decoding import PLAIN, Decoding
from kinesis_ds.plan.position import After, At, AtTimestamp, Position, is_number
from kinesis_ds.wire.columns import columns_of
from kinesis_ds.wire.deaggregate import deaggregate, maybe_aggregated
from kinesis_ds.wire.event_scan import np, scan_event
from kinesis_ds.wire.schema import METADATA_SCHEMA, RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_ds.wire.columns import ReceivedColumns
    from kinesis_ds.wire.deaggregate import UserRecords

# An Arrow timestamp in microseconds holds less than this.
_MAX_MS = 2**63 / 1000
_NOT_ENCRYPTED = "NONE"
_ENCRYPTIONS = (_NOT_ENCRYPTED, None, "KMS")


@dataclass(frozen=True)
class Records:
    """Decoded records of one shard, in order.

    Attributes:
        batch: The rows, in ``RECORD_SCHEMA`` or ``METADATA_SCHEMA``. It has no row if
            all records are aggregates whose user records belong to other shards; the position moves
            on even then.
        first, last: The sequence numbers of the first and the last Kinesis record.
        end: The position after the last record, with its arrival time.
        misplaced: The number of user records that were left out because they belong to other
            shards.
    """

    batch: pa.RecordBatch
    first: int
    last: int
    end: After
    misplaced: int = 0


@dataclass(frozen=True)
class Event:
    """One SubscribeToShardEvent.

    Attributes:
        records: The records after the position that the event was decoded for; None without any.
        received: The number of Kinesis records in the event, including those that were dropped.
        continuation: The sequence number to continue from; None at the end of the shard.
        millis_behind: How far the event is behind the tip of the shard, in milliseconds.
        has_children: Whether the event names child shards, which ends the shard.
    """

    records: Records | None
    received: int
    continuation: str | None
    millis_behind: int
    has_children: bool


def decode_event(
    payload: bytes | memoryview, position: Position, decoding: Decoding = PLAIN
) -> Event:
    """Decode an event and drop the records at its front that are at or before ``position``.

    Raises:
        ProtocolError: The event is not what Kinesis documents. Nothing is skipped silently.
    """
    try:
        columns: ReceivedColumns | None
        found = scan_event(payload)
        if found is not None:
            raw, columns = found
        else:
            raw = loads(payload)
            items = raw["Records"]
            if not isinstance(items, list):
                raise TypeError("the records are no list")
            columns = columns_of(items) if items else None
        continuation = raw.get("ContinuationSequenceNumber")
        if continuation is not None and not is_number(continuation):
            raise ValueError("a continuation that is no sequence number")
        return Event(
            records=_records(columns, position, decoding) if columns is not None else None,
            received=len(columns.data) if columns is not None else 0,
            continuation=continuation,
            millis_behind=millis_behind(raw),
            has_children=_names_children(raw.get("ChildShards")),
        )
    except _MALFORMED as exc:
        raise ProtocolError(
            f"An event could not be decoded ({type(exc).__name__}: {_brief(exc)})."
        ) from exc


def decode_records(
    items: list[dict[str, Any]], position: Position, decoding: Decoding = PLAIN
) -> Records | None:
    """Decode records that were parsed from JSON; drop those at or before ``position``.

    A position ``AT`` or ``AFTER`` a sequence number drops records that a server sends again. A
    position ``AT_TIMESTAMP`` drops the records at the front that arrived earlier, since some
    servers round the time down to a whole second. Whole Kinesis records are dropped, never a part
    of the user records of an aggregate.

    Returns:
        None if no record is left.

    Raises:
        ProtocolError: A record is malformed, or the records are out of order.
    """
    if not items:
        return None
    try:
        return _records(columns_of(items), position, decoding)
    except _MALFORMED as exc:
        raise ProtocolError(
            f"A record could not be decoded ({type(exc).__name__}: {_brief(exc)})."
        ) from exc


@contextmanager
def label_protocol_errors(label: str) -> Iterator[None]:
    """Put the name of the shard before the message of any ``ProtocolError`` raised inside."""
    try:
        yield
    except ProtocolError as exc:
        raise ProtocolError(f"{label}: {exc.message}", exc.remedy) from exc


def millis_behind(raw: dict[str, Any]) -> int:
    """Return how far an event or an answer of GetRecords is behind the tip, in milliseconds.

    It is 0 where the service does not say.

    Raises:
        TypeError: The value is not a whole number.
    """
    value = raw.get("MillisBehindLatest")
    if value is not None and type(value) is not int:
        raise TypeError("a distance from the tip that is no whole number")
    return value or 0


def sequence_numbers(batch: pa.RecordBatch) -> list[int]:
    """Return the sequence numbers of the rows of a batch, as integers."""
    return [int(n) for n in batch.column(2).to_pylist()]


_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)


def _records(columns: ReceivedColumns, position: Position, decoding: Decoding) -> Records | None:
    """Return the records after a position; None if there are none."""
    drop = _count_up_to(columns, position)
    if drop == len(columns.numbers):
        return None
    if drop:
        columns = columns.without_first(drop)
    _check_encryptions(columns.encryptions)
    arrived = _arrival_times(columns.seconds)
    batch, misplaced = _batch(columns, arrived, decoding)
    numbers = columns.numbers
    end = After(numbers[-1].as_py(), arrived[-1].value // 1000)
    return Records(batch, int(numbers[0].as_py()), end.number, end, misplaced)


def _batch(
    columns: ReceivedColumns, arrived: pa.Array, decoding: Decoding
) -> tuple[pa.RecordBatch, int]:
    """Return the rows, and how many user records were left out as misplaced."""
    keys, data, sequence, times = columns.keys, columns.data, columns.numbers, arrived
    rows: UserRecords | None = None
    if decoding.deaggregate and maybe_aggregated(data):
        rows = deaggregate(columns, decoding)
        origin = pa.array(rows.origin, pa.int32())
        times, sequence = times.take(origin), sequence.take(origin)
        keys, data = pa.array(rows.keys, pa.string()), pa.array(rows.data, pa.binary())
    arrays = [keys, data, sequence, times]
    if decoding.metadata:
        kinds = [kind or _NOT_ENCRYPTED for kind in columns.encryptions]
        count = len(columns.numbers)
        encryption = pa.repeat(kinds[0], count) if len(kinds) == 1 else pa.array(kinds, pa.string())
        if rows is not None:
            arrays += [
                pa.array(rows.sub_numbers, pa.int64()),
                pa.array(rows.hash_keys, pa.string()),
                encryption.take(origin),
                pa.array(rows.ids, pa.string()),
            ]
        else:
            arrays += [
                pa.repeat(pa.scalar(0, pa.int64()), count),
                pa.nulls(count, pa.string()),
                encryption,
                pa.nulls(count, pa.string()),
            ]
    schema = METADATA_SCHEMA if decoding.metadata else RECORD_SCHEMA
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch, rows.misplaced if rows is not None else 0


def _check_encryptions(kinds: Sequence[Any]) -> None:
    """Refuse an encryption type we do not know: such data might still be encrypted."""
    for kind in kinds:
        if kind not in _ENCRYPTIONS:
            raise ProtocolError(
                f"A record has the encryption type {shown(kind)}, which is none of NONE and KMS.",
                "Is the endpoint a Kinesis endpoint? Is there a newer version of this connector?",
            )


def _names_children(children: object) -> bool:
    """Return whether an event names child shards. They end the shard, so the check is strict."""
    if children is None:
        return False
    if not isinstance(children, list) or not all(
        isinstance(child, dict) and isinstance(child.get("ShardId"), str) for child in children
    ):
        raise TypeError("child shards that are no list of shards")
    return bool(children)


def _arrival_times(seconds: pa.Array) -> pa.Array:
    """Turn seconds since the epoch into timestamps, rounded to milliseconds as in the service."""
    kind = pa.timestamp("us", tz="UTC")
    if np is None:
        return pa.array([round(s * 1000) * 1000 for s in seconds.to_pylist()], kind)
    ms = np.rint(seconds.to_numpy() * 1000)
    if not (abs(ms) < _MAX_MS).all():  # also false for NaN
        raise OverflowError("an arrival time that no timestamp holds")
    return pa.Array.from_buffers(kind, len(ms), [None, pa.py_buffer(ms.astype(np.int64) * 1000)])


def _count_up_to(columns: ReceivedColumns, position: Position) -> int:
    """Return how many records at the front are at or before a position."""
    if isinstance(position, (At, After)):
        if int(columns.numbers[0].as_py()) > position.number:
            return 0
        return bisect_right(columns.numbers.to_pylist(), position.number, key=int)
    if isinstance(position, AtTimestamp):
        for i, arrived in enumerate(columns.seconds.to_pylist()):
            if round(arrived * 1000) >= position.ms:
                return i
        return len(columns.seconds)
    return 0


def _brief(exc: BaseException) -> str:
    text = str(exc)
    return text if len(text) <= 120 else text[:120] + "..."
