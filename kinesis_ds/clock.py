"""Time as an argument: everything that waits takes a clock, so that tests need not sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time.

    ``monotonic`` (seconds, arbitrary start) is for durations and deadlines; ``wall`` (seconds since
    the epoch) is for timestamps that leave the process.
    """

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
