"""The rows of a task as Spark hands them over, turned into columns a slice at a time. Pure.

A slice is bounded, because the Arrow batches of Spark are not: they may hold thousands of rows of
up to 10 MiB.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from kinesis_ds.limits import MIB
from kinesis_ds.wire.schema import sink_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What is turned into Python objects at a time: memory that no bound of the sink counts.
_SLICE_ROWS = 500
_SLICE_BYTES = 4 * MIB

_OPTIONAL = ("partitionKey", "explicitHashKey", "stream")

Column = list[Any] | None
"""The values of one column; None where the DataFrame has no such column."""


class RowSlice(NamedTuple):
    """Some consecutive rows of a task, by column.

    Attributes:
        data: The payloads. A null is refused later.
        partition_key: Texts, with None for rows that have no key.
        explicit_hash_key: Decimal numbers as texts, with None for rows that have none.
        stream: Names or ARNs, with None for rows that go where the query says.
    """

    data: list[bytes | None]
    partition_key: Column
    explicit_hash_key: Column
    stream: Column = None

    def at(self, places: list[int]) -> RowSlice:
        """Return the rows in these places."""
        optional = (column and [column[i] for i in places] for column in self[1:])
        return RowSlice([self.data[i] for i in places], *optional)


def arrow_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[RowSlice]:
    """Cut Arrow batches into slices of at most 500 rows and about 4 MiB."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES // row_bytes))
        at = sink_columns(batch.schema.names)
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            yield RowSlice(
                _values(_bytes_column(part.column(at["data"]))),
                *(_values(part.column(at[n])) if n in at else None for n in _OPTIONAL),
            )


def row_slices(rows: Iterable[Any]) -> Iterator[RowSlice]:
    """Cut Spark rows, all of one schema, into slices of at most 500."""
    rows = iter(rows)
    while part := list(islice(rows, _SLICE_ROWS)):
        at = sink_columns(part[0].__fields__)
        yield RowSlice(
            [_as_bytes(row[at["data"]]) for row in part],
            *([row[at[n]] for row in part] if n in at else None for n in _OPTIONAL),
        )


def _bytes_column(column: pa.Array) -> pa.Array:
    # Text is UTF-8 in Arrow already: the cast copies nothing and saves decoding to str and back.
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def _values(column: pa.Array) -> list[Any]:
    """Return what ``to_pylist`` does, which took ten times as long before PyArrow 20 or so."""
    return cast("list[Any]", column.to_numpy(zero_copy_only=False).tolist())


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytearray) else value
