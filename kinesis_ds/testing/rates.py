"""Limit calls and bytes per second with token buckets. Pure."""

from __future__ import annotations

import math

# Times are floats of about 1.7e9 s, good to a quarter of a microsecond: half a byte at 2 MiB/s. A
# wait for exactly one byte must not end just short of it.
_SLACK = 1.0
_LATER_S = 1e-6


class Bucket:
    """Holds at most one second's allowance and refills steadily. :meth:`borrow` may overdraw it.

    Amounts are calls or bytes; ``now`` is in seconds since the epoch.

    Attributes:
        rate: The allowance per second, and the most that is saved up.
    """

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._level = rate
        self._at = -math.inf

    def level(self, now: float) -> float:
        """Return how much may be taken now; below zero while a debt is paid back."""
        if now > self._at:
            self._level = min(self.rate, self._level + (now - self._at) * self.rate)
            self._at = now
        return self._level

    def take(self, amount: float, now: float) -> bool:
        """Take an amount if all of it is there; return whether it was."""
        if self.level(now) < amount:
            return False
        self._level -= amount
        return True

    def ready_at(self, amount: float, now: float) -> float:
        """Return when an amount will be there; ``now`` if it is there already.

        An amount above the rate is never there: return when the bucket will be full.
        """
        missing = min(amount, self.rate) - self.level(now)
        return now if missing <= _SLACK else now + missing / self.rate + _LATER_S

    def borrow(self, amount: float, now: float) -> None:
        """Take an amount, even if that makes a debt."""
        self._level = self.level(now) - amount
