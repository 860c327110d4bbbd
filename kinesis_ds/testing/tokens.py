"""Opaque tokens: shard iterators and page tokens. Pure.

What a token stands for is inside it, so none has to be kept. A checksum tells ours from garbage.
"""

from __future__ import annotations

import binascii
import zlib
from typing import Any

import orjson
import pybase64


def seal(kind: str, fields: dict[str, Any]) -> str:
    """A token; ``kind`` keeps one sort from being taken for another."""
    body = orjson.dumps([kind, fields])
    return pybase64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def unseal(kind: str, token: str) -> dict[str, Any] | None:
    """What :func:`seal` was given, None for anything else."""
    try:
        raw = pybase64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) < 5 or zlib.crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
        return None
    found: tuple[str, dict[str, Any]] = orjson.loads(raw[4:])
    return found[1] if found[0] == kind else None
