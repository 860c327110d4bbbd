"""Breaks off a connection on which nothing comes any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SilenceAlarm:
    """Aborts a connection that yields nothing for too long. Make and use it on the network loop.

    Only time spent inside the ``with`` counts, which is waiting for the network: a shard that is
    held back by its own full buffer is not silent. There is one timer a connection, re-armed when
    it fires, so that a chunk costs nothing.

    Args:
        abort: Ends the connection, so that whoever reads from it gets an error.
        limit_s: The longest silence, in seconds.

    Attributes:
        rang: Whether the connection was aborted.
    """

    def __init__(self, abort: Callable[[], None], limit_s: float) -> None:
        self.rang = False
        self._abort = abort
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._waiting_since: float | None = None
        self._timer = self._loop.call_later(limit_s, self._look)

    def __enter__(self) -> None:
        self._waiting_since = self._loop.time()

    def __exit__(self, *exc_info: object) -> None:
        self._waiting_since = None

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _look(self) -> None:
        silent = self._loop.time() - self._waiting_since if self._waiting_since is not None else 0.0
        if silent >= self._limit_s:
            self.rang = True
            self._abort()
            return
        self._timer = self._loop.call_later(self._limit_s - silent, self._look)
