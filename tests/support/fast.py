"""Run the connector in fast time, in step with the double: long pauses take little time.

The rules of subscriptions (one call a second, five seconds since the last success, five minutes of
life) are enforced by the double and kept by the connector. Both use a time that passes ``SPEED``
times as fast as the machine's while this process runs, and hardly passes while the process has to
wait for the machine. So a call that may take 30 s, which are 1.5 s here, has that time on a busy
machine too.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.testing import ScaledClock

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions

# Five seconds take a quarter of one, five minutes 15 s.
SPEED = 20.0
_TICK_S = 0.01
_LONGEST_TICK_S = 2 * _TICK_S


class _Time:
    """Fast time in seconds, the same for the whole process. Thread-safe.

    A thread reads the machine's clock again and again. If it comes late, the process or the machine
    was busy with other things, and the delay does not count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        # Fast time at the last tick, and the machine's time then.
        self._last = (0.0, time.monotonic())

    def now(self) -> float:
        if self._process != os.getpid():
            self._start()
        passed, at = self._last
        return passed + SPEED * min(time.monotonic() - at, _LONGEST_TICK_S)

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._last = (self._last[0], time.monotonic())
                threading.Thread(target=self._tick, name="fast time", daemon=True).start()
                self._process = os.getpid()

    def _tick(self) -> None:
        never = threading.Event()
        while not never.wait(_TICK_S):
            passed, at = self._last
            now = time.monotonic()
            self._last = (passed + SPEED * min(now - at, _LONGEST_TICK_S), now)


_TIME = _Time()


class FastClock(ScaledClock):
    """A clock in fast time, in step with every :class:`FastLoop` of this process.

    Where several processes must agree on the time, take ``ScaledClock(SPEED)``.
    """

    def __init__(self) -> None:
        super().__init__(SPEED)
        self._from = _TIME.now()

    def monotonic(self) -> float:
        return _TIME.now() - self._from + self._at


class _FastSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        until = _TIME.now() + timeout
        while not (found := super().select(timeout / SPEED)):
            if (timeout := until - _TIME.now()) <= 0:
                break
        return found


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run ``SPEED`` times as fast."""

    def __init__(self) -> None:
        self._waits = _FastSelector()
        super().__init__(self._waits)

    @property
    def turns(self) -> int:
        """Return how often the loop has looked for something to do."""
        return int(self._waits.turns)

    def time(self) -> float:
        return _TIME.now()

    def close(self) -> None:
        """Close the loop.

        Before, finish what abandoned calls left: TLS waits for the peer's last message.
        """
        if not self.is_closed():
            open_ones = self._transports.values()
            left = [t for t in open_ones if isinstance(t.get_protocol(), SSLProtocol)]
            for transport in left:
                transport.abort()
            if left:
                self.run_until_complete(asyncio.sleep(0))
        super().close()


def fast_network(aws: AwsOptions) -> NetworkLoop:
    """Return a network loop in fast time."""
    return NetworkLoop(aws, FastLoop)
