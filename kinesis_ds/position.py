"""Where a reader stands in one shard. Pure values.

A position names the gap *before* the next record to read. Sequence numbers are kept as the strings
the service gave (some servers pad them) and compared as integers, never by equality with a record:
they have gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
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
class After:
    """Behind the record with this sequence number, and before every later one."""

    sequence_number: str

    @property
    def number(self) -> int:
        return int(self.sequence_number)

    def __str__(self) -> str:
        return f"AFTER:{self.sequence_number}"


@dataclass(frozen=True)
class ShardEnd:
    """Behind the last record of a closed shard."""

    def __str__(self) -> str:
        return "SHARD_END"


Position = TrimHorizon | AtTimestamp | After | ShardEnd

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
        if is_number(value):
            if kind == "AFTER":
                return After(value)
            if kind == "AT_TIMESTAMP":
                return AtTimestamp(int(value))
    raise OffsetError(
        f"{shown(text)} is not a shard position.",
        "Expected TRIM_HORIZON, SHARD_END, AT_TIMESTAMP:<ms> or AFTER:<sequence number>.",
    )


def refuses_position(error: KinesisConnectorError, position: Position) -> bool:
    """Whether an error may mean that the service no longer knows a position.

    It says no more than InvalidArgument, which has other causes too; but nothing else means it, and
    a position that names no record is never too old.
    """
    return (
        isinstance(error, InvalidRequestError)
        and error.code == "InvalidArgumentException"
        and isinstance(position, After)
    )


def precedes(left: Position, right: Position) -> bool:
    """Tell whether reading from ``left`` can reach ``right`` by going forward, and is not there
    yet.

    A start that names no record (``TRIM_HORIZON``, ``AT_TIMESTAMP``) comes before every
    ``AFTER`` and before the shard's end; two of them have no order.
    """
    if isinstance(left, ShardEnd):
        return False
    if isinstance(right, ShardEnd):
        return True
    if isinstance(right, After):
        return left.number < right.number if isinstance(left, After) else True
    return False
