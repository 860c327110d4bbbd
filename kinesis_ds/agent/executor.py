"""Executors: each does the work of one shard in order; all share a few threads.

An executor never runs two pieces of work at once. It gives its thread back after each piece, so a
busy shard cannot starve another. Behind a piece that failed it does nothing more: the records of
that piece are missing, and those behind them would leave a gap. Its queue is not bounded here:
what is submitted has been paid for in the buffer pool first.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class ShardExecutor:
    """Does one shard's work, one piece after the other, on shared threads.

    Attributes:
        failed: Called with what a piece of work raised, on the thread that did it. It must fail the
            shard: nothing more is done for it.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.failed: Callable[[Exception], object] = _ignore
        self._threads = threads
        self._lock = threading.Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._broken = False

    def submit(self, work: Callable[[], None], *, at_once: bool = False) -> None:
        """Queue a piece of work. Never blocks, except with ``at_once``.

        Args:
            at_once: Do the work here and now if nothing is queued before it: for pieces so small
                that handing them over would cost more than doing them.
        """
        with self._lock:
            if self._broken:
                return
            at_once = at_once and not self._scheduled
            if not at_once:
                self._work.append(work)
                if self._scheduled:
                    return
            self._scheduled = True
        if at_once:
            self._do(work)
        else:
            self._schedule()

    def _schedule(self) -> None:
        try:
            self._threads.submit(self._run_one)
        except RuntimeError:  # the executor is shut down: the agent is closing
            logger.debug("an executor dropped its work at shutdown")

    def _run_one(self) -> None:
        with self._lock:
            work = self._work.popleft()
        self._do(work)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as exc:
            logger.exception("work of a shard's executor failed; please report this")
            with self._lock:
                self._broken = True
                self._work.clear()
            self.failed(exc)
        with self._lock:
            self._scheduled = bool(self._work)
            again = self._scheduled
        if again:
            self._schedule()


def _ignore(exc: Exception) -> None:
    """Do nothing: the executor has no shard yet."""


class DecodingThreads:
    """The threads that the executors of all shards share.

    Args:
        threads: How many.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kinesis-decode")

    def executor(self) -> ShardExecutor:
        """Return an executor for one more shard."""
        return ShardExecutor(self._threads)

    def close(self) -> None:
        """Drop queued work and wait for the pieces under way."""
        self._threads.shutdown(wait=True, cancel_futures=True)
