"""What is sent to Kinesis: blocks of rows, single records, and the requests for them. Pure.

Rows travel as columns, in a :class:`Block`, for as long as the same happens to all of them. A row
becomes a :class:`Record`, an object of its own, when something happens to it alone: it failed, it
waits for another row of its key, or its stream was resharded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any

from kinesis_ds.limits import SHARD_BYTES_PER_S, SHARD_RECORDS_PER_S

_RECORD_COST = 1 / SHARD_RECORDS_PER_S
# A shard that gets smaller records reaches its limit of records first; else its limit of bytes.
_SMALL = SHARD_BYTES_PER_S // SHARD_RECORDS_PER_S


@dataclass(slots=True, eq=False)
class Record:
    """One Kinesis record on its way: a row, or an aggregate of several.

    Attributes:
        data: The payload, or the aggregate.
        partition_key: As PutRecords takes it.
        explicit_hash_key: As PutRecords takes it, a decimal number; None if it has none.
        size: Data and partition key in bytes, as Kinesis counts them.
        row: The number of its row within the task, from 0; for an aggregate, of its first row.
        rows: How many rows it holds.
        window_bytes: How many bytes of the window its rows hold. For a plain record its size.
        keys: The partition keys of an aggregate's rows, each once; empty for a plain record.
        first_try: When it was first sent, in monotonic seconds; None before that.
        tries: How often it was sent.
        since: When it began to wait where it waits now, in monotonic seconds; set by its queue.
        cost: How many shard-seconds it takes. A shard takes 1,000 records and 1 MiB in a second;
            what counts is the limit of which the record uses more.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size: int
    row: int
    rows: int = 1
    window_bytes: int = 0
    keys: tuple[str, ...] = ()
    first_try: float | None = None
    tries: int = 0
    since: float = 0.0
    cost: float = field(init=False)

    def __post_init__(self) -> None:
        cost = self.size / SHARD_BYTES_PER_S
        self.cost = cost if cost > _RECORD_COST else _RECORD_COST

    def __len__(self) -> int:
        return 1

    @property
    def records(self) -> list[Record]:
        """The record alone, as :attr:`Block.records` has its rows."""
        return [self]

    @property
    def first_size(self) -> int:
        return self.size

    @property
    def first_cost(self) -> float:
        return self.cost


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """Some rows by column. The same has happened to all of them. Its length is their number.

    Attributes:
        data: The payloads.
        keys: The partition keys.
        hash_keys: The explicit hash keys; None where no row has one.
        sizes: Data and partition key of each row in bytes, as Kinesis counts them.
        numbers: The numbers of the rows within the task, from 0.
        first_try, tries, since: See :class:`Record`.
        size: The sum of the sizes, in bytes.
        cost: How many shard-seconds they take; see :class:`Record`.
    """

    data: list[bytes]
    keys: list[str]
    hash_keys: list[str | None] | None
    sizes: list[int]
    numbers: Sequence[int]
    first_try: float | None = None
    tries: int = 0
    since: float = 0.0
    size: int = field(init=False)
    cost: float = field(init=False)
    _records: list[Record] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.size = sum(self.sizes)
        self.cost = _cost_of(self.sizes, self.size)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Block:
        """Make a block of plain records that were never sent, or of one record that was."""
        hash_keys = [record.explicit_hash_key for record in records]
        return cls(
            [record.data for record in records],
            [record.partition_key for record in records],
            hash_keys if any(key is not None for key in hash_keys) else None,
            [record.size for record in records],
            [record.row for record in records],
            records[0].first_try,
            records[0].tries,
        )

    def __repr__(self) -> str:
        return f"Block({len(self)} rows from {self.numbers[0]}, {self.size} bytes)"

    def __len__(self) -> int:
        return len(self.data)

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return len(self.data)

    @property
    def window_bytes(self) -> int:
        """How many bytes of the window they hold."""
        return self.size

    @property
    def first_size(self) -> int:
        """The size of the first record, in bytes."""
        return self.sizes[0]

    @property
    def first_cost(self) -> float:
        """The cost of the first record, in shard-seconds."""
        return max(self.sizes[0] / SHARD_BYTES_PER_S, _RECORD_COST)

    @property
    def records(self) -> list[Record]:
        """Its rows as records, each with its own history from now on. Always the same objects."""
        if self._records is None:
            self._records = [self.record(at) for at in range(len(self))]
        return self._records

    def record(self, at: int) -> Record:
        """Make a record of one of its rows."""
        record = plain(
            self.data[at],
            self.keys[at],
            None if self.hash_keys is None else self.hash_keys[at],
            self.sizes[at],
            self.numbers[at],
        )
        record.first_try, record.tries = self.first_try, self.tries
        return record

    def fitting(self, records: int, room: int, allowance: float) -> int:
        """Return how many rows from the front keep three limits: number, bytes, shard-seconds."""
        most = min(records, len(self))
        if self.size > room:
            most = min(most, bisect_right(list(accumulate(self.sizes)), room))
        if self.cost > allowance:
            costs = (max(size / SHARD_BYTES_PER_S, _RECORD_COST) for size in self.sizes)
            most = min(most, bisect_right(list(accumulate(costs)), allowance))
        return most

    def cut(self, first: int) -> tuple[Block, Block]:
        """Cut it behind the ``first`` rows; neither part may be empty."""
        front, rest = slice(None, first), slice(first, None)
        return self._part(itemgetter(front)), self._part(itemgetter(rest))

    def at(self, places: Sequence[int]) -> Block:
        """Return some of its rows as a block."""
        return self._part(lambda column: [column[at] for at in places])

    def _part(self, pick: Callable[[Any], Any]) -> Block:
        return Block(
            pick(self.data),
            pick(self.keys),
            None if self.hash_keys is None else pick(self.hash_keys),
            pick(self.sizes),
            pick(self.numbers),
            self.first_try,
            self.tries,
            self.since,
        )


Item = Block | Record
"""A block of rows or a single record, as it waits in a queue and travels in a request."""


def _cost_of(sizes: list[int], size: int) -> float:
    if max(sizes, default=0) <= _SMALL:
        return len(sizes) * _RECORD_COST
    if min(sizes) > _SMALL:
        return size / SHARD_BYTES_PER_S
    return sum(max(one / SHARD_BYTES_PER_S, _RECORD_COST) for one in sizes)


@dataclass(frozen=True, slots=True)
class Request:
    """The records of one PutRecords call. Its length is the number of records.

    Attributes:
        items: The records, in order.
        size: Their data and partition keys in bytes, as Kinesis counts them.
        first_try: The earliest first try of its records, in monotonic seconds.
    """

    items: list[Item]
    size: int
    first_try: float

    def __len__(self) -> int:
        return sum(map(len, self.items))

    @property
    def rows(self) -> int:
        """How many rows its records hold."""
        return sum(item.rows for item in self.items)

    @property
    def window_bytes(self) -> int:
        """How many bytes of the window those hold."""
        return sum(item.window_bytes for item in self.items)

    @property
    def records(self) -> list[Record]:
        """Its records one by one."""
        return records_of(self.items)

    def columns(self) -> tuple[list[bytes], list[str], list[str | None] | None]:
        """Return data, partition keys and explicit hash keys, each as one column.

        There are no hash keys (None) where no record has one.
        """
        data: list[bytes] = []
        keys: list[str] = []
        hash_keys: list[str | None] = []
        for item in self.items:
            if isinstance(item, Block):
                data += item.data
                keys += item.keys
                hash_keys += item.hash_keys or [None] * len(item)
            else:
                data.append(item.data)
                keys.append(item.partition_key)
                hash_keys.append(item.explicit_hash_key)
        return data, keys, None if hash_keys.count(None) == len(hash_keys) else hash_keys

    def weights(self) -> list[tuple[int, int]]:
        """Return for each record how many rows it holds, and their bytes of the window."""
        found: list[tuple[int, int]] = []
        for item in self.items:
            if isinstance(item, Block):
                found += [(1, size) for size in item.sizes]
            else:
                found.append((item.rows, item.window_bytes))
        return found


def records_of(items: Iterable[Item]) -> list[Record]:
    """Return the records of some items one by one."""
    return [record for item in items for record in item.records]


@dataclass(frozen=True)
class PackingLimits:
    """The limits of a request. Sizes count partition keys.

    Attributes:
        request_records: The most records of a request.
        request_bytes: The most bytes of a request. A record larger than this travels alone.
    """

    request_records: int
    request_bytes: int


def plain(data: bytes, key: str, hash_key: str | None, size: int, row: int) -> Record:
    """Make the record of one row."""
    return Record(data, key, hash_key, size, row, 1, size)
