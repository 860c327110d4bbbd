"""How fast one shard is written to, by what it takes. Pure.

The unit is the shard-second: what a shard takes in a second, 1,000 records or 1 MiB. Until a shard
throttles for the first time only what is under way is bounded, and that bound doubles with every
round that is delivered, so a server without limits holds nobody back. From the first throttle on it
is a rate: additive increase, multiplicative decrease, for this shard alone.
"""

from __future__ import annotations

import math
from typing import Final

_START: Final = 1.0
"""Under way at most, at first: a second's worth, which an idle shard takes at once."""
_LATELY_S: Final = 1.0
"""What was delivered longer ago counts less and less."""
_KEEP: Final = 0.9
"""Of what was delivered lately, after a throttle."""
_MOST_CUT: Final = 0.7
_LEAST_CUT: Final = 0.95
"""A throttle multiplies the rate by something between these two."""
_ROUND_S: Final = 0.2
"""Throttles closer together than this say the same thing."""
_FLOOR: Final = 0.02
"""The lowest rate: a shard that takes nothing is asked again now and then."""
_GROWTH: Final = 0.02
"""Rate gained in a second; the longer nothing was throttled the more."""
_QUICKER_S: Final = 2.0
_SAVED_S: Final = 0.5
"""Seconds of its rate that a shard may catch up with after a pause."""
_GRAIN_S: Final = 0.1
"""Seconds of its rate that are worth a request."""
_LONGEST_DEBT_S: Final = 0.8
"""Seconds of its rate that a refused record costs at most."""
_LOOK_AGAIN_S: Final = 0.05
_SLACK: Final = 1e-6


class Pace:
    """The pace of one shard. Lives as long as the shard is written to, over many tasks.

    A cost that is handed to :meth:`sent` comes back, whole or in parts, through one of
    :meth:`delivered`, :meth:`throttled` and :meth:`gave_up`.
    """

    __slots__ = (
        "_at",
        "_cut_at",
        "_delivered",
        "_in_flight",
        "_old",
        "_rate",
        "_tokens",
        "_window",
    )

    def __init__(self) -> None:
        self._rate: float | None = None
        self._window = _START
        self._in_flight = 0.0
        self._tokens = 0.0
        self._delivered = 0.0
        self._at = -math.inf
        self._cut_at = -math.inf
        # Of what was under way at the last cut, what is not back yet: its throttles are old news.
        self._old = 0.0

    def __repr__(self) -> str:
        if self._rate is None:
            return f"Pace(window={self._window:.3g}, in_flight={self._in_flight:.3g})"
        return f"Pace(rate={self._rate:.3g}, tokens={self._tokens:.3g})"

    @property
    def rate(self) -> float | None:
        """Shard-seconds a second; None while nothing was throttled."""
        return self._rate

    def allowance(self, now: float) -> float:
        """What may be sent now; below zero while a debt is paid back."""
        self._pass(now)
        return self._window - self._in_flight if self._rate is None else self._tokens

    def ready_at(self, cost: float, now: float) -> float:
        """When ``cost`` may be sent, or as much of it as is worth a request; ``now`` if now.

        What costs more than is ever saved up goes all the same, and is paid back afterwards.
        """
        allowance = self.allowance(now)
        if self._rate is None:
            # Answers change it, and those of other tasks nobody tells us of.
            worth = min(cost, self._window / 2)
            return now if allowance >= worth - _SLACK else now + _LOOK_AGAIN_S
        # The rate grows while it is waited for, and what was worth a request with it: hence 10%.
        worth = min(cost, self._rate * _GRAIN_S)
        return now if allowance >= 0.9 * worth else now + (worth - allowance) / self._rate

    def sent(self, cost: float, now: float) -> None:
        """This much is on its way."""
        self._pass(now)
        self._in_flight += cost
        self._tokens -= cost

    def delivered(self, cost: float, now: float) -> None:
        """This much was stored."""
        self._pass(now)
        self._back(cost)
        self._delivered += cost
        if self._rate is None:
            self._window += cost

    def throttled(self, cost: float, now: float) -> None:
        """This much was refused because the shard is too busy."""
        self._pass(now)
        news = self._old <= _SLACK and now >= self._cut_at + _ROUND_S
        self._back(cost)
        if news:
            self._cut(now)
        # What the shard did not take need not be paid back for long, however large it is.
        if self._rate is not None:
            self._tokens = max(self._tokens, -self._rate * _LONGEST_DEBT_S)

    def gave_up(self, cost: float, now: float) -> None:
        """Nothing is known of this much: it was answered not at all, or with another error."""
        self._pass(now)
        self._back(cost)

    def _cut(self, now: float) -> None:
        lately = self._delivered / _LATELY_S * _KEEP
        if self._rate is None:
            self._rate = max(_FLOOR, lately)
            self._tokens = 0.0
        else:
            least, most = self._rate * _MOST_CUT, self._rate * _LEAST_CUT
            self._rate = max(_FLOOR, min(max(lately, least), most))
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
        if self._rate is None:
            return
        saved = max(self._tokens, self._rate * _SAVED_S)
        self._tokens = min(self._tokens + elapsed * self._rate, saved)
        quiet = 1.0 + (now - elapsed / 2 - self._cut_at) / _QUICKER_S
        # A rate that nobody uses up to its end is not tested, so it does not grow past a shard's.
        most = max(self._rate, 1.0, 1.5 * self._delivered / _LATELY_S)
        self._rate = min(most, self._rate + elapsed * _GROWTH * quiet)
