"""Compute the hash keys of partition keys, and divide them among shards. Pure."""

from __future__ import annotations

import hashlib

from kinesis_ds.limits import MAX_HASH_KEY


def hash_of(partition_key: str) -> int:
    """Return a partition key's hash key: the MD5 of its UTF-8 bytes as an integer."""
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_starts(shards: int) -> list[int]:
    """Return the first hash keys of equal ranges; the last range takes the rest of the division."""
    width = (MAX_HASH_KEY + 1) // shards
    return [width * i for i in range(shards)]
