"""Decide when an agent process that died is started again. Pure."""

from __future__ import annotations

from collections import deque


class RestartPolicy:
    """Counts the deaths of one process as it is started again and again.

    Args:
        limit: The process is given up with this death within ``within_s``.
        within_s: How long a death counts, in seconds.
    """

    def __init__(self, limit: int = 5, within_s: float = 600.0) -> None:
        self.limit = limit
        self.within_s = within_s
        self._deaths: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Count a death, and return how many seconds to wait before the process is started again:
        none at first, then 1, 2, 4 and so on. None: give it up.

        Args:
            now: In seconds of a monotonic clock.
        """
        self._deaths.append(now)
        while self._deaths[0] < now - self.within_s:
            self._deaths.popleft()
        if len(self._deaths) >= self.limit:
            return None
        return 0.0 if len(self._deaths) == 1 else float(2 ** (len(self._deaths) - 2))
