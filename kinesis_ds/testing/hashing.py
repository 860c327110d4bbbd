"""Hash keys: of partition keys, and how shards share them. Pure."""

from __future__ import annotations

import hashlib

from kinesis_ds.limits import MAX_HASH_KEY


def hash_of(partition_key: str) -> int:
    """MD5 of the UTF-8 key as an integer, as the service maps keys to shards."""
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_starts(shards: int) -> list[int]:
    """First hash keys of equal ranges; the last range takes what the division leaves over."""
    width = (MAX_HASH_KEY + 1) // shards
    return [width * i for i in range(shards)]
