"""The aggregate format of the Kinesis Producer Library (KPL), which sink and source share. Pure.

An aggregate is a Kinesis record that holds many *user records*. Its data are four bytes that mark
it, a protocol buffers message, and the MD5 of that message. The format is documented in
``aggregation-format.md`` of the KPL.

The message is parsed by the protocol buffers runtime. Its description is our own, in a pool of our
own, so that it cannot collide with anything else in the process, such as Spark Connect.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
# An aggregate is this much longer than its message.
FRAME_BYTES = len(MAGIC) + DIGEST_BYTES

# The first byte of a field holds its number and wire type. Fields 1 and 2 of an aggregate are the
# tables of partition keys and of explicit hash keys, field 3 are its user records. In a user
# record, field 3 is its data and field 4 are its tags.
KEY_FIELD, HASH_KEY_FIELD, RECORD_FIELD, TAG_FIELD = b"\x0a", b"\x12", b"\x1a", b"\x22"


def md5_digest(data: bytes) -> bytes:
    """Return the MD5 of some bytes: the checksum of a message, the hash key of a partition key."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def md5_hash_key(partition_key: str) -> int:
    """Return the hash key that Kinesis computes from a partition key.

    It decides which shard takes a record that has no explicit hash key.
    """
    return int.from_bytes(md5_digest(partition_key.encode()), "big")


@lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """Return a number as protocol buffers write it: seven bits a byte, low bits first."""
    groups = []
    while number > 127:
        groups.append(128 | number & 127)
        number >>= 7
    return bytes([*groups, number])


def _message_class() -> Any:
    """Build the class of the message from its description.

    Keys are described as bytes, not as text: whether they are UTF-8 is checked by us, and their
    hash is the hash of the bytes. Tags are described as bytes too, although they are messages: a
    record is not refused because of what other producers write into its tags.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="kinesis_ds/aggregate.proto", package="kinesis_ds", syntax="proto2"
    )
    aggregate = file.message_type.add(name="AggregatedRecord")
    record = file.message_type.add(name="Record")
    for of, number, name, kind, label in (
        (aggregate, 1, "partition_key_table", field.TYPE_BYTES, field.LABEL_REPEATED),
        (aggregate, 2, "explicit_hash_key_table", field.TYPE_BYTES, field.LABEL_REPEATED),
        (aggregate, 3, "records", field.TYPE_MESSAGE, field.LABEL_REPEATED),
        (record, 1, "partition_key_index", field.TYPE_UINT64, field.LABEL_REQUIRED),
        (record, 2, "explicit_hash_key_index", field.TYPE_UINT64, field.LABEL_OPTIONAL),
        (record, 3, "data", field.TYPE_BYTES, field.LABEL_REQUIRED),
        (record, 4, "tags", field.TYPE_BYTES, field.LABEL_REPEATED),
    ):
        of.field.add(name=name, number=number, type=kind, label=label)
    aggregate.field[2].type_name = ".kinesis_ds.Record"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("kinesis_ds.AggregatedRecord")
    )


AggregatedRecord = _message_class()
