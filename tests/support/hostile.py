"""Bad input for decoders: any JSON in any place, and damaged bytes; and other ways to read them.

JSON is drawn as text, so that it can contain what no Python value can: repeated members, half a
surrogate pair, bytes that are not UTF-8.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from kinesis_ds.errors import InternalError, KinesisConnectorError
from tests.support.examples import times

# Faults are rare among what is drawn, and an example costs a millisecond.
FUZZ = times(3)

# --- JSON text ----------------------------------------------------------------------------------


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def array(items: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def members(pairs: Sequence[tuple[str, bytes]]) -> bytes:
    """Return an object; a name may come twice."""
    return b"{" + b",".join(dumped(name) + b":" + value for name, value in pairs) + b"}"


def _nested(depth: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from([b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])


ODD = st.sampled_from(
    [
        *(b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"1.0", b"1.5", b"01", b"1e5"),
        *(b"1e308", b"-1e308", b"1e999", b"NaN", b"Infinity", b"-Infinity"),
        *(b"9007199254740993", b"9223372036854775808", b"9" * 30, b"9" * 400),
        *(b'""', b'"0"', b'"1"', b'" 1"', b'"1_0"', b'"-1"', b'"9e9"', '"٣"'.encode(), b"''"),
        *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\xed\xa0\x80"', b'"\xff"'),
        *(
            b'"\\u0000"',
            b'"\x00"',
            b"\x00",
            b"\xef\xbb\xbf1",
            b'"\\x"',
            b'"',
            b"",
            b"[",
            b"}",
            b"[,]",
        ),
        *(b"[]", b"{}", b"[[]]", b"[{}]", b"[null]", b'[""]', b'{"":{}}', b'{"a":1,"a":2}'),
        *(b'"' + b"x" * 3000 + b'"', b'"' + b"9" * 129 + b'"', b'"' + b"9" * 5000 + b'"'),
    ]
)
# The parsers stop at 1024 levels, and Python itself somewhat below 1000.
DEEP = st.sampled_from([10, 500, 900, 970, 985, 995, 1005, 1015, 1021, 1024, 3000]).flatmap(_nested)
SCALARS = st.one_of(
    ODD,
    st.integers(-(2**63), 2**64 - 1).map(dumped),
    st.floats(allow_nan=False, allow_infinity=False).map(dumped),
    st.text(max_size=12).map(dumped),
)
ANYTHING = st.one_of(
    SCALARS,
    DEEP,
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3).map(array)
            | st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(members)
        ),
        max_leaves=6,
    ),
)


@st.composite
def object_of(draw: st.DrawFn, /, **places: st.SearchStrategy[bytes]) -> bytes:
    """Draw an object with these members, of which at most one is wrong.

    The wrong one is left out, given twice, or has any value at all.
    """
    wrong = draw(st.integers(-len(places), len(places) - 1))
    pairs = []
    for i, (name, good) in enumerate(places.items()):
        how = draw(st.sampled_from(["missing", "other", "other", "twice"])) if i == wrong else ""
        if how == "twice":
            pairs.append((name, draw(good | ANYTHING)))
        if how != "missing":
            pairs.append((name, draw(ANYTHING if how == "other" else good)))
    return members(pairs)


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text as Python's own parser reads it, however deep it is.

    Raises:
        ValueError: The text is not JSON.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 8000)
    try:
        return json.loads(text.decode())
    finally:
        sys.setrecursionlimit(before)


# --- records ------------------------------------------------------------------------------------

Row = tuple[str | None, bytes, str, int]
"""Partition key, data, sequence number, arrival in microseconds."""

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def base64_of(data: bytes) -> bytes:
    return b'"' + base64.b64encode(data) + b'"'


def rows_of(item: Any) -> list[Row]:
    """Return the rows of one record of an answer.

    Raises:
        AssertionError: The value is not a record, so it should not have given a row.
    """
    key, data, number = item.get("PartitionKey"), item["Data"], item["SequenceNumber"]
    arrived = item["ApproximateArrivalTimestamp"]
    assert key is None or isinstance(key, str)
    assert isinstance(data, str)
    assert _BASE64.fullmatch(data)
    assert re.fullmatch("[0-9]{1,129}", number, re.ASCII)
    assert type(arrived) in (int, float)
    return [(key, base64.b64decode(data, validate=True), number, round(arrived * 1000) * 1000)]


def rows_in(batch: Any) -> list[Row]:
    """Return the rows of a batch of ``RECORD_SCHEMA``."""
    columns = [batch.column(i).to_pylist() for i in range(3)]
    times = [value.value for value in batch.column(3)]
    return list(zip(*columns, times, strict=True))


SHORT = st.binary(max_size=12)


def record_texts(
    number: st.SearchStrategy[bytes], data: st.SearchStrategy[bytes] = SHORT
) -> st.SearchStrategy[bytes]:
    return object_of(
        SequenceNumber=number,
        Data=data.map(base64_of),
        ApproximateArrivalTimestamp=st.integers(0, 2 * 10**12).map(lambda ms: dumped(ms / 1000)),
        PartitionKey=st.text(max_size=8).map(dumped),
    )


@st.composite
def records_text(draw: st.DrawFn, last: int = 60, data: st.SearchStrategy[bytes] = SHORT) -> bytes:
    """Draw a list of records whose numbers rise; most of the records are correct."""
    numbers = sorted(draw(st.lists(st.integers(0, last), max_size=5)))
    return array([draw(record_texts(st.just(b'"%d"' % n), data)) for n in numbers])


EVENT_TEXTS = object_of(
    Records=records_text(),
    ContinuationSequenceNumber=st.integers(0, 99).map(lambda n: b'"%d"' % n),
    MillisBehindLatest=st.integers(0, 10**9).map(dumped),
    ChildShards=st.sampled_from([b"null", b"[]", b'[{"ShardId":"a","ParentShards":[]}]']),
)

# --- errors -------------------------------------------------------------------------------------

_TOO_LONG = 1500  # characters of an error's text, however long what it is about


def assert_ours(exc: KinesisConnectorError) -> None:
    """Check that a user can understand the error, and that it does not ask for a bug report."""
    assert not isinstance(exc, InternalError), exc
    assert len(str(exc)) < _TOO_LONG


# --- bytes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    start: int
    stop: int
    other: int
    junk: bytes


def _flip(raw: bytes, p: _Piece) -> bytes:
    flipped = bytearray(raw)
    for at in {p.start, p.stop - 1, p.other}:
        flipped[at % len(raw)] ^= 1 << (p.other % 8)
    return bytes(flipped)


_DAMAGES: list[Callable[[bytes, _Piece], bytes]] = [
    _flip,
    lambda raw, p: raw[: p.start],
    lambda raw, p: raw[p.start :],
    lambda raw, p: raw[: p.start] + raw[p.stop :],
    lambda raw, p: raw[: p.start] + p.junk + raw[p.start :],
    lambda raw, p: raw[: p.start] + p.junk + raw[p.start + len(p.junk) :],
    lambda raw, p: raw[: p.other] + raw[p.start : p.stop] + raw[p.other :],
    lambda raw, p: raw[p.stop :] + raw[p.start : p.stop] + raw[: p.start],
]


@st.composite
def damaged(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes with one to three damages.

    Bits are flipped; pieces are lost, repeated, moved or inserted.
    """
    raw = draw(source)
    for _ in range(draw(st.integers(1, 3))):
        if raw:
            start, stop = sorted(draw(st.tuples(*[st.integers(0, len(raw))] * 2)))
            piece = _Piece(start, stop, draw(st.integers(0, len(raw))), draw(st.binary(max_size=9)))
            raw = draw(st.sampled_from(_DAMAGES))(raw, piece)
    return raw


@st.composite
def cut(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    """Draw the same bytes in pieces of any size."""
    at = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[a:b] for a, b in zip([0, *at], [*at, len(raw)], strict=True)]
