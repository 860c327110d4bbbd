"""Clocks. Everything that waits takes one as an argument, so that tests need not sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start: for durations and deadlines."""

    def wall(self) -> float:
        """Return seconds since the epoch: for timestamps that leave the process."""


class SystemClock:
    """The clocks of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
