"""Decides how fast one shard is written to, by what it accepts. Pure.

The unit of cost is the shard-second: what a shard takes in a second, 1,000 records or 1 MiB. Until
a shard throttles for the first time, only what is under way is bounded. That bound doubles with
every round that is delivered, so it does not slow down a server without limits. From the first
throttle on there is a rate for this shard alone: additive increase, multiplicative decrease.
"""

from __future__ import annotations

import math
from typing import Final

# The first bound on what is under way: a second's worth, which an idle shard takes at once.
_START: Final = 1.0
# The time in which what was delivered fades from the average.
_LATELY_S: Final = 1.0
# The new rate after a throttle, as a part of what was delivered lately.
_KEEP: Final = 0.9
# A throttle multiplies the rate by a factor between these two.
_MOST_CUT: Final = 0.7
_LEAST_CUT: Final = 0.95
# Throttles closer together than this count as one.
_ROUND_S: Final = 0.2
# The lowest rate: a shard that takes nothing is tried again now and then.
_FLOOR: Final = 0.02
# How much the rate grows in a second; it grows faster the longer nothing was throttled.
_GROWTH: Final = 0.02
_QUICKER_S: Final = 2.0
# How many seconds of its rate a shard may catch up after a pause.
_SAVED_S: Final = 0.5
# How many seconds of its rate are worth a request.
_GRAIN_S: Final = 0.1
# How many seconds of its rate a refused record costs at most.
_LONGEST_DEBT_S: Final = 0.8
_LOOK_AGAIN_S: Final = 0.05
_SLACK: Final = 1e-6


class Pace:
    """The pace of one shard. It is kept from task to task, as long as the shard is written to.

    Each cost that :meth:`sent` counts must come back, whole or in parts, through
    :meth:`delivered`, :meth:`throttled` or :meth:`gave_up`. Times are in monotonic seconds.

    Attributes:
        rate: The rate in shard-seconds per second; None before the first throttle.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._window = _START
        self._in_flight = 0.0
        self._tokens = 0.0
        self._delivered = 0.0
        self._at = -math.inf
        self._cut_at = -math.inf
        # What was under way at the last cut and is not back yet: its throttles were counted there.
        self._old = 0.0

    def __repr__(self) -> str:
        if self.rate is None:
            return f"Pace(window={self._window:.3g}, in_flight={self._in_flight:.3g})"
        return f"Pace(rate={self.rate:.3g}, tokens={self._tokens:.3g})"

    def allowance(self, now: float) -> float:
        """Return what may be sent now, in shard-seconds; below zero while a debt is paid back."""
        self._pass(now)
        return self._window - self._in_flight if self.rate is None else self._tokens

    def ready_at(self, cost: float, now: float) -> float:
        """Return when ``cost`` may be sent, or as much of it as is worth a request.

        Returns ``now`` if it may be sent now. What costs more than can be saved up is sent all the
        same, and paid back afterwards.
        """
        allowance = self.allowance(now)
        if self.rate is None:
            # Answers change it, and this task does not see the answers to others.
            worth = min(cost, self._window / 2)
            return now if allowance >= worth - _SLACK else now + _LOOK_AGAIN_S
        # The rate grows while it is waited for, and what was worth a request with it: hence 10%.
        worth = min(cost, self.rate * _GRAIN_S)
        return now if allowance >= 0.9 * worth else now + (worth - allowance) / self.rate

    def sent(self, cost: float, now: float) -> None:
        """Count a cost as under way."""
        self._pass(now)
        self._in_flight += cost
        self._tokens -= cost

    def delivered(self, cost: float, now: float) -> None:
        """Count a cost as stored."""
        self._pass(now)
        self._back(cost)
        self._delivered += cost
        if self.rate is None:
            self._window += cost

    def throttled(self, cost: float, now: float) -> None:
        """Count a cost as refused because the shard is too busy."""
        self._pass(now)
        news = self._old <= _SLACK and now >= self._cut_at + _ROUND_S
        self._back(cost)
        if news:
            self._cut(now)
        # What the shard did not take, however large it is, is not paid back for long.
        if self.rate is not None:
            self._tokens = max(self._tokens, -self.rate * _LONGEST_DEBT_S)

    def gave_up(self, cost: float, now: float) -> None:
        """Count a cost as not answered, or answered with another error."""
        self._pass(now)
        self._back(cost)

    def _cut(self, now: float) -> None:
        lately = self._delivered / _LATELY_S * _KEEP
        if self.rate is None:
            self.rate = max(_FLOOR, lately)
            self._tokens = 0.0
        else:
            least, most = self.rate * _MOST_CUT, self.rate * _LEAST_CUT
            self.rate = max(_FLOOR, min(max(lately, least), most))
        self._tokens = min(self._tokens, 0.0)
        self._cut_at = now
        self._old = self._in_flight

    def _back(self, cost: float) -> None:
        self._in_flight = max(0.0, self._in_flight - cost)
        self._old = max(0.0, self._old - cost)

    def _pass(self, now: float) -> None:
        """Let time pass: the rate grows, allowance comes in, deliveries fade."""
        elapsed = now - self._at
        if elapsed <= 0.0:
            return
        self._at = now
        if math.isinf(elapsed):
            return
        self._delivered *= math.exp(-elapsed / _LATELY_S)
        if self.rate is None:
            return
        saved = max(self._tokens, self.rate * _SAVED_S)
        self._tokens = min(self._tokens + elapsed * self.rate, saved)
        quiet = 1.0 + (now - elapsed / 2 - self._cut_at) / _QUICKER_S
        # A rate that is not used up is not tested, so it does not grow past that of a shard.
        most = max(self.rate, 1.0, 1.5 * self._delivered / _LATELY_S)
        self.rate = min(most, self.rate + elapsed * _GROWTH * quiet)
