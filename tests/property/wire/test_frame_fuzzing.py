"""Malformed frames end in a ProtocolError, and no message comes out that was not sent.

No length in a frame reserves memory, and no size of chunks makes the parser slower than linear.
"""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import ProtocolError
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import frame, text_header, typed_header
from kinesis_ds.testing.frames import initial_message as initial_frame
from kinesis_ds.wire import event_stream as frames_module
from kinesis_ds.wire.event_stream import Message, MessageParser
from tests.support.builders import event_frame, record
from tests.support.hostile import FUZZ, cut, damaged

FRAMES = st.one_of(
    st.builds(frame, st.binary(max_size=40)),
    st.just(initial_frame()),
    st.just(exception_frame("InternalFailureException", "oops")),
    st.integers(1, 10**56).map(lambda n: event_frame([record(n)], n)),
)
STREAMS = st.lists(FRAMES, min_size=1, max_size=5)
LENGTHS = st.one_of(
    st.sampled_from([0, 1, 11, 12, 15, 16, 17, 2**27, 2**27 + 1, 2**31 - 1, 2**31, 2**32 - 1]),
    st.integers(0, 2**32 - 1),
)


def checked(chunks: list[bytes]) -> list[Message]:
    """Return the messages that are complete and pass their check, until the stream is refused."""
    parser = MessageParser(1 << 16)
    found: list[Message] = []
    fed = 0
    try:
        for chunk in chunks:
            parser.feed(chunk)
            fed += len(chunk)
            while (message := parser.take()) is not None:
                message.check()
                message.headers()
                found.append(message)
            assert parser.pending <= fed
    except ProtocolError:
        pass
    return found


@FUZZ
@given(st.data())
def test_whatever_happens_to_a_stream_what_passes_was_sent(data: st.DataObject) -> None:
    """Bits are flipped, pieces lost, moved, repeated or inserted; chunks have any size."""
    sent = data.draw(STREAMS)
    stream = data.draw(damaged(st.just(b"".join(sent))))

    for message in checked(data.draw(cut(stream))):
        assert message.raw in sent


@FUZZ
@given(st.data())
def test_in_front_of_the_first_accident_nothing_is_lost(data: st.DataObject) -> None:
    """All messages before the first damage come out, in order."""
    sent = data.draw(STREAMS)
    stream = b"".join(sent) + data.draw(damaged(FRAMES))

    assert [m.raw for m in checked(data.draw(cut(stream)))][: len(sent)] == sent


@FUZZ
@given(LENGTHS, LENGTHS, st.binary(max_size=20))
def test_a_length_alone_takes_no_memory(total: int, headers: int, rest: bytes) -> None:
    """A prelude with a right checksum reserves no memory, whatever its length says."""
    lengths = struct.pack(">II", total, headers)
    parser = MessageParser()
    tracemalloc.start()
    try:
        parser.feed(lengths + struct.pack(">I", zlib.crc32(lengths)) + rest)
        try:
            assert parser.next_size() == total
            message = parser.take()
            assert (message is not None) == (total <= 12 + len(rest))
        except ProtocolError:
            assert total < 16 + headers or total > 1 << 27
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def headers_of(block: bytes) -> dict[str, str] | None:
    """Read the text headers of a block in another way; None where the block is malformed."""
    sizes = dict(zip(range(10), [0, 0, 1, 2, 4, 8, None, None, 8, 16], strict=True))
    found = {}
    while block:
        name, block = block[1 : 1 + block[0]], block[1 + block[0] :]
        if not block or block[0] not in sizes:
            return None
        kind, block = block[0], block[1:]
        size = sizes[kind]
        if size is None:
            if len(block) < 2:
                return None
            size, block = int.from_bytes(block[:2], "big"), block[2:]
        if len(block) < size:
            return None
        value, block = block[:size], block[size:]
        try:
            text = name.decode()
            if kind == 7:
                found[text] = value.decode()
        except UnicodeDecodeError:
            return None
    return found


HEADERS = st.one_of(
    st.builds(text_header, st.text(max_size=5), st.text(max_size=9)),
    st.builds(typed_header, st.text(max_size=5), st.integers(0, 255), st.binary(max_size=18)),
    st.builds(
        lambda name, length, value: typed_header(name, 7, struct.pack(">H", length) + value),
        st.text(max_size=5),
        st.integers(0, 12) | st.sampled_from([0x7FFF, 0xFFFF]),
        st.binary(max_size=9),
    ),
    st.binary(max_size=9),
)
BLOCKS = st.lists(HEADERS, max_size=4).map(b"".join)


@FUZZ
@given(BLOCKS | damaged(BLOCKS), st.binary(max_size=3) | st.binary(min_size=20, max_size=40))
def test_headers_are_read_as_they_are_or_refused(block: bytes, payload: bytes) -> None:
    """Headers are never read past their block, whatever lengths it gives. Checksums are right."""
    parser = MessageParser()
    parser.feed(frame(payload, block))
    message = parser.take()
    assert message is not None
    message.check()
    expected = headers_of(block)

    if expected is None:
        with pytest.raises(ProtocolError):
            message.headers()
    else:
        assert message.headers() == expected
    assert bytes(message.payload) == payload


class CountedChecksums:
    """Replaces the CRC of the codecs, and counts the bytes that it is computed over."""

    def __init__(self) -> None:
        self.bytes = self.calls = 0

    def crc32(self, data: bytes) -> int:
        self.calls += 1
        self.bytes += len(data)
        return zlib.crc32(data)


@pytest.mark.parametrize("payload", [20, 150_000], ids=["many messages", "one message"])
def test_work_grows_with_the_bytes_however_small_the_chunks(
    payload: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte at a time: twice the bytes cost twice the work, and nothing is kept."""
    work = []
    for size in (75_000, 150_000):
        counted = CountedChecksums()
        monkeypatch.setattr(frames_module, "crc32", counted.crc32)
        stream = frame(b"x" * min(payload, size)) * max(1, size // (payload + 16))
        parser = MessageParser()
        for at in range(len(stream)):
            parser.feed(stream[at : at + 1])
            while parser.next_size() is not None and parser.take() is not None:
                pass
        assert parser.pending == 0
        assert counted.bytes <= 16 * len(stream) + 1000
        work.append(counted.calls)
    assert work[1] <= 2.1 * work[0]
