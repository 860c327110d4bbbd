"""Aggregation: many rows in one Kinesis record, in the format of the KPL. Pure.

The message is written by hand: an aggregator has to know its size to the byte while it fills,
keys and tags included, and to write pieces behind each other is faster than to build objects.
"""

from __future__ import annotations

from kinesis_ds.kpl import (
    DIGEST_BYTES,
    FRAME_BYTES,
    HASH_KEY_FIELD,
    KEY_FIELD,
    MAGIC,
    RECORD_FIELD,
    AggregatedRecord,
    hash_key_of,
    md5,
    prefix_tag,
    row_tag,
    rows_of,
    varint,
)
from kinesis_ds.writer.records import Record, plain


class Aggregator:
    """The open aggregate of one shard. Gives out what it was given, in order, each row once.

    An aggregate is addressed by the hash key of its first user record, so it lands in that one's
    shard. To give an aggregator only records of one shard is the caller's part: readers leave out
    user records that do not belong to the shard they find them in.

    One user record alone is given out as the plain record it is, unless it is to have an id. A
    record that is larger than ``max_bytes`` goes alone. A record that the stream takes only without
    the bytes of its id goes without it.

    Args:
        max_bytes: What an aggregate may have, in bytes as Kinesis counts: data and partition key.
        max_records: How many user records it may have, from 1.
        record_bytes: What the stream takes; above it nothing is made.
        id_prefix: What record ids begin with, "<query id>/<batch id>/<partition>"; None: no ids.

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
        self._first: Record | None = None
        self._held = 0
        self._first_try: float | None = None
        self._tries = 0

    def add(self, record: Record, now: float) -> list[Record]:
        """Take a plain record; returns what this closed, in order: none, one, or two.

        Two: the aggregate that was open, and this record, which goes alone.
        """
        closed: list[Record] = []
        if not self._append(record, self._max_bytes, now):
            if (before := self.close()) is not None:
                closed.append(before)
            if not self._append(record, self._max_bytes, now):
                with_id = self._prefix_tag is not None and self._append(
                    record, self._record_bytes, now
                )
                alone = self.close() if with_id else record
                assert alone is not None
                return [*closed, alone]
        if self.waiting >= self._max_records and (full := self.close()) is not None:
            closed.append(full)
        return closed

    def close(self) -> Record | None:
        """The open aggregate as a record to be sent; None when nothing waits in it."""
        first = self._first
        if first is None:
            return None
        closed = first
        if self.waiting > 1 or self._prefix_tag is not None:
            body = b"".join(self._tables) + b"".join(self._pieces)
            hash_key = first.explicit_hash_key
            closed = Record(
                data=b"".join((MAGIC, body, md5(body))),
                partition_key=first.partition_key,
                explicit_hash_key=hash_key or str(hash_key_of(first.partition_key)),
                size=self._size,
                row=first.row,
                rows=self.waiting,
                held=self._held,
                keys=tuple(self._keys),
                first_try=self._first_try,
                tries=self._tries,
            )
        self._empty()
        return closed

    def _append(self, record: Record, most: int, now: float) -> bool:
        """Take it if the aggregate then has at most ``most`` bytes; returns whether it did."""
        key, hash_key, data = record.partition_key, record.explicit_hash_key, record.data
        size = self._size
        table = b""
        key_field = self._keys.get(key)
        if key_field is None:
            raw = key.encode()
            table = KEY_FIELD + varint(len(raw)) + raw
            key_field = b"\x08" + varint(len(self._keys))
        fields = key_field
        hash_field = None
        if hash_key is not None:
            hash_field = self._hash_keys.get(hash_key)
            if hash_field is None:
                table += HASH_KEY_FIELD + varint(len(hash_key)) + hash_key.encode()
                hash_field = b"\x10" + varint(len(self._hash_keys))
            fields += hash_field
        fields += RECORD_FIELD + varint(len(data))
        tags = b""
        if self._prefix_tag is not None:
            tags = row_tag(record.row)
            if self._first is None:
                tags = self._prefix_tag + tags
        length = len(fields) + len(data) + len(tags)
        head = RECORD_FIELD + varint(length)
        size += len(table) + len(head) + length
        if self._first is None:
            size += record.size - len(data)  # its partition key is the aggregate's
        if size > most:
            return False
        if self._first is None:
            self._first = record
            self.opened_at = now
        if table:
            self._tables.append(table)
            self._keys[key] = key_field
            if hash_key is not None and hash_field is not None:
                self._hash_keys[hash_key] = hash_field
        self._pieces += (head, fields, data, tags) if tags else (head, fields, data)
        self._size = size
        self._held += record.held
        self.waiting += 1
        if record.first_try is not None:  # it was in an aggregate that was taken apart
            earlier = self._first_try is None or record.first_try < self._first_try
            self._first_try = record.first_try if earlier else self._first_try
            self._tries = max(record.tries, self._tries)
        return True


def users_of(record: Record) -> list[Record]:
    """An aggregate of ours taken apart into plain records again, in order; a plain one as it is.

    Each has the row of its tag, or else that of the aggregate. When they were first tried, and how
    often, they have from the aggregate, so that taking apart gives nobody more time.
    """
    if not record.keys:
        return [record]
    parsed = AggregatedRecord.FromString(record.data[len(MAGIC) : -DIGEST_BYTES])
    keys = [(raw.decode(), len(raw)) for raw in parsed.partition_key_table]
    hash_keys = [raw.decode() for raw in parsed.explicit_hash_key_table]
    users = []
    for user, row in zip(parsed.records, rows_of(parsed.records), strict=True):
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
