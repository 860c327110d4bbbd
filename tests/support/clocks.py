"""A clock that stands still until it is told to move."""

from __future__ import annotations


class VirtualClock:
    """A :class:`kinesis_ds.clock.Clock` in the hands of the test."""

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._wall += seconds
