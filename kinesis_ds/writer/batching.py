"""Packing: rows to PutRecords requests that respect every limit of the service. Pure.

Each row is checked here, before anything is sent of it, because Kinesis refuses a whole request for
one bad record and would go on refusing it for as long as it is retried.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kinesis_ds.errors import WriteError
from kinesis_ds.limits import MAX_HASH_KEY, MIB, PARTITION_KEY_MAX_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Rows turned into Python objects at a time. Spark's Arrow batches may hold thousands of rows of up
# to 10 MiB, and all of them at once would be memory that no bound of ours counts.
_SLICE_ROWS = 500
_SLICE_BYTES = 4 * MIB

_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}")

Column = list[Any] | None
"""One column's values, or None where the DataFrame has no such column."""


class Columns(NamedTuple):
    """Some rows, by column."""

    data: list[bytes | str | None]
    partition_key: Column
    explicit_hash_key: Column


class Record(NamedTuple):
    """One row on its way.

    Attributes:
        entry: As PutRecords wants it.
        size: What Kinesis counts: data and partition key, in bytes.
        row: Its number within the task, from 0.
    """

    entry: dict[str, bytes | str]
    size: int
    row: int


@dataclass(frozen=True)
class Request:
    """Records that travel in one PutRecords call."""

    records: list[Record]
    size: int


@dataclass(frozen=True)
class PackingLimits:
    """What one request and one record may hold. Sizes count partition keys.

    Attributes:
        request_records: Records a request.
        request_bytes: Bytes a request. A single record larger than this travels alone.
        record_bytes: Bytes a record; the stream's own limit.
    """

    request_records: int
    request_bytes: int
    record_bytes: int


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
                part.column("partitionKey").to_pylist() if "partitionKey" in names else None,
                part.column("explicitHashKey").to_pylist() if "explicitHashKey" in names else None,
            )


def row_columns(rows: Iterable[Any]) -> Iterator[Columns]:
    """Spark rows (all of one schema) as columns, a bounded slice at a time."""
    rows = iter(rows)
    while part := list(islice(rows, _SLICE_ROWS)):
        names = part[0].__fields__
        yield Columns(
            # A binary column comes as bytearray, which the client's serializer does not hash.
            [_as_bytes(row["data"]) for row in part],
            [row["partitionKey"] for row in part] if "partitionKey" in names else None,
            [row["explicitHashKey"] for row in part] if "explicitHashKey" in names else None,
        )


def random_keys(seed: int | None = None) -> Callable[[], str]:
    """Partition keys for rows that have none.

    Kinesis places a record by the MD5 of its key, so keys drawn at random fall on every hash range
    in proportion to its width, whatever the number of shards.
    """
    bits = random.Random(seed).getrandbits
    return lambda: f"{bits(64):016x}"


class Packer:
    """Packs the rows of one task, in their order.

    Args:
        limits: What a request and a record may hold.
        partition: The task's partition, for messages.
        make_key: Called for each row that has no partition key.
        look_again: Called before a row is refused for its size; returns the stream's record limit
            as it is now, which may have been raised.
    """

    def __init__(
        self,
        limits: PackingLimits,
        partition: int,
        make_key: Callable[[], str] | None = None,
        look_again: Callable[[], int] | None = None,
    ) -> None:
        self._limits = limits
        self._record_bytes = limits.record_bytes
        self._look_again = look_again
        self._partition = partition
        self._make_key = make_key or random_keys()
        self._row = 0

    def pack(self, slices: Iterable[Columns]) -> Iterator[Request]:
        """Requests in row order, every row in exactly one of them.

        Requests fill up across slices; the last one is whatever is left.

        Raises:
            WriteError: At the first row that cannot be written, naming it. The rows before it were
                handed out already, all but those of the request that was being filled.
        """
        most_records, most_bytes = self._limits.request_records, self._limits.request_bytes
        records: list[Record] = []
        size = 0
        for columns in slices:
            for record in self._records(columns):
                if records and (len(records) >= most_records or size + record.size > most_bytes):
                    yield Request(records, size)
                    records, size = [], 0
                records.append(record)
                size += record.size
        if records:
            yield Request(records, size)

    def _records(self, columns: Columns) -> Iterator[Record]:
        keys = columns.partition_key
        hash_keys = columns.explicit_hash_key
        for i, data in enumerate(columns.data):
            if data is None:
                raise self._refused("data is null", "Leave such rows out with a filter on data.")
            if isinstance(data, str):
                data = data.encode()  # noqa: PLW2901  # the same value, as it travels
            key = keys[i] if keys is not None else None
            if key is None:
                key = self._make_key()
            key_bytes = len(key) if key.isascii() else len(key.encode())
            if not 1 <= len(key) <= PARTITION_KEY_MAX_CHARS:
                raise self._refused(
                    f"partitionKey has {len(key)} characters, and Kinesis takes 1 to "
                    f"{PARTITION_KEY_MAX_CHARS}",
                    "A null partitionKey is fine: such rows are spread evenly.",
                )
            size = len(data) + key_bytes
            if size > self._record_bytes and self._look_again is not None:
                self._record_bytes = self._look_again()
            if size > self._record_bytes:
                raise self._refused(
                    f"it has {size} bytes (data {len(data)}, partitionKey {key_bytes}), and the "
                    f"stream takes {self._record_bytes} a record",
                    "Split or compress it, or raise the stream's limit with UpdateMaxRecordSize "
                    "(up to 10 MiB).",
                )
            entry: dict[str, bytes | str] = {"Data": data, "PartitionKey": key}
            if hash_keys is not None and (hash_key := hash_keys[i]) is not None:
                if not _HASH_KEY.fullmatch(hash_key) or int(hash_key) > MAX_HASH_KEY:
                    raise self._refused(
                        f"explicitHashKey is {hash_key[:64]!r}",
                        "It must be a decimal number from 0 to 2^128-1, or null.",
                    )
                entry["ExplicitHashKey"] = hash_key
            yield Record(entry, size, self._row)
            self._row += 1

    def _refused(self, what: str, remedy: str) -> WriteError:
        return WriteError(
            f"Row {self._row} of partition {self._partition} cannot be written: {what}.", remedy
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
