"""The order of the rows of a partition key: one record of a key is sent at a time. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.writer.records import Record


class KeyOrder:
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
        """Let the record pass if it is first in line for all its keys.

        Returns True if it passes at once. Else :meth:`done` returns it when it does.
        """
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
        """Note that a record that had passed is stored. Returns those that pass now."""
        return self.replace(record, ())

    def replace(self, old: Record, new: Iterable[Record]) -> list[Record]:
        """Put others in the place of a record that had passed, before all that wait behind it.

        Their keys are among its own. Returns those that pass now.
        """
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
        """Take out everything that waits, the records of each key in their order.

        The records in ``passed`` keep their keys.
        """
        waiting = list(self._missing)
        self._behind.clear()
        self._missing.clear()
        self._held = {key for record in passed for key in keys_of(record)}
        return waiting


def keys_of(record: Record) -> tuple[str, ...]:
    """Return the partition keys of the record's rows, each once."""
    return record.keys or (record.partition_key,)
