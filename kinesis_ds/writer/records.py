"""What travels to Kinesis: records, by themselves or in blocks, and the requests for them. Pure.

Rows travel as columns, in blocks, for as long as what happens to one of them happens to all. A row
becomes an object of its own, a :class:`Record`, when something happens to it alone: it failed, it
waits for its turn among the rows of its key, or it was dealt out anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kinesis_ds.limits import SHARD_BYTES_PER_S, SHARD_RECORDS_PER_S

_RECORD_COST = 1 / SHARD_RECORDS_PER_S
# Up to this size it is the number of records that a shard runs out of, and above it their bytes.
_SMALL = SHARD_BYTES_PER_S // SHARD_RECORDS_PER_S


@dataclass(slots=True, eq=False)
class Record:
    """One Kinesis record on its way: a row, or an aggregate of several.

    Attributes:
        data, partition_key, explicit_hash_key: As PutRecords takes them.
        size: What Kinesis counts: data and partition key, in bytes.
        row: Its row's number within the task, from 0; of an aggregate the first one's.
        rows: How many rows it stands for.
        window_bytes: What its rows hold of the window's bytes. For a plain record its size.
        keys: The partition keys of an aggregate's rows, each once; empty for a plain record.
        first_try: When it was first sent, in monotonic seconds; None before that.
        tries: How often it was sent.
        since: When it began to wait where it waits now; the lanes' own.
        cost: Shard-seconds that it takes: of the two limits of a shard, the one it uses up more of.
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
        """As of a block."""
        return [self]

    @property
    def first_size(self) -> int:
        return self.size

    @property
    def first_cost(self) -> float:
        return self.cost


class Block:
    """Rows of one shard, or whose shard is yet to be found, that have been through the same.

    Its length is their number.

    Args:
        data, keys, hash_keys: As PutRecords takes them; None where no row has a hash key.
        sizes: What Kinesis counts of each: data and partition key, in bytes.
        numbers: The rows' numbers within the task.

    Attributes:
        size: The sum of the sizes.
        cost: Shard-seconds that they take; see :class:`Record`.
        first_try, tries, since: As of a record.
    """

    __slots__ = (
        "_records",
        "cost",
        "data",
        "first_try",
        "hash_keys",
        "keys",
        "numbers",
        "since",
        "size",
        "sizes",
        "tries",
    )

    def __init__(
        self,
        data: list[bytes],
        keys: list[str],
        hash_keys: list[str | None] | None,
        sizes: list[int],
        numbers: Sequence[int],
    ) -> None:
        self.data = data
        self.keys = keys
        self.hash_keys = hash_keys
        self.sizes = sizes
        self.numbers = numbers
        self.size = sum(sizes)
        self.cost = _cost_of(sizes, self.size)
        self.first_try: float | None = None
        self.tries = 0
        self.since = 0.0
        self._records: list[Record] | None = None

    @classmethod
    def of(cls, records: Sequence[Record]) -> Block:
        """A block of plain records that were never sent, or of one that was."""
        hash_keys = [record.explicit_hash_key for record in records]
        block = cls(
            [record.data for record in records],
            [record.partition_key for record in records],
            hash_keys if any(key is not None for key in hash_keys) else None,
            [record.size for record in records],
            [record.row for record in records],
        )
        block.first_try, block.tries = records[0].first_try, records[0].tries
        return block

    def __repr__(self) -> str:
        return f"Block({len(self)} rows from {self.numbers[0]}, {self.size} bytes)"

    def __len__(self) -> int:
        return len(self.data)

    @property
    def rows(self) -> int:
        """How many rows it stands for."""
        return len(self.data)

    @property
    def window_bytes(self) -> int:
        """What they hold of the window's bytes."""
        return self.size

    @property
    def first_size(self) -> int:
        """The first record's size."""
        return self.sizes[0]

    @property
    def first_cost(self) -> float:
        """The first record's cost."""
        return max(self.sizes[0] / SHARD_BYTES_PER_S, _RECORD_COST)

    @property
    def records(self) -> list[Record]:
        """Its rows one by one; each has its own history from now on. Always the same objects."""
        if self._records is None:
            self._records = [self.record(at) for at in range(len(self))]
        return self._records

    def record(self, at: int) -> Record:
        """One of its rows by itself."""
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
        """How many of its first records are within all three limits: number, bytes, cost."""
        most = min(records, len(self))
        if self.size > room:
            most = min(most, bisect_right(list(accumulate(self.sizes)), room))
        if self.cost > allowance:
            costs = (max(size / SHARD_BYTES_PER_S, _RECORD_COST) for size in self.sizes)
            most = min(most, bisect_right(list(accumulate(costs)), allowance))
        return most

    def cut(self, first: int) -> tuple[Block, Block]:
        """Its ``first`` rows, and the others: neither is to be none."""
        return self._part(slice(None, first)), self._part(slice(first, None))

    def at(self, places: Sequence[int]) -> Block:
        """Some of its rows, which were never sent."""
        hash_keys = self.hash_keys
        return Block(
            [self.data[i] for i in places],
            [self.keys[i] for i in places],
            None if hash_keys is None else [hash_keys[i] for i in places],
            [self.sizes[i] for i in places],
            [self.numbers[i] for i in places],
        )

    def _part(self, rows: slice) -> Block:
        hash_keys = self.hash_keys
        part = Block(
            self.data[rows],
            self.keys[rows],
            None if hash_keys is None else hash_keys[rows],
            self.sizes[rows],
            self.numbers[rows],
        )
        part.first_try, part.tries, part.since = self.first_try, self.tries, self.since
        return part


Item = Block | Record
"""What waits in a queue and travels in a request: some rows together, or a record by itself."""


def _cost_of(sizes: list[int], size: int) -> float:
    if max(sizes, default=0) <= _SMALL:
        return len(sizes) * _RECORD_COST
    if min(sizes) > _SMALL:
        return size / SHARD_BYTES_PER_S
    return sum(max(one / SHARD_BYTES_PER_S, _RECORD_COST) for one in sizes)


@dataclass(frozen=True, slots=True)
class Request:
    """What travels in one PutRecords call. Its length is the number of records.

    Attributes:
        items: The records, in order.
        size: In bytes, as Kinesis counts.
        first_try: When the one that was first sent earliest was first sent, in monotonic seconds.
    """

    items: list[Item]
    size: int
    first_try: float

    def __len__(self) -> int:
        return sum(map(len, self.items))

    @property
    def rows(self) -> int:
        """How many rows its records stand for."""
        return sum(item.rows for item in self.items)

    @property
    def window_bytes(self) -> int:
        """What those hold of the window's bytes."""
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
        return data, keys, None if _all_none(hash_keys) else hash_keys

    def weights(self) -> list[tuple[int, int]]:
        """Of each record how many rows it stands for, and what they hold of the window's bytes."""
        found: list[tuple[int, int]] = []
        for item in self.items:
            if isinstance(item, Block):
                found += [(1, size) for size in item.sizes]
            else:
                found.append((item.rows, item.window_bytes))
        return found


def _all_none(values: list[str | None]) -> bool:
    return values.count(None) == len(values)


def records_of(items: Iterable[Item]) -> list[Record]:
    """Their records one by one."""
    return [record for item in items for record in item.records]


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


def plain(data: bytes, key: str, hash_key: str | None, size: int, row: int) -> Record:
    """The record of one row."""
    return Record(data, key, hash_key, size, row, 1, size)
