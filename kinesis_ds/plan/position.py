"""Positions: where a reader stands in one shard. Pure values.

A position names the gap *before* the next record to read. Sequence numbers are kept as the strings
that the service gave (some servers pad them) and compared as integers. They have gaps, so a
position is never compared for equality with a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

from kinesis_ds.errors import InvalidRequestError, KinesisConnectorError, OffsetError, shown


@dataclass(frozen=True)
class TrimHorizon:
    """Before the oldest record that the shard still holds."""

    def __str__(self) -> str:
        return "TRIM_HORIZON"


@dataclass(frozen=True)
class AtTimestamp:
    """Before the first record that arrived at a time or later.

    Attributes:
        ms: The time, in milliseconds since the epoch.
    """

    ms: int

    def __str__(self) -> str:
        return f"AT_TIMESTAMP:{self.ms}"


@dataclass(frozen=True)
class At:
    """Before the record with this sequence number. Only a user's start position is one of these.

    Attributes:
        sequence_number: As the user gave it: decimal digits.
    """

    sequence_number: str

    @property
    def number(self) -> int:
        """The highest sequence number that lies before this position."""
        return int(self.sequence_number) - 1

    def __str__(self) -> str:
        return f"AT:{self.sequence_number}"


@dataclass(frozen=True)
class After:
    """Behind the record with this sequence number, and before every later one.

    Attributes:
        sequence_number: As the service gave it: decimal digits.
        seen_ms: The latest time at which this was known to be the shard's last record, in
            milliseconds since the epoch: the arrival of the record, or the time of a later event
            without records. None in offsets of version 1. Positions are equal whatever it is; it
            shows whether later records may have expired, which sequence numbers do not.
    """

    sequence_number: str
    seen_ms: int | None = field(default=None, compare=False)

    @property
    def number(self) -> int:
        """The highest sequence number that lies before this position."""
        return int(self.sequence_number)

    def __str__(self) -> str:
        seen = f"@{self.seen_ms}" if self.seen_ms is not None else ""
        return f"AFTER:{self.sequence_number}{seen}"


@dataclass(frozen=True)
class ShardEnd:
    """Behind the last record of a closed shard."""

    def __str__(self) -> str:
        return "SHARD_END"


Position = TrimHorizon | AtTimestamp | At | After | ShardEnd

# The service's own limit for a sequence number. Python refuses to read very long integers.
MAX_DIGITS = 129

TRIM_HORIZON = TrimHorizon()
SHARD_END = ShardEnd()


def is_number(text: object) -> TypeGuard[str]:
    """Return True if ``text`` is a sequence number: at most 129 ASCII digits."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def parse_position(text: object) -> Position:
    """Read a position as ``str(position)`` wrote it.

    Raises:
        OffsetError: The text is not a position.
    """
    if text == "TRIM_HORIZON":
        return TRIM_HORIZON
    if text == "SHARD_END":
        return SHARD_END
    if isinstance(text, str):
        kind, _, value = text.partition(":")
        if kind == "AFTER":
            number, at, seen = value.partition("@")
            if is_number(number) and (is_number(seen) if at else not seen):
                return After(number, int(seen) if at else None)
        if is_number(value):
            if kind == "AT":
                return At(value)
            if kind == "AT_TIMESTAMP":
                return AtTimestamp(int(value))
    raise OffsetError(
        f"{shown(text)} is not a shard position.",
        "Expected TRIM_HORIZON, SHARD_END, AT_TIMESTAMP:<ms>, AT:<sequence number> or "
        "AFTER:<sequence number>[@<ms>].",
    )


def refuses_position(error: KinesisConnectorError, position: Position) -> bool:
    """Return True if an error may mean that the service no longer knows a position.

    The service says InvalidArgument then, which has other causes too. A position that names no
    record is never too old.
    """
    return (
        isinstance(error, InvalidRequestError)
        and error.code == "InvalidArgumentException"
        and isinstance(position, (At, After))
    )


def precedes(left: Position, right: Position) -> bool:
    """Return True if ``right`` lies ahead of ``left``.

    A start that names no record (``TRIM_HORIZON``, ``AT_TIMESTAMP``) comes before every
    ``AFTER`` and before the shard's end. Of two times the earlier comes first.
    """
    if isinstance(left, ShardEnd):
        return False
    if isinstance(right, ShardEnd):
        return True
    if isinstance(right, (At, After)):
        return left.number < right.number if isinstance(left, (At, After)) else True
    return isinstance(left, AtTimestamp) and isinstance(right, AtTimestamp) and left.ms < right.ms


def seen_later(left: Position, right: Position) -> bool:
    """Return True if ``right`` is the position ``left``, seen at a later time (``seen_ms``)."""
    return (
        isinstance(left, After)
        and isinstance(right, After)
        and left.number == right.number
        and right.seen_ms is not None
        and (left.seen_ms is None or left.seen_ms < right.seen_ms)
    )


def may_hold_records(start: Position, end: Position) -> bool:
    """Return True if ``(start, end]`` is a range that goes forward.

    These are the ranges that :func:`precedes` orders, and those that end at a time: before the
    first record that arrived then or later. Only the records show whether a sequence number lies
    before a time, so such a range may turn out empty.
    """
    if isinstance(end, AtTimestamp) and not isinstance(start, (AtTimestamp, ShardEnd)):
        return True
    return precedes(start, end)
