"""Bounds how much of a shard is received and not decoded yet."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.aws.loop import NetworkLoop


class Undecoded:
    """Counts the bytes of messages that a shard's executor has yet to decode.

    At most one task waits for that to be less.
    """

    def __init__(self, network: NetworkLoop) -> None:
        self._network = network
        self._lock = threading.Lock()
        self._bytes = 0
        self._limit = 0
        self._waiter: asyncio.Future[None] | None = None

    def add(self, size: int) -> None:
        """Count a message of ``size`` bytes that is handed to the executor; from any thread."""
        with self._lock:
            self._bytes += size

    def done(self, size: int) -> None:
        """Uncount a message that the executor is done with; from any thread."""
        with self._lock:
            self._bytes -= size
            if self._waiter is None or self._bytes > self._limit:
                return
            waiter, self._waiter = self._waiter, None
        self._network.post(_release, waiter)

    async def below(self, limit: int) -> None:
        """Wait until there are no more than ``limit`` bytes. On the network loop."""
        with self._lock:
            if self._bytes <= limit:
                return
            self._limit = limit
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        await waiter


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
