"""JSON, base64 and CRC-32: from packages that are fast at it where they are installed, else from
the standard library.

pip installs orjson, pybase64 and zlib-ng with the connector. Where a cluster has no wheels of them,
all works without, slower: ``python -m benchmarks.decode`` tells what they are worth.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import zlib
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any, NoReturn


def plain_loads(text: bytes | bytearray | memoryview | str, /) -> Any:
    """The value of a JSON text.

    Raises:
        JSONDecodeError: It is none, or is nested deeper than Python goes.
    """
    try:
        as_text = text if isinstance(text, str) else bytes(text).decode()
        return json.loads(as_text, parse_constant=_no_number)
    except (UnicodeDecodeError, RecursionError) as exc:
        raise JSONDecodeError(str(exc), "", 0) from None


def plain_dumps(value: Any, /) -> bytes:
    """JSON without spaces, as UTF-8; dataclasses as what they hold."""
    return json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, default=dataclasses.asdict
    ).encode()


def plain_b64decode(text: Any, altchars: None = None, validate: bool = True) -> bytes:
    """What is written in base64; ``text`` is a ``str`` or bytes.

    Raises:
        binascii.Error: It is none. That is a ValueError.
    """
    if len(text) % 4:
        raise binascii.Error("a length that is no multiple of 4")  # the standard library forgives
    return base64.b64decode(text, altchars, validate)


def _no_number(name: str) -> NoReturn:
    raise JSONDecodeError(f"{name} is no number", name, 0)


loads: Callable[..., Any] = plain_loads
dumps: Callable[..., bytes] = plain_dumps
b64decode: Callable[..., bytes] = plain_b64decode
b64encode: Callable[..., bytes] = base64.b64encode
crc32: Callable[..., int] = zlib.crc32

try:
    import orjson
except ImportError:
    pass
else:  # its JSONDecodeError is one of the standard library's, too
    loads, dumps = orjson.loads, orjson.dumps

try:
    import pybase64
except ImportError:
    pass
else:
    b64decode, b64encode = pybase64.b64decode, pybase64.b64encode

try:
    from zlib_ng import zlib_ng
except ImportError:
    pass
else:
    crc32 = zlib_ng.crc32

__all__ = ["JSONDecodeError", "b64decode", "b64encode", "crc32", "dumps", "loads"]
