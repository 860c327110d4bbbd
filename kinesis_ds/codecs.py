"""JSON, base64 and CRC-32 from fast packages where they are installed, else the standard library.

pip installs orjson, pybase64 and zlib-ng with the connector. A cluster that has no wheels of them
works without them, more slowly; ``python -m benchmarks.decode`` measures the difference.
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
    """Return the value of a JSON text.

    Raises:
        JSONDecodeError: The text is not JSON, or is nested too deeply for Python.
    """
    try:
        as_text = text if isinstance(text, str) else bytes(text).decode()
        return json.loads(as_text, parse_constant=_no_number)
    except (UnicodeDecodeError, RecursionError) as exc:
        raise JSONDecodeError(str(exc), "", 0) from None


def plain_dumps(value: Any, /) -> bytes:
    """Return a value as JSON without spaces, in UTF-8. Dataclasses become objects."""
    return json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, default=dataclasses.asdict
    ).encode()


def plain_b64decode(text: Any, altchars: None = None, validate: bool = True) -> bytes:
    """Decode base64, given as ``str`` or bytes.

    Raises:
        binascii.Error: The text is not base64. The error is a ``ValueError``.
    """
    if len(text) % 4:
        raise binascii.Error("a length that is no multiple of 4")  # base64 accepts it
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
else:  # its JSONDecodeError is a subclass of the standard library's
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
