"""Puts many rows into one Kinesis record, in the format of the KPL. Pure.

The message is written by hand. An aggregator must know its size to the byte while it fills, with
keys and tags, and joining pieces of bytes is faster than building objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from operator import add

from kinesis_ds.wire.kpl import (
    DIGEST_BYTES,
    FRAME_BYTES,
    HASH_KEY_FIELD,
    KEY_FIELD,
    MAGIC,
    RECORD_FIELD,
    AggregatedRecord,
    md5_digest,
    md5_hash_key,
    varint,
)
from kinesis_ds.wire.record_ids import prefix_tag, row_numbers, row_tag
from kinesis_ds.writer.records import Block, Record, plain

# So many rows are worth the work of going by column.
_MANY = 16
# Lengths below this take two bytes. Making the heads for each record would cost more than the rest.
_SHORT = 1 << 14
_RECORD_HEADS = [RECORD_FIELD + varint(length) for length in range(_SHORT)]
# The most bytes that are added to the data and the key of such a row: the heads of the record, the
# data and the key in the table, and the key's place in that table.
_MOST_AROUND = 3 + 3 + 3 + 6


class Aggregator:
    """The open aggregate of one shard. Returns all rows that it takes, in order, each once.

    An aggregate is sent with the hash key of its first user record, so it lands in the shard of
    that one. The caller must add rows of one shard only: readers leave out user records that do not
    belong to the shard where they find them.

    A user record alone is returned as a plain record, unless it must have an id. A row larger than
    ``max_bytes`` goes alone. A row that fits into the stream's limit only without the bytes of its
    id goes without the id.

    Args:
        max_bytes: The most bytes of an aggregate: data and partition key, as Kinesis counts them.
        max_records: The most user records of an aggregate, from 1.
        record_bytes: The stream's limit for a record, in bytes. No larger aggregate is made.
        id_prefix: What record ids begin with, "<query id>/<batch id>/<partition>"; None for no ids.

    Attributes:
        opened_at: When the first row of the open aggregate was added, in monotonic seconds; None
            when it is empty.
        waiting: How many rows are in it.

    Raises:
        ValueError: The prefix is empty or longer than 100 bytes.
    """

    def __init__(
        self, max_bytes: int, max_records: int, record_bytes: int, id_prefix: str | None
    ) -> None:
        self._max_bytes = min(max_bytes, record_bytes)
        self._max_records = max_records
        self._record_bytes = record_bytes
        self._prefix_tag = None if id_prefix is None else prefix_tag(id_prefix)
        self._empty()

    def _empty(self) -> None:
        self.opened_at: float | None = None
        self.waiting = 0
        self._size = FRAME_BYTES
        # A key as the field that a user record names it by, once the key is in the table.
        self._keys: dict[str, bytes] = {}
        self._hash_keys: dict[str, bytes] = {}
        self._tables: list[bytes] = []
        self._pieces: list[bytes] = []
        self._first: tuple[str, str | None, int] | None = None
        self._window_bytes = 0
        self._first_try: float | None = None
        self._tries = 0

    def add(self, rows: Block, now: float) -> list[Record]:
        """Take rows in their order. Returns the records that are complete now, in order.

        A row that goes alone comes behind the aggregate that was open before it.
        """
        closed: list[Record] = []
        at = 0
        while at < len(rows):
            at = self._append(rows, at, len(rows), self._max_bytes, now)
            if self.waiting >= self._max_records or (at < len(rows) and self.waiting):
                closed.append(self._closed())
            elif at < len(rows):
                # It is too large for an aggregate, at least with its id.
                with_id = self._prefix_tag is not None
                if with_id and self._append(rows, at, at + 1, self._record_bytes, now) > at:
                    closed.append(self._closed())
                else:
                    closed.append(rows.record(at))
                at += 1
        return closed

    def close(self) -> Record | None:
        """Return the open aggregate as a record; None when it is empty."""
        return self._closed() if self.waiting else None

    def _closed(self) -> Record:
        assert self._first is not None
        key, hash_key, row = self._first
        if self.waiting == 1 and self._prefix_tag is None:
            closed = plain(self._pieces[-2], key, hash_key, self._window_bytes, row)
            closed.first_try, closed.tries = self._first_try, self._tries
        else:
            body = b"".join(self._tables) + b"".join(self._pieces)
            closed = Record(
                data=b"".join((MAGIC, body, md5_digest(body))),
                partition_key=key,
                explicit_hash_key=hash_key or str(md5_hash_key(key)),
                size=self._size,
                row=row,
                rows=self.waiting,
                window_bytes=self._window_bytes,
                keys=tuple(self._keys),
                first_try=self._first_try,
                tries=self._tries,
            )
        self._empty()
        return closed

    def _append(self, rows: Block, first: int, end: int, most: int, now: float) -> int:
        """Take rows from ``first`` up to ``end``, as many as fit into ``most`` bytes.

        Returns the place behind the last row that was taken.
        """
        end = min(end, first + self._max_records - self.waiting)
        at = first
        while at < end:
            sure = self._surely_fitting(rows, at, end, most)
            if sure >= _MANY:
                self._append_many(rows, at, at + sure, now)
                at += sure
            else:
                wanted = min(end, at + _MANY)
                at = self._append_each(rows, at, wanted, most, now)
                if at < wanted:
                    break
        return at

    def _surely_fitting(self, rows: Block, first: int, end: int, most: int) -> int:
        """Return how many of the rows fit even if each needs the most that any may need.

        Returns 0 where this is not worked out: for the first row, and with ids or hash keys.
        """
        if not self.waiting or self._prefix_tag is not None or rows.hash_keys is not None:
            return 0
        largest = max(rows.sizes[first:end]) + _MOST_AROUND
        return min(end - first, (most - self._size) // largest) if largest < _SHORT else 0

    def _append_many(self, rows: Block, first: int, end: int, now: float) -> None:
        """Take rows that surely fit, by column. The aggregate must not be empty."""
        values = rows.data[first:end]
        sizes = list(map(len, values))
        value_heads = map(_RECORD_HEADS.__getitem__, sizes)
        tables = len(self._tables)
        fields = list(map(add, self._key_fields(rows.keys[first:end]), value_heads))
        lengths = list(map(add, map(len, fields), sizes))
        heads = list(map(_RECORD_HEADS.__getitem__, lengths))
        self._pieces += chain.from_iterable(zip(heads, fields, values, strict=True))
        size = self._size + sum(lengths) + sum(map(len, heads))
        self._count(rows, first, end, size + sum(map(len, self._tables[tables:])), now)

    def _key_fields(self, keys: list[str]) -> Iterable[bytes]:
        """Return the fields that name these keys; put new keys into the table."""
        known = self._keys
        if new := [key for key in dict.fromkeys(keys) if key not in known]:
            places = range(len(known), len(known) + len(new))
            known.update(zip(new, map(_key_field, places), strict=True))
            self._tables += map(_key_entry, new)
        return map(known.__getitem__, keys)

    def _append_each(self, rows: Block, first: int, end: int, most: int, now: float) -> int:
        """Do as :meth:`_append` does, row by row, with sizes exact to the byte."""
        keys, data, hash_keys = rows.keys, rows.data, rows.hash_keys
        key_fields, pieces, size = self._keys, self._pieces, self._size
        prefix_tag = self._prefix_tag
        at, hash_key, tags = first, None, b""
        while at < end:
            key, value = keys[at], data[at]
            table = new_key = b""
            fields = key_fields.get(key)
            if fields is None:
                table = _key_entry(key)
                fields = new_key = _key_field(len(key_fields))
            new_hash_key = b""
            if hash_keys is not None and (hash_key := hash_keys[at]) is not None:
                hash_field = self._hash_keys.get(hash_key)
                if hash_field is None:
                    table += HASH_KEY_FIELD + varint(len(hash_key)) + hash_key.encode()
                    hash_field = new_hash_key = b"\x10" + varint(len(self._hash_keys))
                fields += hash_field
            if prefix_tag is not None:
                tags = row_tag(rows.numbers[at])
                if not pieces:
                    tags = prefix_tag + tags
            value_head = _record_head(len(value))
            length = len(fields) + len(value_head) + len(value) + len(tags)
            head = _record_head(length)
            grown = size + len(table) + len(head) + length
            if not pieces:
                grown += rows.sizes[at] - len(value)  # its partition key is the aggregate's
            if grown > most:
                break
            size = grown
            if table:
                self._tables.append(table)
                if new_key:
                    key_fields[key] = new_key
                if hash_key is not None and new_hash_key:
                    self._hash_keys[hash_key] = new_hash_key
            pieces += (head, fields, value_head, value, tags)
            at += 1
        if at > first:
            self._count(rows, first, at, size, now)
        return at

    def _count(self, rows: Block, first: int, end: int, size: int, now: float) -> None:
        """Count rows that were appended."""
        if self._first is None:
            hash_keys = rows.hash_keys
            hash_key = None if hash_keys is None else hash_keys[first]
            self._first = (rows.keys[first], hash_key, rows.numbers[first])
            self.opened_at = now
        self._size = size
        self._window_bytes += sum(rows.sizes[first:end])
        self.waiting += end - first
        if rows.first_try is not None:  # they were in an aggregate that was taken apart
            earlier = self._first_try is None or rows.first_try < self._first_try
            self._first_try = rows.first_try if earlier else self._first_try
            self._tries = max(rows.tries, self._tries)


def _record_head(length: int) -> bytes:
    """Return the head of a field of so many bytes: of a user record, or of the data in one."""
    return _RECORD_HEADS[length] if length < _SHORT else RECORD_FIELD + varint(length)


@lru_cache(maxsize=1 << 14)
def _key_field(place: int) -> bytes:
    """Return the field by which a user record names its key: its place in the table."""
    return b"\x08" + varint(place)


@lru_cache(maxsize=1 << 14)
def _key_entry(key: str) -> bytes:
    """Return a key as the table of keys has it."""
    raw = key.encode()
    return KEY_FIELD + varint(len(raw)) + raw


def user_records(record: Record) -> list[Record]:
    """Take one of the sink's aggregates apart into plain records, in order.

    A plain record is returned as it is. Each row's number is that of its tag, or else that of the
    aggregate. First try and number of tries are those of the aggregate, so that no row gets more
    time by this.
    """
    if not record.keys:
        return [record]
    parsed = AggregatedRecord.FromString(record.data[len(MAGIC) : -DIGEST_BYTES])
    keys = [(raw.decode(), len(raw)) for raw in parsed.partition_key_table]
    hash_keys = [raw.decode() for raw in parsed.explicit_hash_key_table]
    users = []
    for user, row in zip(parsed.records, row_numbers(parsed.records), strict=True):
        key, key_bytes = keys[user.partition_key_index]
        with_hash_key = user.HasField("explicit_hash_key_index")
        found = plain(
            user.data,
            key,
            hash_keys[user.explicit_hash_key_index] if with_hash_key else None,
            len(user.data) + key_bytes,
            record.row if row is None else int(row),
        )
        found.first_try, found.tries = record.first_try, record.tries
        users.append(found)
    return users
