"""Frames and events with any chunks, any damage and any bytes."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import ProtocolError
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import frame, text_header
from kinesis_ds.testing.frames import initial_message as initial_frame
from kinesis_ds.wire.decode import decode_event, decode_records, sequence_numbers
from kinesis_ds.wire.event_stream import Message, MessageParser
from tests.support.builders import event_frame, record

FRAMES = st.one_of(
    st.builds(
        frame,
        st.binary(max_size=60),
        st.lists(st.builds(text_header, st.text(max_size=9), st.text(max_size=20)), max_size=3).map(
            b"".join
        ),
    ),
    st.just(initial_frame()),
    st.just(exception_frame("InternalFailureException", "oops")),
    st.integers(1, 10**56).map(lambda n: event_frame([record(n)], n)),
)
POSITIONS = st.one_of(
    st.just(TRIM_HORIZON),
    st.integers(0, 100).map(lambda n: After(str(n))),
    st.integers(0, 2 * 10**12).map(AtTimestamp),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "SequenceNumber": JSON | st.from_regex(r"[0-9]{1,60}", fullmatch=True),
        "Data": JSON | st.sampled_from(["", "YQ==", "YQ=", "Y Q==", "####"]),
        "ApproximateArrivalTimestamp": JSON | st.floats(0, 2e9),
        "PartitionKey": JSON,
    },
)


def parse(chunks: list[bytes]) -> tuple[list[Message], int]:
    parser = MessageParser(1 << 16)
    found = []
    for chunk in chunks:
        parser.feed(chunk)
        while (message := parser.take()) is not None:
            found.append(message)
    return found, parser.pending


@given(st.lists(FRAMES, max_size=6), st.binary(max_size=11), st.data())
def test_messages_survive_any_chunking(
    frames: list[bytes], tail: bytes, data: st.DataObject
) -> None:
    """The messages are those that were sent, and the bytes of an unfinished one are pending."""
    stream = b"".join(frames) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    found, pending = parse(chunks)
    assert [m.raw for m in found] == frames
    assert pending == len(tail)
    for message in found:
        message.check()
        message.headers()


@given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
def test_a_corrupted_byte_never_passes_as_another_message(
    frames: list[bytes], data: st.DataObject
) -> None:
    """One byte is changed: a message that still passes its check was sent."""
    stream = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))

    parser = MessageParser(1 << 16)
    parser.feed(bytes(stream))
    sent = list(frames)
    try:
        while (message := parser.take()) is not None:
            message.check()
            assert message.raw == sent.pop(0)
    except ProtocolError:
        return
    assert sent, "the damage was not seen"


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_arbitrary_bytes_are_refused_or_waited_for(chunks: list[bytes]) -> None:
    """Garbage is a ProtocolError or an unfinished message, never anything else."""
    try:
        found, _ = parse(chunks)
        for message in found:
            message.check()
            message.headers()
    except ProtocolError:
        return


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_arbitrary_headers_are_read_or_refused(headers: bytes, payload: bytes) -> None:
    """Headers of any bytes in a correct frame give texts or a ProtocolError."""
    (message,) = parse([frame(payload, headers)])[0]
    message.check()
    try:
        found = message.headers()
    except ProtocolError:
        return
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in found.items())
    assert bytes(message.payload) == payload


@given(st.binary(max_size=200), POSITIONS)
def test_arbitrary_bytes_are_no_event(payload: bytes, position: Any) -> None:
    """Decoding any bytes gives an event or a ProtocolError."""
    try:
        decode_event(payload, position)
    except ProtocolError:
        return


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "Records": JSON | st.lists(MEMBERS, max_size=3),
            "ContinuationSequenceNumber": JSON | st.from_regex(r"[0-9]{1,60}", fullmatch=True),
            "MillisBehindLatest": JSON,
            "ChildShards": JSON,
        },
    ),
    POSITIONS,
)
def test_an_event_with_anything_in_it_is_decoded_or_refused(
    raw: dict[str, Any], position: Any
) -> None:
    """Every member may be missing or have any value."""
    try:
        decoded = decode_event(orjson.dumps(raw), position)
    except ProtocolError:
        return
    assert decoded.continuation is None or int(decoded.continuation) >= 0
    if decoded.records is not None:
        numbers = sequence_numbers(decoded.records.batch)
        assert numbers == sorted(numbers)
        assert (decoded.records.first, decoded.records.last) == (numbers[0], numbers[-1])
        assert all(n.isascii() and n.isdigit() for n in decoded.records.batch.column(2).to_pylist())


@given(
    st.lists(st.integers(0, 10**56), unique=True, max_size=12).map(sorted),
    st.integers(0, 10**56),
    st.lists(st.integers(0, 9), max_size=12),
)
def test_after_keeps_exactly_what_is_greater(
    numbers: list[int], after: int, zeros: list[int]
) -> None:
    """This also holds if some numbers are padded with zeros, as on some servers."""
    padding = [*zeros, *[0] * len(numbers)]
    items = [record("0" * pad + str(n)) for n, pad in zip(numbers, padding, strict=False)]
    decoded = decode_records(items, After(str(after)))

    assert (sequence_numbers(decoded.batch) if decoded else []) == [n for n in numbers if n > after]


@given(
    st.lists(st.integers(0, 2 * 10**12), min_size=1, max_size=12),
    st.integers(0, 2 * 10**12),
)
def test_at_timestamp_keeps_from_the_first_in_time(arrivals: list[int], wanted: int) -> None:
    """Milliseconds are exact although times are sent as floating-point seconds."""
    items = [record(n, arrived_s=ms / 1000) for n, ms in enumerate(arrivals)]
    decoded = decode_records(items, AtTimestamp(wanted))
    first = next((n for n, ms in enumerate(arrivals) if ms >= wanted), None)

    if first is None:
        assert decoded is None
    else:
        assert decoded is not None
        assert sequence_numbers(decoded.batch) == list(range(first, len(arrivals)))
        got = [round(t.timestamp() * 1000) for t in decoded.batch.column(3).to_pylist()]
        assert got == arrivals[first:]
