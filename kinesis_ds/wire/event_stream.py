"""Cut the bytes of a socket into messages of the AWS event stream format. Pure.

A message is ``total length | header length | CRC of those | headers | payload | CRC of all before``
(https://smithy.io/2.0/aws/amazon-eventstream.html). Its size is known from its first 12 bytes, so
buffer space for it can be reserved before the rest is read.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from kinesis_ds.codecs import crc32
from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRELUDE = struct.Struct(">III")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_OVERHEAD = _PRELUDE.size + 4
# The size in bytes of each type of header value. Bytes and text have a 16-bit length instead.
_FIXED_VALUE = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES = 6
_TEXT = 7
# The headers of an event have about 100 bytes. Longer ones are not cached: a server may send
# anything.
_CACHED_HEADERS_MAX_BYTES = 256


@dataclass(frozen=True)
class Message:
    """One message. Call :meth:`check` before you use its content.

    The decoder does that, on its own thread, not the parser on the network loop.

    Attributes:
        raw: The whole message.
        headers_length: The size of its headers in bytes.
    """

    raw: bytes
    headers_length: int

    @property
    def size(self) -> int:
        return len(self.raw)

    def check(self) -> None:
        """Verify the checksum.

        Raises:
            ProtocolError: The checksum is wrong.
        """
        (expected,) = _U32.unpack_from(self.raw, len(self.raw) - 4)
        if crc32(memoryview(self.raw)[:-4]) != expected:
            raise ProtocolError(
                f"An event of {len(self.raw)} bytes arrived damaged (its checksum is wrong)."
            )

    def headers(self) -> Mapping[str, str]:
        """Return the headers with text values; those of other types are ignored.

        Raises:
            ProtocolError: The headers are malformed.
        """
        start = _PRELUDE.size
        raw = self.raw[start : start + self.headers_length]
        # All events of a shard have the same headers.
        return _cached_headers(raw) if len(raw) <= _CACHED_HEADERS_MAX_BYTES else _headers(raw)

    @property
    def payload(self) -> memoryview:
        return memoryview(self.raw)[_PRELUDE.size + self.headers_length : -4]


def _headers(raw: bytes) -> Mapping[str, str]:
    found: dict[str, str] = {}
    at, end = 0, len(raw)
    try:
        while at < end:
            name_end = at + 1 + raw[at]
            name = raw[at + 1 : name_end].decode()
            kind = raw[name_end]
            at = name_end + 1
            if kind in _FIXED_VALUE:
                at += _FIXED_VALUE[kind]
                continue
            if kind not in (_BYTES, _TEXT):
                raise ProtocolError(f"An event's headers hold a value of unknown type {kind}.")
            (length,) = _U16.unpack_from(raw, at)
            at += 2 + length
            if kind == _TEXT:
                found[name] = raw[at - length : at].decode()
    except (IndexError, struct.error, UnicodeDecodeError) as exc:
        raise ProtocolError("An event's headers are malformed.") from exc
    if at != end:
        raise ProtocolError("An event's headers are longer than they say.")
    return MappingProxyType(found)


_cached_headers = lru_cache(16)(_headers)


class MessageParser:
    """Cuts a stream of bytes into messages.

    Feed it chunks of any size. :meth:`next_size` returns the size of the next message, and
    :meth:`take` returns the message once all its bytes are there.

    Args:
        max_bytes: Refuse messages that are larger.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        # Chunks as they came: a message is joined once, when it is complete. ``_taken`` bytes of
        # the first chunk belong to messages taken before.
        self._chunks: deque[bytes] = deque()
        self._taken = 0
        self._pending = 0

    def feed(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._pending += len(chunk)

    @property
    def pending(self) -> int:
        """The number of bytes fed and not taken yet."""
        return self._pending

    def next_size(self) -> int | None:
        """Return the size of the next message in bytes; None until its first 12 bytes are there.

        Raises:
            ProtocolError: The bytes are not an event stream, or the message is over the limit.
        """
        if self._pending < _PRELUDE.size:
            return None
        prelude = self._prelude()
        total, headers, crc = _PRELUDE.unpack(prelude)
        if crc32(prelude[:8]) != crc:
            raise ProtocolError(
                "What the endpoint sent is not an event stream (wrong checksum at the start of an "
                "event)."
            )
        if total < _OVERHEAD + headers:
            raise ProtocolError(
                f"An event says it is {total} bytes long, shorter than its own headers."
            )
        if total > self._max_bytes:
            raise ProtocolError(
                f"An event of {total} bytes is over the connector's limit of {self._max_bytes} "
                "bytes."
            )
        return int(total)

    def take(self) -> Message | None:
        """Return the next message, or None until all its bytes are there."""
        size = self.next_size()
        if size is None or self._pending < size:
            return None
        raw = self._cut(size)
        (headers_length,) = _U32.unpack_from(raw, 4)
        return Message(raw, headers_length)

    def _prelude(self) -> bytes:
        size = _PRELUDE.size
        front = self._chunks[0][self._taken : self._taken + size]
        for chunk in islice(self._chunks, 1, None):
            if len(front) == size:
                break
            front += chunk[: size - len(front)]
        return front

    def _cut(self, size: int) -> bytes:
        pieces: list[bytes | memoryview] = []
        missing = size
        while missing:
            first = self._chunks[0]
            piece = memoryview(first)[self._taken : self._taken + missing]
            pieces.append(piece)
            missing -= len(piece)
            self._taken += len(piece)
            if self._taken == len(first):
                self._chunks.popleft()
                self._taken = 0
        self._pending -= size
        return b"".join(pieces)
