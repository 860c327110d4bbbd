"""The rows of a task, checked and made records, a bounded piece at a time. Pure.

Each row is checked here, before anything is sent of it, because Kinesis refuses a whole request for
one bad record and would go on refusing it for as long as it is retried.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from kinesis_ds.errors import WriteError, shown
from kinesis_ds.limits import MAX_HASH_KEY, MIB, PARTITION_KEY_MAX_CHARS
from kinesis_ds.options import stream_named
from kinesis_ds.writer.records import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kinesis_ds.options import StreamId
    from kinesis_ds.writer.records import Record

# Rows turned into Python objects at a time. Spark's Arrow batches may hold thousands of rows of up
# to 10 MiB, and all of them at once would be memory that no bound of ours counts.
_SLICE_ROWS = 500
_SLICE_BYTES = 4 * MIB

_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}")
_OPTIONAL = ("partitionKey", "explicitHashKey", "stream")

Column = list[Any] | None
"""One column's values, or None where the DataFrame has no such column."""


class Columns(NamedTuple):
    """Some rows, by column."""

    data: list[bytes | str | None]
    partition_key: Column
    explicit_hash_key: Column
    stream: Column = None


@dataclass(frozen=True)
class Piece:
    """Rows for one stream, in their order, that are admitted together; ``size`` in bytes."""

    stream: StreamId
    records: list[Record]
    size: int


class RecordLimits(Protocol):
    """How large a record each stream takes, partition key included."""

    def record_bytes(self, stream: StreamId) -> int:
        """As it was when the stream was looked at last."""
        ...

    def look_again(self, stream: StreamId) -> int:
        """As it is now: it may have been raised."""
        ...


def arrow_columns(batches: Iterable[pa.RecordBatch]) -> Iterator[Columns]:
    """Arrow batches as columns of Python values, a bounded slice at a time."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES // row_bytes))
        names = batch.schema.names
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            yield Columns(
                _bytes_column(part.column("data")).to_pylist(),
                *(part.column(n).to_pylist() if n in names else None for n in _OPTIONAL),
            )


def row_columns(rows: Iterable[Any]) -> Iterator[Columns]:
    """Spark rows (all of one schema) as columns, a bounded slice at a time."""
    rows = iter(rows)
    while part := list(islice(rows, _SLICE_ROWS)):
        names = part[0].__fields__
        yield Columns(
            # A binary column comes as bytearray, which the client's serializer does not hash.
            [_as_bytes(row["data"]) for row in part],
            *([row[n] for row in part] if n in names else None for n in _OPTIONAL),
        )


def random_keys(seed: int | None = None) -> Callable[[], str]:
    """Partition keys for rows that have none.

    Kinesis places a record by the MD5 of its key, so keys drawn at random fall on every hash range
    in proportion to its width, whatever the number of shards.
    """
    bits = random.Random(seed).getrandbits
    return lambda: f"{bits(64):016x}"


class Rows:
    """Checks the rows of one task, in their order.

    Args:
        limits: How large a record may be.
        partition: The task's partition, for messages.
        stream: Where rows go that name no stream; None when each has to.
        piece_records, piece_bytes: What a piece holds at most; a larger row is a piece of its own.
        skip_oversized: Leave out rows that are too large.
        shared_keys: One key for all rows of a slice that have none, instead of one for each: what
            is put together to one record needs no more.
        make_key: Makes such a key.

    Attributes:
        skipped: Rows that were left out.
    """

    def __init__(
        self,
        limits: RecordLimits,
        partition: int,
        stream: StreamId | None,
        *,
        piece_records: int,
        piece_bytes: int,
        skip_oversized: bool = False,
        shared_keys: bool = False,
        make_key: Callable[[], str] | None = None,
    ) -> None:
        self._limits = limits
        self._partition = partition
        self._stream = stream
        self._piece_records = piece_records
        self._piece_bytes = piece_bytes
        self._skip_oversized = skip_oversized
        self._shared_keys = shared_keys
        self._make_key = make_key or random_keys()
        self._named: dict[str, StreamId] = {}
        self._row = 0
        self.skipped = 0

    def pieces(self, slices: Iterable[Columns]) -> Iterator[Piece]:
        """All rows, those of a stream in their order.

        Raises:
            WriteError: At the first row that cannot be written, naming it.
        """
        for columns in slices:
            if columns.stream is None:
                stream = self._default()
                yield from self._cut(stream, self._records(columns, stream, None))
                continue
            for stream, places in self._by_stream(columns.stream).items():
                yield from self._cut(stream, self._records(columns, stream, places))
            self._row += len(columns.data)

    def _by_stream(self, names: list[Any]) -> dict[StreamId, list[int]]:
        found: dict[StreamId, list[int]] = {}
        for i, name in enumerate(names):
            found.setdefault(self._default(i) if name is None else self._of(name, i), []).append(i)
        return found

    def _default(self, at: int = 0) -> StreamId:
        if self._stream is None:
            raise self._refused(
                "its stream is null, and the query names none",
                "Give streamName for such rows, or leave them out with a filter on stream.",
                at,
            )
        return self._stream

    def _of(self, name: str, at: int) -> StreamId:
        if name not in self._named:
            try:
                self._named[name] = stream_named(name)
            except ValueError as exc:
                raise self._refused(
                    f"its stream is {shown(name)}, expected {exc}",
                    "A stream is named by its name or by its ARN.",
                    at,
                ) from None
        return self._named[name]

    def _cut(self, stream: StreamId, records: Iterator[Record]) -> Iterator[Piece]:
        piece: list[Record] = []
        size = 0
        for record in records:
            if piece and (
                len(piece) >= self._piece_records or size + record.size > self._piece_bytes
            ):
                yield Piece(stream, piece, size)
                piece, size = [], 0
            piece.append(record)
            size += record.size
        if piece:
            yield Piece(stream, piece, size)

    def _records(
        self, columns: Columns, stream: StreamId, places: list[int] | None
    ) -> Iterator[Record]:
        """The rows of a slice, or those in some places of it."""
        keys, hash_keys, values = columns.partition_key, columns.explicit_hash_key, columns.data
        most = self._limits.record_bytes(stream)
        row, shared = self._row, None
        for i in range(len(values)) if places is None else places:
            data = values[i]
            if data is None:
                raise self._refused("data is null", "Leave out such rows: data IS NOT NULL.", i)
            if isinstance(data, str):
                data = data.encode()
            key = keys[i] if keys is not None else None
            if key is None:
                if shared is None or not self._shared_keys:
                    shared = self._make_key()
                key = shared
            key_bytes = len(key) if key.isascii() else len(key.encode())
            if not 1 <= len(key) <= PARTITION_KEY_MAX_CHARS:
                raise self._refused(
                    f"partitionKey has {len(key)} characters, and Kinesis takes 1 to "
                    f"{PARTITION_KEY_MAX_CHARS}",
                    "A null partitionKey is fine: such rows are spread evenly.",
                    i,
                )
            size = len(data) + key_bytes
            if size > most:
                most = self._limits.look_again(stream)
            if size > most:
                if self._skip_oversized:
                    self.skipped += 1
                    continue
                raise self._refused(
                    f"it has {size} bytes (data {len(data)}, partitionKey {key_bytes}), and stream "
                    f"{stream.label} takes {most} a record",
                    "Split or compress it, raise the stream's limit with UpdateMaxRecordSize (up "
                    "to 10 MiB), or set onOversizedRecord=skip.",
                    i,
                )
            hash_key = hash_keys[i] if hash_keys is not None else None
            if hash_key is not None and (
                not _HASH_KEY.fullmatch(hash_key) or int(hash_key) > MAX_HASH_KEY
            ):
                raise self._refused(
                    f"explicitHashKey is {shown(hash_key)}",
                    "It must be a decimal number from 0 to 2^128-1, or null.",
                    i,
                )
            yield plain(data, key, hash_key, size, row + i)
        if places is None:
            self._row += len(values)

    def _refused(self, what: str, remedy: str, at: int) -> WriteError:
        return WriteError(
            f"Row {self._row + at} of partition {self._partition} cannot be written: {what}.",
            remedy,
        )


def _bytes_column(column: pa.Array) -> pa.Array:
    # Text is UTF-8 in Arrow already: the cast copies nothing and saves decoding to str and back.
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def _as_bytes(value: Any) -> bytes | str | None:
    return bytes(value) if isinstance(value, bytearray) else value
