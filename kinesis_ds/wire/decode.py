"""JSON records of Kinesis to Arrow. Shared by the subscription (events) and by GetRecords."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.codecs import b64decode, loads
from kinesis_ds.errors import ProtocolError, shown
from kinesis_ds.plan.decoding import PLAIN, Decoding
from kinesis_ds.plan.position import MAX_DIGITS, After, At, AtTimestamp, Position, is_number
from kinesis_ds.wire.columns import Columns, columns_of, np
from kinesis_ds.wire.deaggregate import MalformedAggregateError, split
from kinesis_ds.wire.kpl import MAGIC
from kinesis_ds.wire.schema import METADATA_SCHEMA, RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What an Arrow timestamp in microseconds holds.
_MAX_MS = 2**63 / 1000
_NOT_ENCRYPTED = "NONE"
_ENCRYPTIONS = (_NOT_ENCRYPTED, None, "KMS")


# Said once by whoever reads a shard: leaving out is right only if the producer sends again.
LEFT_OUT = (
    "%s: left out records of aggregates whose keys belong to other shards. The KPL sends such "
    "records again, to those shards. Where another producer made the aggregates they are lost; "
    "with deaggregate=false, aggregates come whole"
)


@dataclass(frozen=True)
class Records:
    """Decoded records of one shard, in order.

    Attributes:
        batch: Columns of ``RECORD_SCHEMA`` or ``METADATA_SCHEMA``. No row where all records were
            aggregates of user records that belong to other shards: the position moves all the same.
        first, last: Sequence numbers of the first and last record, as integers.
        end: The position behind the last record, with its arrival.
        misplaced: How many user records of aggregates were left out, as they belong to other
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


def decode_event(
    payload: bytes | memoryview, position: Position, decoding: Decoding = PLAIN
) -> Event:
    """Decode an event and drop from its front what lies at or before ``position``.

    Raises:
        ProtocolError: Not what Kinesis documents. Nothing is skipped silently.
    """
    try:
        columns: Columns | None
        found = columns_of(payload)
        if found is not None:
            raw, columns = found
        else:
            raw = loads(payload)
            items = raw["Records"]
            if not isinstance(items, list):
                raise TypeError("the records are no list")
            columns = _columns(items) if items else None
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
    """Records as JSON objects to Arrow, those at or before ``position`` dropped.

    ``AFTER`` drops what a repeated or careless server sends again. ``AT_TIMESTAMP`` drops the
    leading records that arrived earlier: some servers round the time down to a whole second. Both
    look at records as Kinesis has them: the user records of an aggregate come together or not.

    Raises:
        ProtocolError: A record is malformed or out of order.
    """
    if not items:
        return None
    try:
        return _records(_columns(items), position, decoding)
    except _MALFORMED as exc:
        raise ProtocolError(
            f"A record could not be decoded ({type(exc).__name__}: {_brief(exc)})."
        ) from exc


@contextmanager
def telling(label: str) -> Iterator[None]:
    """What cannot be decoded inside is told with the shard it came from."""
    try:
        yield
    except ProtocolError as exc:
        raise ProtocolError(f"{label}: {exc.message}", exc.remedy) from exc


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
    """The sequence numbers of a batch of records as integers."""
    return [int(n) for n in batch.column(2).to_pylist()]


_SEQUENCE_NUMBER = itemgetter("SequenceNumber")
_DATA = itemgetter("Data")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)


def _columns(items: list[dict[str, Any]]) -> Columns:
    """Records as JSON objects, checked."""
    numbers = list(map(_SEQUENCE_NUMBER, items))
    _check_numbers(numbers)
    encryptions = [item.get("EncryptionType") for item in items]
    seconds = [item["ApproximateArrivalTimestamp"] for item in items]
    if not set(map(type, seconds)) <= {int, float}:
        raise TypeError("an arrival time that is no number")
    # b64decode(text, altchars=None, validate=True), in C all the way: a third of all the work.
    blobs = list(map(b64decode, map(_DATA, items), repeat(None), repeat(True)))
    return Columns(
        numbers=pa.array(numbers, pa.string()),
        data=pa.array(blobs, pa.binary()),
        keys=pa.array([item.get("PartitionKey") for item in items], pa.string()),
        seconds=pa.array(seconds, pa.float64()),
        encryptions=encryptions,
    )


def _records(columns: Columns, position: Position, decoding: Decoding) -> Records | None:
    """What of the records lies behind a position."""
    drop = _drop(columns, position)
    if drop == len(columns.numbers):
        return None
    if drop:
        columns = columns.behind(drop)
    _check_encryptions(columns.encryptions)
    arrived = _arrival_times(columns.seconds)
    batch, misplaced = _batch(columns, arrived, decoding)
    numbers = columns.numbers
    end = After(numbers[-1].as_py(), arrived[-1].value // 1000)
    return Records(batch, int(numbers[0].as_py()), end.number, end, misplaced)


def _batch(columns: Columns, arrived: pa.Array, decoding: Decoding) -> tuple[pa.RecordBatch, int]:
    """The rows of records, and how many user records were misplaced."""
    keys, data, sequence, times = columns.keys, columns.data, columns.numbers, arrived
    rows: _Rows | None = None
    if decoding.deaggregate and _any_marked(data):
        rows = _taken_apart(columns, decoding)
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


def _any_marked(data: pa.Array) -> bool:
    """Whether one of them may be an aggregate. Streams that have none should not pay for it."""
    return bool(pc.any(pc.starts_with(data, MAGIC)).as_py())


@dataclass
class _Rows:
    """Rows of records of which some were aggregates.

    ``origin`` is the record a row came of. ``ids`` is filled only where metadata are wanted.
    """

    keys: list[str | None]
    hash_keys: list[str | None]
    data: list[bytes]
    sub_numbers: list[int]
    origin: list[int]
    ids: list[str | None]
    misplaced: int = 0


def _taken_apart(columns: Columns, decoding: Decoding) -> _Rows:
    rows = _Rows([], [], [], [], [], [])
    keys = columns.keys.to_pylist()
    for i, blob in enumerate(columns.data.to_pylist()):
        try:
            aggregate = split(blob, decoding.hash_range, ids=decoding.metadata)
        except MalformedAggregateError as exc:
            raise ProtocolError(
                f"The aggregate with sequence number {columns.numbers[i]} is malformed: {exc}.",
                "Set deaggregate=false to read such records as they were put.",
            ) from exc
        if aggregate is None:
            rows.keys.append(keys[i])
            rows.hash_keys.append(None)
            rows.data.append(blob)
            rows.sub_numbers.append(0)
            rows.origin.append(i)
            rows.ids.append(None)
            continue
        rows.keys += aggregate.partition_keys
        rows.hash_keys += aggregate.explicit_hash_keys
        rows.data += aggregate.data
        rows.sub_numbers += aggregate.sub_numbers
        rows.origin += [i] * len(aggregate.data)
        rows.ids += aggregate.ids or ()
        rows.misplaced += aggregate.misplaced
    return rows


def _check_encryptions(kinds: Sequence[Any]) -> None:
    """Kinesis decrypts what it knows how to. Anything else might be given out still encrypted."""
    for kind in kinds:
        if kind not in _ENCRYPTIONS:
            raise ProtocolError(
                f"A record has the encryption type {shown(kind)}, which is none of NONE and KMS.",
                "Is the endpoint a Kinesis endpoint? Is there a newer version of this connector?",
            )


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
    digits = "".join(numbers).encode()
    lengths = set(map(len, numbers))
    if not (digits.isdigit() and max(lengths) <= MAX_DIGITS and min(lengths)):
        raise ValueError("a sequence number that is no number")
    if numbers != sorted(numbers, key=None if len(lengths) == 1 else int):
        raise ProtocolError("Kinesis sent the records of a shard out of order.")


def _arrival_times(seconds: pa.Array) -> pa.Array:
    """Seconds since the epoch, rounded to the milliseconds that the service keeps."""
    kind = pa.timestamp("us", tz="UTC")
    if np is None:
        return pa.array([round(s * 1000) * 1000 for s in seconds.to_pylist()], kind)
    ms = np.rint(seconds.to_numpy() * 1000)
    if not (abs(ms) < _MAX_MS).all():  # nor is it, for what is no number
        raise OverflowError("an arrival time that no timestamp holds")
    return pa.Array.from_buffers(kind, len(ms), [None, pa.py_buffer(ms.astype(np.int64) * 1000)])


def _drop(columns: Columns, position: Position) -> int:
    """How many from the front lie at or before a position."""
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
