"""Wake the event loop from `awscrt`'s thread: at once, or once for many heartbeats."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kinesis_ds.aws.http2.stream import Http2Stream

# How long what can wait does wait.
_DELAY_S = 0.1


def call_on_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any
) -> bool:
    """Call something on a loop soon, from any thread. Return False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


class DelayedWakeup:
    """Wakes the loop once for all streams that received something that can wait, like heartbeats.

    To wake the loop for each heartbeat costs more than what the loop then does with it.

    Args:
        loop: The event loop of the streams.
        can_wait: Returns True if a piece of an answer can wait. Called on `awscrt`'s thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, can_wait: Callable[[bytes], bool]) -> None:
        self.can_wait = can_wait
        self._loop = loop
        self._streams: deque[Http2Stream] = deque()
        self._pending = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Http2Stream) -> None:
        """Have a stream read its inbox after the delay. Called on `awscrt`'s thread."""
        self._streams.append(stream)
        if not self._pending:
            self._pending = True
            call_on_loop(self._loop, self._start_timer)

    def close(self) -> None:
        """Cancel the wake-up that is due. Called on the loop."""
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(_DELAY_S, self._read_inboxes)

    def _read_inboxes(self) -> None:
        self._pending = False  # before reading: a stream added meanwhile starts the timer again
        while self._streams:
            self._streams.popleft().read_inbox_if_any()
