"""The aggregate format of the Kinesis Producer Library, as far as sink and source share it. Pure.

Four bytes that mark it, a protocol buffers message, and the MD5 of that message. The format is
documented in ``aggregation-format.md`` of the KPL.

The message is parsed by the protocol buffers runtime, with a description of our own in a pool of
our own, so that nothing else in the process (Spark Connect, for one) can collide with it.

**Record ids.** The format lets a user record carry tags, pairs of a key and a value, which other
readers pass over. The sink can put an id into them (option ``recordIds``): every user record has
the tag ``r``, the number of its row, and the first one of an aggregate, before that, the tag
``kinesis_ds.id.1``, what all ids of this aggregate begin with; the ``1`` is the version of this
form. The id of a user record is ``<prefix>/<row>``. So it costs about a dozen bytes a record, and
an aggregate says all by itself. Tags in any other form are somebody else's and say nothing.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
# What a message grows by when it becomes the data of a record.
FRAME_BYTES = len(MAGIC) + DIGEST_BYTES

# The first bytes of fields: number and wire type. Both kinds of key are tables, 1 and 2; user
# records are field 3, and so is the data in each of them.
KEY_FIELD, HASH_KEY_FIELD, RECORD_FIELD, TAG_FIELD = b"\x0a", b"\x12", b"\x1a", b"\x22"

_PREFIX_KEY = b"kinesis_ds.id.1"
_PREFIX_HEAD = b"\x0a%c%b\x12" % (len(_PREFIX_KEY), _PREFIX_KEY)
_ROW_HEAD = b"\x0a\x01r\x12"
# Lengths below 128 are one byte, and both kinds of value stay below: no id needs more.
_PREFIX_MAX_BYTES = 100
_ROW_MAX_DIGITS = 19


def md5(data: bytes) -> bytes:
    """Of a message its sum; of a partition key where Kinesis places its records."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def hash_key_of(partition_key: str) -> int:
    """Where Kinesis places the records of a partition key that have no explicit hash key."""
    return int.from_bytes(md5(partition_key.encode()), "big")


@lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """A whole number from 0 as protocol buffers write it: seven bits a byte, low ones first."""
    groups = []
    while number > 127:
        groups.append(128 | number & 127)
        number >>= 7
    return bytes([*groups, number])


def prefix_tag(prefix: str) -> bytes:
    """The field that says what the record ids of an aggregate begin with.

    Raises:
        ValueError: It is empty, or longer than 100 bytes.
    """
    value = prefix.encode()
    if not 1 <= len(value) <= _PREFIX_MAX_BYTES:
        raise ValueError(f"a prefix of record ids has 1 to {_PREFIX_MAX_BYTES} bytes")
    return _tag(_PREFIX_HEAD, value)


def row_tag(row: int) -> bytes:
    """The field that says which row a user record is."""
    digits = b"%d" % row
    return _ROW_TAG_HEADS[len(digits)] + digits


def _tag(head: bytes, value: bytes) -> bytes:
    return b"%b%c%b%c%b" % (TAG_FIELD, len(head) + 1 + len(value), head, len(value), value)


_ROW_TAG_HEADS = [_tag(_ROW_HEAD, b"0" * n)[: len(_ROW_HEAD) + 3] for n in range(20)]


def rows_of(records: Any) -> list[str | None]:
    """Of each user record the number in its tag; None for one that has not exactly one."""
    rows: list[str | None] = []
    for record in records:
        found = None
        for tag in record.tags:
            if tag.startswith(_ROW_HEAD):
                value = tag[5:]
                if found is None and value.isdigit() and tag[4] == len(value) <= _ROW_MAX_DIGITS:
                    found = value.decode("ascii")
                else:
                    found = None
                    break
        rows.append(found)
    return rows


def ids_of(records: Any) -> list[str | None]:
    """Of each user record of an aggregate its id; None where it has none."""
    prefix = _prefix_of(records[0].tags) if records else None
    if prefix is None:
        return [None] * len(records)
    return [None if row is None else f"{prefix}/{row}" for row in rows_of(records)]


def _prefix_of(tags: Iterable[bytes]) -> str | None:
    found = [tag[len(_PREFIX_HEAD) :] for tag in tags if tag.startswith(_PREFIX_HEAD)]
    if len(found) != 1 or not 2 <= len(found[0]) <= 1 + _PREFIX_MAX_BYTES:
        return None
    value = found[0][1:]
    if found[0][0] != len(value):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _message_class() -> Any:
    """The class of the message, from its description.

    Keys are described as bytes, which they are on the wire: whether they are UTF-8 is for us to
    say, and their hash is that of the bytes. So are tags, messages of their own on the wire: what
    others put there, and how well, is no reason to refuse a record.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="kinesis_ds/aggregate.proto", package="kinesis_ds", syntax="proto2"
    )
    aggregate = file.message_type.add(name="AggregatedRecord")
    for number, name in ((1, "partition_key_table"), (2, "explicit_hash_key_table")):
        aggregate.field.add(
            name=name, number=number, type=field.TYPE_BYTES, label=field.LABEL_REPEATED
        )
    aggregate.field.add(
        name="records",
        number=3,
        type=field.TYPE_MESSAGE,
        type_name=".kinesis_ds.Record",
        label=field.LABEL_REPEATED,
    )
    record = file.message_type.add(name="Record")
    for number, name, kind, label in (
        (1, "partition_key_index", field.TYPE_UINT64, field.LABEL_REQUIRED),
        (2, "explicit_hash_key_index", field.TYPE_UINT64, field.LABEL_OPTIONAL),
        (3, "data", field.TYPE_BYTES, field.LABEL_REQUIRED),
        (4, "tags", field.TYPE_BYTES, field.LABEL_REPEATED),
    ):
        record.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("kinesis_ds.AggregatedRecord")
    )


AggregatedRecord = _message_class()
