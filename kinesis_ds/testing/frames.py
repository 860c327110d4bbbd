"""Encode event-stream messages with their checksums, as the service does. Pure.

``total length | header length | CRC of those | headers | payload | CRC of all before``
(https://smithy.io/2.0/aws/amazon-eventstream.html).
"""

from __future__ import annotations

import struct
import zlib

import orjson

_TEXT = 7


def frame(payload: bytes, headers: bytes = b"") -> bytes:
    """Return a message of encoded headers and a payload, with both checksums."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    crc = zlib.crc32(payload, zlib.crc32(headers, zlib.crc32(prelude)))
    return b"".join((prelude, headers, payload, struct.pack(">I", crc)))


def text_header(name: str, value: str) -> bytes:
    """Return an encoded header with a text value."""
    return typed_header(name, _TEXT, struct.pack(">H", len(value.encode())) + value.encode())


def typed_header(name: str, kind: int, value: bytes) -> bytes:
    """Return an encoded header of any type; ``value`` includes its length if the type has one."""
    return bytes([len(name.encode())]) + name.encode() + bytes([kind]) + value


def message(payload: bytes, **headers: str) -> bytes:
    """Return a message whose headers are texts; ``message_type`` becomes ``:message-type``."""
    return frame(
        payload,
        b"".join(
            text_header(f":{name.replace('_', '-')}", value) for name, value in headers.items()
        ),
    )


_EVENT_HEADERS = b"".join(
    text_header(name, value)
    for name, value in (
        (":event-type", "SubscribeToShardEvent"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    )
)


def event_message(payload: bytes) -> bytes:
    """Return the message of a SubscribeToShardEvent."""
    return frame(payload, _EVENT_HEADERS)


def initial_message() -> bytes:
    """Return the empty message that begins every subscription."""
    return message(
        b"{}",
        event_type="initial-response",
        content_type="application/json",
        message_type="event",
    )


def exception_message(code: str, text: str = "") -> bytes:
    """Return the message of an exception that the service's model knows."""
    return message(
        orjson.dumps({"message": text}),
        exception_type=code,
        content_type="application/json",
        message_type="exception",
    )
