"""Which process reads a shard, and when one that ends is not started again. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def least_loaded(loads: Sequence[int]) -> int:
    """The process that reads a new shard: the one with the fewest, of equals the first.

    A shard stays where it was placed, so loads are all that decides: children of a reshard go where
    their parents have left room.

    Args:
        loads: How many shards each process reads that are not at their end.
    """
    return min(range(len(loads)), key=loads.__getitem__)


def shares(total: int, count: int) -> list[int]:
    """A bound in equal parts that add up to it."""
    each, rest = divmod(total, count)
    return [each + (i < rest) for i in range(count)]


class Deaths:
    """Of one process, as it is started again and again.

    Args:
        limit: So many within ``within_s`` are too many.
    """

    def __init__(self, limit: int = 5, within_s: float = 600.0) -> None:
        self.limit = limit
        self.within_s = within_s
        self._seen: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Seconds to wait before it is started again: none at first, then 1, 2, 4 and so on; None
        when it is given up.
        """
        self._seen.append(now)
        while self._seen[0] < now - self.within_s:
            self._seen.popleft()
        if len(self._seen) >= self.limit:
            return None
        return 0.0 if len(self._seen) == 1 else float(2 ** (len(self._seen) - 2))
