"""The rows of a task, checked and cut into pieces of bounded size. Pure.

Each row is checked here, before anything is sent of it, because Kinesis refuses a whole request for
one bad record and would go on refusing it for as long as it is retried. Rows are checked a column
at a time; one by one, to name the one at fault, only where something is wrong with some of them.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

import pyarrow as pa

from kinesis_ds.errors import InternalError, WriteError, shown
from kinesis_ds.limits import MAX_HASH_KEY, MIB, PARTITION_KEY_MAX_CHARS
from kinesis_ds.options.parse import stream_named
from kinesis_ds.writer.records import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kinesis_ds.plan.stream import StreamId

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

    data: list[bytes | None]
    partition_key: Column
    explicit_hash_key: Column
    stream: Column = None

    def at(self, places: list[int]) -> Columns:
        """Those in some places."""
        optional = (column and [column[i] for i in places] for column in self[1:])
        return Columns([self.data[i] for i in places], *optional)


@dataclass(frozen=True)
class Piece:
    """Rows for one stream, in their order, that are admitted together."""

    stream: StreamId
    block: Block


class RecordLimits(Protocol):
    """How large a record each stream takes, partition key included."""

    def record_bytes(self, stream: StreamId) -> int:
        """As it was when the stream was looked at last."""
        ...

    def current_record_bytes(self, stream: StreamId) -> int:
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
                _values(_bytes_column(part.column("data"))),
                *(_values(part.column(n)) if n in names else None for n in _OPTIONAL),
            )


def row_columns(rows: Iterable[Any]) -> Iterator[Columns]:
    """Spark rows (all of one schema) as columns, a bounded slice at a time."""
    rows = iter(rows)
    while part := list(islice(rows, _SLICE_ROWS)):
        names = part[0].__fields__
        yield Columns(
            [_as_bytes(row["data"]) for row in part],
            *([row[n] for row in part] if n in names else None for n in _OPTIONAL),
        )


def random_keys(seed: int | None = None) -> Callable[[int], list[str]]:
    """Makes so many partition keys, for rows that have none.

    Kinesis places a record by the MD5 of its key, so keys drawn at random fall on every hash range
    in proportion to its width, whatever the number of shards.
    """
    draw = random.Random(seed).getrandbits

    def make(count: int) -> list[str]:
        digits = f"{draw(64 * count):0{16 * count}x}"
        return [digits[at : at + 16] for at in range(0, len(digits), 16)]

    return make


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
        make_keys: Makes such keys.

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
        make_keys: Callable[[int], list[str]] | None = None,
    ) -> None:
        self._limits = limits
        self._partition = partition
        self._stream = stream
        self._piece_records = piece_records
        self._piece_bytes = piece_bytes
        self._skip_oversized = skip_oversized
        self._shared_keys = shared_keys
        self._make_keys = make_keys or random_keys()
        self._named: dict[str, StreamId] = {}
        self._row = 0
        self.skipped = 0

    def pieces(self, slices: Iterable[Columns]) -> Iterator[Piece]:
        """All rows, those of a stream in their order.

        Raises:
            WriteError: At the first slice with a row that cannot be written, naming it.
        """
        for columns in slices:
            end = self._row + len(columns.data)
            if columns.stream is None:
                stream = self._default()
                yield from self._cut(stream, self._block(columns, stream, range(self._row, end)))
            else:
                for stream, places in self._by_stream(columns.stream).items():
                    numbers = [self._row + at for at in places]
                    yield from self._cut(stream, self._block(columns.at(places), stream, numbers))
            self._row = end

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

    def _cut(self, stream: StreamId, block: Block) -> Iterator[Piece]:
        while len(block):
            fitting = max(1, block.fitting(self._piece_records, self._piece_bytes, math.inf))
            piece, block = block.cut(fitting) if fitting < len(block) else (block, _NO_ROWS)
            yield Piece(stream, piece)

    def _block(self, columns: Columns, stream: StreamId, numbers: Sequence[int]) -> Block:
        """Rows with these numbers, for one stream."""
        data, hash_keys = cast("list[bytes]", columns.data), columns.explicit_hash_key
        keys, key_bytes = self._keys(columns)
        try:
            sizes = list(map(add, map(len, data), key_bytes))
        except TypeError:  # there is a null in them
            sizes = []
        if not (len(sizes) == len(data) and _good_keys(keys) and _good_hash_keys(hash_keys)):
            self._find_fault(columns.data, keys, hash_keys, numbers)
        block = Block(data, keys, hash_keys, sizes, numbers)
        if max(sizes, default=0) > self._limits.record_bytes(stream):
            return self._without_oversized(block, stream)
        return block

    def _keys(self, columns: Columns) -> tuple[list[str], Iterable[int]]:
        """Their partition keys, with those made up that are missing; and their sizes in bytes."""
        keys = columns.partition_key or [None] * len(columns.data)
        try:
            together = "".join(keys)
        except TypeError:  # there is a null in them
            missing = keys.count(None)
            made = self._make_keys(1) * missing if self._shared_keys else self._make_keys(missing)
            next_one = iter(made)
            keys = [next(next_one) if key is None else key for key in keys]
            together = "".join(keys)
        return keys, map(len, keys) if together.isascii() else [len(key.encode()) for key in keys]

    def _find_fault(
        self,
        data: list[bytes | None],
        keys: list[str],
        hash_keys: Column,
        numbers: Sequence[int],
    ) -> NoReturn:
        """Refuse the first row that could not be written, whatever the sizes."""
        for number, value, key, hash_key in zip(
            numbers, data, keys, hash_keys or [None] * len(data), strict=True
        ):
            at = number - self._row
            if value is None:
                raise self._refused("data is null", "Leave out such rows: data IS NOT NULL.", at)
            if not 1 <= len(key) <= PARTITION_KEY_MAX_CHARS:
                raise self._refused(
                    f"partitionKey has {len(key)} characters, and Kinesis takes 1 to "
                    f"{PARTITION_KEY_MAX_CHARS}",
                    "A null partitionKey is fine: such rows are spread evenly.",
                    at,
                )
            if not _good_hash_keys([hash_key]):
                raise self._refused(
                    f"explicitHashKey is {shown(hash_key)}",
                    "It must be a decimal number from 0 to 2^128-1, or null.",
                    at,
                )
        raise InternalError("a row was found wrong, and right again", "Please report this.")

    def _without_oversized(self, block: Block, stream: StreamId) -> Block:
        """The rows that the stream takes; the others are left out, or refused."""
        most = self._limits.record_bytes(stream)
        kept = []
        for at, size in enumerate(block.sizes):
            if size > most:
                most = self._limits.current_record_bytes(stream)
            if size <= most:
                kept.append(at)
            elif self._skip_oversized:
                self.skipped += 1
            else:
                data = len(block.data[at])
                raise self._refused(
                    f"it has {size} bytes (data {data}, partitionKey {size - data}), and stream "
                    f"{stream.label} takes {most} a record",
                    "Split or compress it, raise the stream's limit with UpdateMaxRecordSize (up "
                    "to 10 MiB), or set onOversizedRecord=skip.",
                    block.numbers[at] - self._row,
                )
        return block.at(kept)

    def _refused(self, what: str, remedy: str, at: int) -> WriteError:
        return WriteError(
            f"Row {self._row + at} of partition {self._partition} cannot be written: {what}.",
            remedy,
        )


_NO_ROWS = Block([], [], None, [], [])


def _good_keys(keys: list[str]) -> bool:
    lengths = set(map(len, keys))
    return not keys or 1 <= min(lengths) <= max(lengths) <= PARTITION_KEY_MAX_CHARS


def _good_hash_keys(hash_keys: Column) -> bool:
    return hash_keys is None or all(
        key is None or (_HASH_KEY.fullmatch(key) and int(key) <= MAX_HASH_KEY) for key in hash_keys
    )


def _bytes_column(column: pa.Array) -> pa.Array:
    # Text is UTF-8 in Arrow already: the cast copies nothing and saves decoding to str and back.
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def _values(column: pa.Array) -> list[Any]:
    """What ``to_pylist`` gives, which took ten times as long before PyArrow 20 or so."""
    return cast("list[Any]", column.to_numpy(zero_copy_only=False).tolist())


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytearray) else value
