"""Malformed events end in a ProtocolError, never in another error or in a wrong record.

The expected rows of a record of the stream come from ``rows_of``: one row, or as many as were
aggregated into it.
"""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import ProtocolError
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.wire.decode import decode_event, decode_records
from tests.support.builders import record
from tests.support.hostile import (
    ANYTHING,
    EVENT_TEXTS,
    FUZZ,
    Row,
    array,
    assert_ours,
    damaged,
    members,
    parsed,
    rows_in,
    rows_of,
)

POSITIONS = st.one_of(
    st.just(TRIM_HORIZON),
    st.integers(0, 70).map(lambda n: After(str(n))),
    st.integers(0, 2 * 10**12).map(AtTimestamp),
)


def assert_true(payload: bytes, position: Position) -> None:
    """Decode an event, and compare the result with that of another reader."""
    try:
        decoded = decode_event(payload, position)
    except ProtocolError as exc:
        assert_ours(exc)
        return
    raw = parsed(payload)
    items = raw["Records"]
    assert decoded.received == len(items)
    assert decoded.continuation == raw.get("ContinuationSequenceNumber")
    assert decoded.millis_behind == (raw.get("MillisBehindLatest") or 0)
    assert decoded.has_children == (raw.get("ChildShards") not in (None, []))
    rows = rows_in(decoded.records.batch) if decoded.records else []
    dropped, kept = items[: len(items) - len(rows)], items[len(items) - len(rows) :]
    assert rows == [row for item in kept for row in rows_of(item)]
    assert_dropped_rightly(dropped, rows, position)


def assert_dropped_rightly(dropped: list[dict[str, Any]], rows: list[Row], at: Position) -> None:
    numbers = [int(row[2]) for row in rows]
    assert all(a <= b for a, b in pairwise(numbers))
    if isinstance(at, After):
        assert all(int(item["SequenceNumber"]) <= at.number for item in dropped)
        assert all(n > at.number for n in numbers)
    elif isinstance(at, AtTimestamp):
        assert all(round(item["ApproximateArrivalTimestamp"] * 1000) < at.ms for item in dropped)
        assert not rows or rows[0][3] >= at.ms * 1000
    else:
        assert not dropped


@FUZZ
@given(EVENT_TEXTS, POSITIONS)
def test_an_event_with_one_wrong_member_anywhere(payload: bytes, position: Position) -> None:
    """Members of wrong types, missing, huge, deep, repeated and broken ones."""
    assert_true(payload, position)


@FUZZ
@given(damaged(EVENT_TEXTS), POSITIONS)
def test_an_event_whose_text_had_an_accident(payload: bytes, position: Position) -> None:
    """The text is cut anywhere or changed anywhere: some of it is still JSON."""
    assert_true(payload, position)


@FUZZ
@given(ANYTHING, POSITIONS)
def test_a_payload_of_any_json(payload: bytes, position: Position) -> None:
    """The event, its records and single records are any JSON."""
    for text in (
        payload,
        members([("Records", payload)]),
        members([("Records", array([payload]))]),
    ):
        assert_true(text, position)


ALPHABETS = st.sampled_from(
    ["+/", "-_", "=", "==", "\n", " ", "\t", "\0", "A", "=A", "ä", "\u2028", "%3D", "\ud800"]
)


@FUZZ
@given(st.binary(max_size=30), ALPHABETS, st.integers(0, 50), st.integers(0, 2))
def test_base64_is_exact_or_refused(data: bytes, odd: str, at: int, width: int) -> None:
    """Nothing is skipped, completed or translated while base64 is decoded."""
    text = base64.b64encode(data).decode()
    odd_text = text[:at] + odd + text[at + width :]
    item = {**record(1), "Data": odd_text}
    try:
        decoded = decode_records([item], TRIM_HORIZON)
    except ProtocolError:
        assert odd_text != text
        return
    assert decoded is not None
    assert rows_in(decoded.batch) == rows_of(item)


@FUZZ
@given(st.binary(min_size=1, max_size=30))
def test_base64_in_the_wrong_alphabet_or_without_padding_is_refused(data: bytes) -> None:
    """Other variants of base64 are refused."""
    right = base64.b64encode(data).decode()
    for other in (base64.urlsafe_b64encode(data).decode(), right.rstrip("="), right + "\n"):
        if other != right:
            with pytest.raises(ProtocolError):
                decode_records([{**record(1), "Data": other}], TRIM_HORIZON)
