"""Make and read opaque tokens: shard iterators and page tokens. Pure.

A token contains all that it stands for, so the double keeps none. A checksum shows whether a token
is one of the double's.
"""

from __future__ import annotations

import binascii
import zlib
from typing import TYPE_CHECKING, Any

import orjson
import pybase64

from kinesis_ds.testing.errors import ServiceError

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account


def seal(kind: str, fields: dict[str, Any]) -> str:
    """Return a token for some fields; it can be read only as the same ``kind``."""
    body = orjson.dumps([kind, fields])
    return pybase64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def unseal(kind: str, token: str) -> dict[str, Any] | None:
    """Return the fields that :func:`seal` was given; None if the token is not of this kind."""
    try:
        raw = pybase64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) < 5 or zlib.crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
        return None
    found: tuple[str, dict[str, Any]] = orjson.loads(raw[4:])
    return found[1] if found[0] == kind else None


def page_of(account: Account, kind: str, token: str, now: float) -> dict[str, Any]:
    """Return the fields that a page token was made from.

    Raises:
        ServiceError: InvalidArgumentException if it is not a token of this kind, or
            ExpiredNextTokenException.
    """
    fields = unseal(kind, token)
    if fields is None:
        raise ServiceError("InvalidArgumentException", "NextToken is invalid.")
    if now - fields["issued"] > account.settings.iterator_life_s:
        raise ServiceError("ExpiredNextTokenException", "NextToken has expired.")
    return fields
