"""Checks the rows of a task, and cuts them into pieces of bounded size. Pure.

Each row is checked before it is sent, because Kinesis refuses a whole request for one bad record
and would refuse it again at each retry. Rows are checked a column at a time; only where something
is wrong are they checked one by one, to name the row at fault.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kinesis_ds.errors import InternalError, WriteError, shown
from kinesis_ds.limits import MAX_HASH_KEY, PARTITION_KEY_MAX_CHARS
from kinesis_ds.options.parse import stream_named
from kinesis_ds.writer.records import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_ds.plan.stream import StreamId
    from kinesis_ds.writer.service import SinkService
    from kinesis_ds.writer.slices import Column, RowSlice

_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}")


@dataclass(frozen=True)
class Piece:
    """Rows for one stream, in row order, that get room in the window together.

    Attributes:
        stream: Where they go.
        block: The rows.
    """

    stream: StreamId
    block: Block


class RowChecker:
    """Checks the rows of one task, in their order.

    Args:
        limits: Says how large a record of a stream may be.
        partition: The number of the task's partition, for messages.
        stream: Where rows go that name no stream; None if each row must name one.
        piece_records: The most rows of a piece.
        piece_bytes: The most bytes of a piece; a larger row is a piece of its own.
        skip_oversized: Whether rows that are too large are left out. Else they fail the task.
        shared_keys: Whether all rows of a slice that have no key get the same one. Rows that
            travel in one record need no more.

    Attributes:
        skipped: How many rows were left out.
    """

    def __init__(
        self,
        limits: SinkService,
        partition: int,
        stream: StreamId | None,
        *,
        piece_records: int,
        piece_bytes: int,
        skip_oversized: bool = False,
        shared_keys: bool = False,
    ) -> None:
        self._limits = limits
        self._partition = partition
        self._stream = stream
        self._piece_records = piece_records
        self._piece_bytes = piece_bytes
        self._skip_oversized = skip_oversized
        self._shared_keys = shared_keys
        self._draw = random.Random().getrandbits
        self._named: dict[str, StreamId] = {}
        self._row = 0
        self.skipped = 0

    def pieces(self, slices: Iterable[RowSlice]) -> Iterator[Piece]:
        """Return all rows in pieces, the rows of each stream in their order.

        Raises:
            WriteError: At the first slice with a row that cannot be written, naming it.
        """
        for rows in slices:
            end = self._row + len(rows.data)
            if rows.stream is None:
                stream = self._default()
                yield from self._cut(stream, self._block(rows, stream, range(self._row, end)))
            else:
                for stream, places in self._by_stream(rows.stream).items():
                    numbers = [self._row + at for at in places]
                    yield from self._cut(stream, self._block(rows.at(places), stream, numbers))
            self._row = end

    def _by_stream(self, names: list[Any]) -> dict[StreamId, list[int]]:
        found: dict[StreamId, list[int]] = {}
        for i, name in enumerate(names):
            stream = self._default(i) if name is None else self._named_stream(name, i)
            found.setdefault(stream, []).append(i)
        return found

    def _default(self, at: int = 0) -> StreamId:
        if self._stream is None:
            raise self._refused(
                "its stream is null, and the query names none",
                "Give streamName for such rows, or leave them out with a filter on stream.",
                at,
            )
        return self._stream

    def _named_stream(self, name: str, at: int) -> StreamId:
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

    def _block(self, rows: RowSlice, stream: StreamId, numbers: Sequence[int]) -> Block:
        """Check rows that go to one stream, and make a block of them."""
        data, hash_keys = cast("list[bytes]", rows.data), rows.explicit_hash_key
        keys, key_bytes = self._keys(rows)
        try:
            sizes = list(map(add, map(len, data), key_bytes))
        except TypeError:  # there is a null in them
            sizes = []
        if not (len(sizes) == len(data) and _good_keys(keys) and _good_hash_keys(hash_keys)):
            self._find_fault(rows.data, keys, hash_keys, numbers)
        block = Block(data, keys, hash_keys, sizes, numbers)
        if max(sizes, default=0) > self._limits.record_bytes(stream):
            return self._without_oversized(block, stream)
        return block

    def _keys(self, rows: RowSlice) -> tuple[list[str], Iterable[int]]:
        """Return all partition keys, made up where there is none, and their sizes in bytes."""
        keys = rows.partition_key or [None] * len(rows.data)
        try:
            together = "".join(keys)
        except TypeError:  # there is a null in them
            missing = keys.count(None)
            made = self._make_keys(1) * missing if self._shared_keys else self._make_keys(missing)
            next_one = iter(made)
            keys = [next(next_one) if key is None else key for key in keys]
            together = "".join(keys)
        return keys, map(len, keys) if together.isascii() else [len(key.encode()) for key in keys]

    def _make_keys(self, count: int) -> list[str]:
        """Make partition keys for rows that have none.

        Kinesis places a record by the MD5 of its key, so keys drawn at random fall on every hash
        range in proportion to its width, whatever the number of shards.
        """
        digits = f"{self._draw(64 * count):0{16 * count}x}"
        return [digits[at : at + 16] for at in range(0, len(digits), 16)]

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
        """Return the rows that are not too large; leave out the others, or refuse them."""
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
