"""Make and read sequence numbers: 56 digits that contain a time and a shard. Pure.

A number is, from the highest bit down: a leading 1 (bit 185, which makes it 56 digits that begin
with 49), the second in which its shard was created (36 bits), a time in ms (48), a counter (64),
the shard's index (32) and four bits that are always 2. So a child's numbers are above its parents',
a number can stand for a moment at which nothing was written, and the service can tell, as AWS does,
that a number came from another shard or another stream.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_LEADING = 1 << 185
_CREATED_SHIFT = 148
_TIME_SHIFT = 100
_COUNTER_SHIFT = 36
_INDEX_SHIFT = 4
_VERSION = 2


@dataclass(frozen=True)
class Origin:
    """The shard that a sequence number comes from, by the fields that are inside the number."""

    created_s: int
    index: int


def origin(number: int) -> Origin | None:
    """Return the shard that a number contains; None if the double has not made the number."""
    if number >> 185 != 1:
        return None
    return Origin(
        created_s=(number >> _CREATED_SHIFT) & (2**36 - 1),
        index=(number >> _INDEX_SHIFT) & (2**32 - 1),
    )


def time_ms(number: int) -> int:
    """Return the time that a number of the double contains, in milliseconds since the epoch."""
    return (number >> _TIME_SHIFT) & (2**48 - 1)


class SequenceClock:
    """Hands out the numbers of one shard.

    Attributes:
        first: The shard's starting sequence number, below every record.
        last: The highest number handed out, to a record or for a moment.
    """

    def __init__(self, origin: Origin, rng: random.Random) -> None:
        self.first = (
            _LEADING | origin.created_s << _CREATED_SHIFT | origin.index << _INDEX_SHIFT | _VERSION
        )
        self.last = self.first
        self._rng = rng

    def moment(self, now_ms: int) -> int:
        """Return the number that stands for a time, whatever numbers were handed out."""
        return self.first + (now_ms << _TIME_SHIFT)

    def here(self, now_ms: int) -> int:
        """Return a number at or above every record so far, and below every record to come."""
        self.last = max(self.last, self.moment(now_ms))
        return self.last

    def record(self, now_ms: int) -> int:
        """Return the number of the next record."""
        moment = self.first + (now_ms << _TIME_SHIFT)
        self.last = max(self.last, moment) + ((1 + self._rng.getrandbits(8)) << _COUNTER_SHIFT)
        return self.last
