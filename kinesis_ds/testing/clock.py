"""Clocks of the double: the machine's, one that runs faster, and one that the test moves."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class ServerClock(Protocol):
    """A :class:`kinesis_ds.clock.Clock` on which a server can wait."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...

    def delay_until(self, when: float) -> float | None:
        """Return the seconds of the machine's time until the wall clock shows ``when``; None when
        that takes a call of ``advance``.
        """

    def watch(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call ``moved`` whenever the clock jumps, on any thread; return a function to end that."""


class _MovableClock:
    """What both clocks share: they are moved forward, and tell those who watch them.

    Args:
        at: What to count the moves from, in seconds.
    """

    def __init__(self, at: float) -> None:
        self._at = at
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []

    def advance(self, seconds: float) -> None:
        """Move the clock forward at once by so many seconds, beside the time that passes anyway."""
        if seconds < 0:
            raise ValueError("time does not go back")
        with self._lock:
            self._at += seconds
            watchers = tuple(self._watchers)
        for moved in watchers:
            moved()

    def watch(self, moved: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._watchers.append(moved)

        def forget() -> None:
            with self._lock:
                self._watchers.remove(moved)

        return forget


class ScaledClock(_MovableClock):
    """Time that passes ``speed`` times as fast as on the machine: 1 is the machine's own.

    At 60, a subscription's five minutes take five seconds. For longer times, such as a night in
    which nobody reads, there is :meth:`advance`. Thread-safe.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"time cannot pass {speed} times as fast")
        super().__init__(at=0.0)
        self.speed = speed
        self._wall = time.time()
        self._began = time.monotonic()

    def monotonic(self) -> float:
        return (time.monotonic() - self._began) * self.speed + self._at

    def wall(self) -> float:
        return self._wall + self.monotonic()

    def delay_until(self, when: float) -> float:
        return max(0.0, when - self.wall()) / self.speed


class ManualClock(_MovableClock):
    """Time that stands still until :meth:`advance`. Thread-safe.

    Whatever waits inside the double for a time goes on when the clock reaches it.
    """

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        super().__init__(at=wall)
        self._began = wall

    def monotonic(self) -> float:
        return self._at - self._began

    def wall(self) -> float:
        return self._at

    def delay_until(self, when: float) -> float | None:
        return 0.0 if when <= self._at else None


class Changes:
    """Lets tasks of one loop wait for a time of the clock, or for something to change.

    Take a :meth:`ticket` first, then look, then wait: a change after the ticket is not missed.
    """

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._versions: dict[object, int] = {}
        self._waiting: dict[object, set[asyncio.Future[None]]] = {}
        self._forget = clock.watch(self._moved)

    def close(self) -> None:
        self._forget()

    def _moved(self) -> None:
        self._loop.call_soon_threadsafe(self.wake_all)

    def wake(self, key: object) -> None:
        """Wake those who wait for a change of ``key``. On the loop."""
        self._versions[key] = self._versions.get(key, 0) + 1
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Wake all who wait: anything may have changed. On the loop."""
        for key in tuple(self._waiting):
            self.wake(key)

    def ticket(self, key: object) -> int:
        """Return what to give to :meth:`wait`. Take it before you look."""
        return self._versions.get(key, 0)

    async def wait(self, key: object, ticket: int, until: float | None = None) -> None:
        """Return when ``key`` has changed since the ticket, or the clock shows ``until``."""
        if self.ticket(key) != ticket:
            return
        delay = None if until is None else self._clock.delay_until(until)
        future: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=delay)
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    async def sleep(self, seconds: float) -> None:
        """Wait until this many seconds of the clock have passed."""
        when = self._clock.wall() + seconds
        key = object()
        while self._clock.delay_until(when) != 0.0:
            await self.wait(key, self.ticket(key), when)
        self._versions.pop(key, None)
