"""Positions: their text form and their order."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import OffsetError
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    may_hold_records,
    parse_position,
    precedes,
    seen_later,
)


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (TRIM_HORIZON, "TRIM_HORIZON"),
        (SHARD_END, "SHARD_END"),
        (AtTimestamp(0), "AT_TIMESTAMP:0"),
        (AtTimestamp(1_795_176_000_123), "AT_TIMESTAMP:1795176000123"),
        (After("0"), "AFTER:0"),
        (After("000042"), "AFTER:000042"),
        (After("9" * 129), "AFTER:" + "9" * 129),
        (After("5", 1_795_176_000_123), "AFTER:5@1795176000123"),
        (At("42"), "AT:42"),
    ],
)
def test_a_position_reads_back_as_it_was_written(position: Position, text: str) -> None:
    """``str`` and ``parse_position`` are each other's inverse, padding of numbers included."""
    assert str(position) == text
    assert parse_position(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "trim_horizon",
        "LATEST",
        "AFTER",
        "AFTER:",
        "AFTER:-1",
        "AFTER:+1",
        "AFTER:1_000",
        "AFTER: 1",
        "AFTER:1 ",
        "AFTER:\u00b2",
        "AFTER:\u0663",
        "AFTER:0x10",
        "AFTER:1:2",
        "AFTER:" + "9" * 5000,
        "AT_TIMESTAMP:",
        "AT_TIMESTAMP:-1",
        "AT_TIMESTAMP:1.5",
        "AT_TIMESTAMP:" + "9" * 5000,
        "SHARD_END:1",
        None,
        1,
        True,
        ["AFTER:1"],
        {},
    ],
)
def test_what_is_no_position_is_refused(text: object) -> None:
    """Anything else is an OffsetError that says what was expected, never a crash later."""
    with pytest.raises(OffsetError, match="Expected TRIM_HORIZON"):
        parse_position(text)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (TRIM_HORIZON, TRIM_HORIZON, False),
        (TRIM_HORIZON, AtTimestamp(1), False),
        (TRIM_HORIZON, After("0"), True),
        (TRIM_HORIZON, SHARD_END, True),
        (AtTimestamp(1), TRIM_HORIZON, False),
        (AtTimestamp(1), AtTimestamp(2), True),
        (AtTimestamp(2), AtTimestamp(1), False),
        (AtTimestamp(1), AtTimestamp(1), False),
        (AtTimestamp(1), After("0"), True),
        (AtTimestamp(1), SHARD_END, True),
        (After("1"), TRIM_HORIZON, False),
        (After("1"), AtTimestamp(1), False),
        (After("1"), After("1"), False),
        (After("1"), After("0001"), False),
        (After("9"), After("10"), True),
        (After("10"), After("9"), False),
        (After("1"), SHARD_END, True),
        (SHARD_END, TRIM_HORIZON, False),
        (SHARD_END, After("1"), False),
        (SHARD_END, SHARD_END, False),
    ],
)
def test_order_of_positions(left: Position, right: Position, *, expected: bool) -> None:
    """Numbers compare as integers; a bare start is before them all, the end behind them all."""
    assert precedes(left, right) is expected


def test_equal_positions_are_equal_values() -> None:
    """Positions are values: equal by content, usable as keys."""
    assert {After("1"), After("1"), AtTimestamp(1), TRIM_HORIZON, SHARD_END} == {
        After("1"),
        AtTimestamp(1),
        TRIM_HORIZON,
        SHARD_END,
    }


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (After("5", 10), After("5", 11), True),
        (After("5"), After("0005", 11), True),
        (After("5", 11), After("5", 11), False),
        (After("5", 11), After("5", 10), False),
        (After("5", 11), After("5"), False),
        (After("5", 10), After("6", 11), False),
        (TRIM_HORIZON, After("5", 11), False),
        (AtTimestamp(1), AtTimestamp(2), False),
    ],
)
def test_seen_for_longer(left: Position, right: Position, *, expected: bool) -> None:
    """The same position, later: nothing new, and younger in a checkpoint (F24)."""
    assert seen_later(left, right) is expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (TRIM_HORIZON, AtTimestamp(5), True),
        (After("9"), AtTimestamp(5), True),
        (AtTimestamp(4), AtTimestamp(5), True),
        (AtTimestamp(5), AtTimestamp(5), False),
        (AtTimestamp(6), AtTimestamp(5), False),
        (SHARD_END, AtTimestamp(5), False),
        (After("1"), After("2"), True),
        (After("2"), After("2", 7), False),
        (AtTimestamp(6), SHARD_END, True),
    ],
)
def test_ranges_that_may_hold_records(start: Position, end: Position, *, expected: bool) -> None:
    """A range may end at a time; what lies before it, the records tell."""
    assert may_hold_records(start, end) is expected
