"""Framing: a stream of bytes becomes messages, whatever the sizes of its chunks."""

from __future__ import annotations

import struct
import zlib

import pytest

from kinesis_ds.errors import ProtocolError
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import frame, text_header, typed_header
from kinesis_ds.testing.frames import initial_message as initial_frame
from kinesis_ds.wire.event_stream import Message, MessageParser
from tests.support.builders import event_frame, record

STREAM = initial_frame() + event_frame([record(1)], 1) + exception_frame("InternalFailureException")


def parse(data: bytes, step: int | None = None, max_bytes: int = 1 << 20) -> list[Message]:
    parser = MessageParser(max_bytes)
    found = []
    for at in range(0, len(data), step or len(data)):
        parser.feed(data[at : at + (step or len(data))])
        while (message := parser.take()) is not None:
            found.append(message)
    assert parser.pending == len(data) - sum(m.size for m in found)
    return found


def test_messages_come_out_whole_at_every_chunk_size() -> None:
    """All chunk sizes give the same messages."""
    expected = parse(STREAM)

    assert len(expected) == 3
    assert b"".join(m.raw for m in expected) == STREAM
    for step in range(1, len(STREAM) + 1):
        assert parse(STREAM, step) == expected


def test_messages_come_out_whole_for_every_single_cut() -> None:
    """A cut at any byte gives the same messages and loses nothing after it."""
    expected = parse(STREAM)

    for cut in range(len(STREAM) + 1):
        parser = MessageParser()
        found = []
        for chunk in (STREAM[:cut], STREAM[cut:]):
            parser.feed(chunk)
            while (message := parser.take()) is not None:
                found.append(message)
        assert found == expected


def test_the_size_is_known_after_twelve_bytes() -> None:
    """Buffer space can be reserved before the rest of a message is read."""
    data = event_frame([record(1)], 1)
    parser = MessageParser()

    parser.feed(data[:11])
    assert parser.next_size() is None
    parser.feed(data[11:12])
    assert parser.next_size() == len(data)
    assert parser.take() is None
    parser.feed(data[12:] + b"tail")
    assert parser.next_size() == len(data)
    assert parser.take() is not None
    assert parser.pending == 4


def test_headers_and_payload_are_those_that_were_sent() -> None:
    """Text headers are found by name, and the payload follows the headers."""
    (message,) = parse(
        frame(b'{"a":1}', text_header(":message-type", "event") + text_header("ä", "ö" * 300))
    )

    message.check()
    assert message.headers() == {":message-type": "event", "ä": "ö" * 300}
    assert bytes(message.payload) == b'{"a":1}'


def test_a_message_may_be_empty() -> None:
    """A message without headers and payload has sixteen bytes."""
    (message,) = parse(frame(b""))

    message.check()
    assert message.size == 16
    assert message.headers() == {}
    assert bytes(message.payload) == b""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param(0, b"", id="true"),
        pytest.param(1, b"", id="false"),
        pytest.param(2, b"\x07", id="byte"),
        pytest.param(3, b"\x00\x07", id="short"),
        pytest.param(4, b"\x00" * 4, id="integer"),
        pytest.param(5, b"\x00" * 8, id="long"),
        pytest.param(6, b"\x00\x03abc", id="bytes"),
        pytest.param(8, b"\x00" * 8, id="timestamp"),
        pytest.param(9, b"\x00" * 16, id="uuid"),
    ],
)
def test_headers_of_other_types_are_passed_over(kind: int, value: bytes) -> None:
    """Each documented type is skipped by its own length; the texts around it are read."""
    headers = text_header("a", "1") + typed_header("x", kind, value) + text_header("b", "2")
    (message,) = parse(frame(b"payload", headers))

    assert message.headers() == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"\x05ab", id="name cut"),
        pytest.param(b"\x02ab", id="no type"),
        pytest.param(b"\x01a\x07", id="no length"),
        pytest.param(b"\x01a\x07\x00", id="half a length"),
        pytest.param(b"\x01a\x07\xff\xffx", id="text beyond the headers"),
        pytest.param(b"\x01a\x05\x00", id="number beyond the headers"),
        pytest.param(b"\x01a\x0a\x00\x01x", id="type ten"),
        pytest.param(b"\x01a\xff", id="type 255"),
        pytest.param(b"\x01\xff\x00", id="name not utf-8"),
        pytest.param(b"\x01a\x07\x00\x01\xff", id="text not utf-8"),
        pytest.param(b"\x00", id="empty name and no type"),
    ],
)
@pytest.mark.parametrize("payload", [b"", b"{}" * 40], ids=["no payload", "payload"])
def test_malformed_headers_are_a_protocol_error(headers: bytes, payload: bytes) -> None:
    """Headers never reach into the payload or past the message, and have only known types."""
    (message,) = parse(frame(payload, headers))

    message.check()
    with pytest.raises(ProtocolError, match="headers"):
        message.headers()


def test_a_wrong_checksum_of_the_message_is_seen_by_check() -> None:
    """A flipped bit anywhere after the prelude is an error that names the size."""
    good = event_frame([record(1)], 1)

    for at in range(12, len(good)):
        (message,) = parse(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ProtocolError, match=f"event of {len(good)} bytes arrived damaged"):
            message.check()


def test_a_wrong_checksum_of_the_prelude_ends_the_stream() -> None:
    """The parser does not wait for a length that it cannot trust."""
    good = initial_frame()

    for at in range(12):
        parser = MessageParser()
        parser.feed(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ProtocolError, match="not an event stream"):
            parser.take()


def prelude(total: int, headers: int) -> bytes:
    lengths = struct.pack(">II", total, headers)
    return lengths + struct.pack(">I", zlib.crc32(lengths))


@pytest.mark.parametrize(
    ("total", "headers", "said"),
    [
        (0, 0, "shorter than its own headers"),
        (15, 0, "shorter than its own headers"),
        (16, 1, "shorter than its own headers"),
        (100, 85, "shorter than its own headers"),
        (0xFFFFFFFF, 0, "over the connector's limit of 1000 bytes"),
        (1001, 0, "over the connector's limit of 1000 bytes"),
    ],
)
def test_impossible_lengths_are_refused_at_once(total: int, headers: int, said: str) -> None:
    """Neither a message shorter than its headers nor one over the limit is waited for."""
    parser = MessageParser(max_bytes=1000)
    parser.feed(prelude(total, headers))

    with pytest.raises(ProtocolError, match=said):
        parser.next_size()


def test_a_message_of_exactly_the_limit_passes() -> None:
    """The limit itself is allowed."""
    data = frame(b"x" * 984)

    assert len(data) == 1000
    assert len(parse(data, max_bytes=1000)) == 1


@pytest.mark.parametrize("body", [b'{"__type":"SomethingElse"}', b"<html><body>no", b"\x00" * 64])
def test_a_body_that_is_no_event_stream_is_told_so(body: bytes) -> None:
    """An endpoint that answers 200 with something else gets an error at once (F47)."""
    parser = MessageParser()
    parser.feed(body)

    with pytest.raises(ProtocolError, match="not an event stream"):
        parser.next_size()
