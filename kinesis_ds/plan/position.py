"""Where a reader stands in one shard. Pure values.

A position names the gap *before* the next record to read. Sequence numbers are kept as the strings
the service gave (some servers pad them) and compared as integers, never by equality with a record:
they have gaps.
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
    """Before the first record that arrived at ``ms`` (milliseconds since the epoch) or later."""

    ms: int

    def __str__(self) -> str:
        return f"AT_TIMESTAMP:{self.ms}"


@dataclass(frozen=True)
class At:
    """Before the record with this sequence number. Only ever where a user told a query to start."""

    sequence_number: str

    @property
    def number(self) -> int:
        """The last number that lies before this position."""
        return int(self.sequence_number) - 1

    def __str__(self) -> str:
        return f"AT:{self.sequence_number}"


@dataclass(frozen=True)
class After:
    """Behind the record with this sequence number, and before every later one.

    Attributes:
        seen_ms: When the shard was known to hold nothing more up to here, in milliseconds since the
            epoch: the arrival of that record, or the moment of an event without one. None in
            offsets of version 1. No part of the position: it tells whether what came later may
            have expired, which sequence numbers alone do not.
    """

    sequence_number: str
    seen_ms: int | None = field(default=None, compare=False)

    @property
    def number(self) -> int:
        """The last number that lies before this position."""
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
    """Whether a text is a sequence number: ASCII digits only, so that every reader agrees on it."""
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
    """Whether an error may mean that the service no longer knows a position.

    It says no more than InvalidArgument, which has other causes too; but nothing else means it, and
    a position that names no record is never too old.
    """
    return (
        isinstance(error, InvalidRequestError)
        and error.code == "InvalidArgumentException"
        and isinstance(position, (At, After))
    )


def precedes(left: Position, right: Position) -> bool:
    """Tell whether reading from ``left`` can reach ``right`` by going forward, and is not there
    yet.

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
    """Whether ``right`` is the same position as ``left``, known to hold nothing more for longer."""
    return (
        isinstance(left, After)
        and isinstance(right, After)
        and left.number == right.number
        and right.seen_ms is not None
        and (left.seen_ms is None or left.seen_ms < right.seen_ms)
    )


def may_hold_records(start: Position, end: Position) -> bool:
    """Whether ``(start, end]`` is a range that goes forward.

    Beside those that :func:`precedes` orders, a range may end at a time: at the first record that
    arrived then or later. Only the records tell whether a sequence number lies before a time.
    """
    if isinstance(end, AtTimestamp) and not isinstance(start, (AtTimestamp, ShardEnd)):
        return True
    return precedes(start, end)
