"""Records that wait: those of one shard that may be sent, and those whose key is busy. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesis_ds.writer.records import Block, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.writer.records import Load, Record


class Taken(NamedTuple):
    """What a queue gave: its loads, their bytes and cost, and whether room was what ended it."""

    loads: list[Load]
    size: int
    cost: float
    room_ended: bool


class Queue:
    """What may be sent to one shard, first in, first out. Its length is the number of records.

    Attributes:
        size: Their bytes.
        cost: Their cost, in shard-seconds.
        again: How many of them were sent before.
    """

    __slots__ = ("_loads", "_records", "again", "cost", "size")

    def __init__(self) -> None:
        self._loads: deque[Load] = deque()
        self._records = 0
        self.size = 0
        self.cost = 0.0
        self.again = 0

    def __len__(self) -> int:
        return self._records

    @property
    def since(self) -> float:
        """When the record at the front began to wait, or was first sent."""
        return self._loads[0].since

    def add(self, load: Load, since: float) -> None:
        """It comes last."""
        load.since = since
        self._loads.append(load)
        self._count(load)

    def put_back(self, records: list[Record], now: float) -> None:
        """Records come first, in their order."""
        for record in reversed(records):
            record.since = now if record.first_try is None else record.first_try
            self._loads.appendleft(record)
            self._count(record)

    def take(self, records: int, room: int, allowance: float, *, alone: bool) -> Taken:
        """As many records from the front as there are, within all three limits.

        The first one's cost is not looked at: whoever asks has asked the pace. Nor, if it would be
        ``alone`` in its request, is its size.
        """
        taken: list[Load] = []
        size, cost, ended = 0, 0.0, False
        waiting = self._loads
        while waiting:
            load = waiting[0]
            if not records or (size + load.first_size > room and (taken or not alone)):
                ended = True
                break
            if taken and cost + load.first_cost > allowance:
                break
            if isinstance(load, Block):
                fitting = max(1, load.fitting(records, room - size, allowance - cost))
                if fitting < len(load):
                    load, waiting[0] = load.cut(fitting)
                else:
                    waiting.popleft()
            else:
                waiting.popleft()
            taken.append(load)
            records -= len(load)
            size += load.size
            cost += load.cost
            if load.tries:
                self.again -= len(load)
            self._records -= len(load)
        self.size -= size
        self.cost = self.cost - cost if waiting else 0.0
        return Taken(taken, size, cost, ended)

    def drain(self) -> list[Record]:
        """Take out everything."""
        records = records_of(self._loads)
        self._loads.clear()
        self._records, self.size, self.cost, self.again = 0, 0, 0.0, 0
        return records

    def _count(self, load: Load) -> None:
        self._records += len(load)
        self.size += load.size
        self.cost += load.cost
        if load.tries:
            self.again += len(load)


class Gate:
    """Lets one record of a partition key pass at a time, in the order in which they came.

    PutRecords promises no order inside a request, and requests overtake each other, so order is
    only kept by sending the next record of a key when the one before is stored. A record that
    passed holds its keys until it is done, whether it waits, is under way or failed: a reshard
    cannot break the order either. An aggregate passes when it is first in line for all its keys.
    """

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._behind: dict[str, deque[Record]] = {}
        # For how many of its keys a record is not first in line; in the order of the lines.
        self._missing: dict[Record, int] = {}

    def __len__(self) -> int:
        return len(self._missing)

    def add(self, record: Record) -> bool:
        """Whether the record passes at once. If not, :meth:`done` gives it when it does."""
        missing = 0
        for key in keys_of(record):
            if key in self._held:
                self._behind.setdefault(key, deque()).append(record)
                missing += 1
            else:
                self._held.add(key)
        if missing:
            self._missing[record] = missing
        return not missing

    def done(self, record: Record) -> list[Record]:
        """A record that had passed is stored. Returns those that pass now."""
        return self.replace(record, ())

    def replace(self, old: Record, new: Iterable[Record]) -> list[Record]:
        """Others take the place of a record that had passed, before all that wait behind it.

        Their keys are among its own. Returns those that pass now.
        """
        new = list(new)
        mine: set[str] = set()  # keys of the old one that one of the new ones holds
        passing = []
        first: dict[Record, int] = {}
        later: list[tuple[str, Record]] = []
        for record in new:
            missing = [key for key in keys_of(record) if key in mine]
            later += [(key, record) for key in missing]
            mine.update(keys_of(record))
            if missing:
                first[record] = len(missing)
            else:
                passing.append(record)
        if first:
            self._missing = {**first, **self._missing}
        for key, record in reversed(later):
            self._behind.setdefault(key, deque()).appendleft(record)
        for key in keys_of(old):
            if key in mine:
                continue
            behind = self._behind.get(key)
            if behind is None:
                self._held.discard(key)
                continue
            record = behind.popleft()
            if not behind:
                del self._behind[key]
            self._missing[record] -= 1
            if not self._missing[record]:
                del self._missing[record]
                passing.append(record)
        return passing

    def drain(self, passed: Iterable[Record]) -> list[Record]:
        """Take out everything that waits, each key's in its order; ``passed`` keep theirs."""
        waiting = list(self._missing)
        self._behind.clear()
        self._missing.clear()
        self._held = {key for record in passed for key in keys_of(record)}
        return waiting


def keys_of(record: Record) -> tuple[str, ...]:
    """The partition keys of the record's rows, each once."""
    return record.keys or (record.partition_key,)
