"""Write aggregates of the KPL byte by byte, so that malformed ones can be written too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from kinesis_ds.testing.hashing import hash_of

MAGIC = b"\xf3\x89\x9a\xc2"


@dataclass(frozen=True)
class User:
    """A user record."""

    key: str
    data: bytes
    hash_key: str | None = None
    tags: bytes = b""

    @property
    def hash(self) -> int:
        """Return the hash key that decides which shard the user record belongs to."""
        return hash_of(self.key) if self.hash_key is None else int(self.hash_key)


def varint(number: int) -> bytes:
    groups = []
    while number > 127:
        groups.append(128 | number & 127)
        number >>= 7
    return bytes([*groups, number])


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def tag_field(key: bytes, value: bytes) -> bytes:
    """Return the field of a tag, which is a part of the field of a user record."""
    return bytes_field(4, bytes_field(1, key) + bytes_field(2, value))


def user_field(
    key: int | None, data: bytes | None, hash_key: int | None = None, tags: bytes = b""
) -> bytes:
    """Return the field of a user record, without the parts that are None."""
    body = b"" if key is None else number_field(1, key)
    body += b"" if hash_key is None else number_field(2, hash_key)
    return bytes_field(3, body + (b"" if data is None else bytes_field(3, data)) + tags)


def sealed(message: bytes) -> bytes:
    """Return a message with the mark before it and its checksum after it."""
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def message_of(users: Iterable[User]) -> bytes:
    """Return the message for user records. Each key is stored once, in order of first use."""
    keys: dict[str, int] = {}
    hash_keys: dict[str, int] = {}
    records = b""
    for user in users:
        key = keys.setdefault(user.key, len(keys))
        hash_key = None
        if user.hash_key is not None:
            hash_key = hash_keys.setdefault(user.hash_key, len(hash_keys))
        records += user_field(key, user.data, hash_key, user.tags)
    tables = b"".join(bytes_field(1, key.encode()) for key in keys)
    return tables + b"".join(bytes_field(2, key.encode()) for key in hash_keys) + records


def aggregate(*users: User) -> bytes:
    """Return the data of a Kinesis record that holds these user records."""
    return sealed(message_of(users))
