"""One connection over HTTP/2, and the streams on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.http2.stream import Http2Stream
from kinesis_ds.aws.http2.wakeup import call_on_loop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from kinesis_ds.aws.http2.wakeup import DelayedWakeup

# Streams on one connection, even if the server would allow more.
MAX_STREAMS = 100
# A connection without streams is closed after this long.
_IDLE_S = 30.0
# An idle subscription receives a heartbeat every 5 s. A connection on which nothing arrived for
# this long gets no more streams.
_QUIET_S = 15.0


class Http2Connection:
    """A connection, and the streams on it.

    Args:
        loop: The event loop on which all but :meth:`on_settings` is called.
        wakeup: Wakes the loop for all streams of the pool.
        on_closed: Called on the loop when the connection is closed.

    Attributes:
        settings_received: Done when the server's settings have come, or the connection is closed.
        closed: Done when the connection is closed.
        active: Streams that somebody reads.
        left_open: Streams that their readers left before the end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wakeup: DelayedWakeup,
        on_closed: Callable[[Http2Connection], None],
    ) -> None:
        self.loop = loop
        self.wakeup = wakeup
        self.settings_received: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.active: set[Http2Stream] = set()
        self.left_open: set[Http2Stream] = set()
        self._crt_connection: Any = None
        self._max_streams = MAX_STREAMS
        self._accepts_streams = True
        self._last_activity = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._on_closed = on_closed

    def start(self, crt_connection: Any) -> None:
        """Use this connection of `awscrt`. Called once, before anything else."""
        self._crt_connection = crt_connection
        crt_connection.shutdown_future.add_done_callback(self._on_shutdown)

    @property
    def free_slots(self) -> int:
        """How many more streams the connection takes."""
        if not self._accepts_streams or self.closed.done() or not self._crt_connection.is_open():
            return 0
        return self._max_streams - len(self.active) - len(self.left_open)

    # --- awscrt's thread ------------------------------------------------------------------------

    def on_settings(self, settings: list[Any]) -> None:
        """Take in the server's settings, when they come and when they change."""
        limits = [s.value for s in settings if s.id.name == "MAX_CONCURRENT_STREAMS"]
        call_on_loop(self.loop, self._set_limit, limits)

    def _on_shutdown(self, _: Future[None]) -> None:
        """Called when the connection is closed and its streams have ended."""
        call_on_loop(self.loop, self._set_closed)

    # --- the event loop -------------------------------------------------------------------------

    def _set_limit(self, limits: list[int]) -> None:
        self._max_streams = min(MAX_STREAMS, *limits) if limits else self._max_streams
        self.note_activity()
        if not self.settings_received.done():
            self.settings_received.set_result(None)

    def _set_closed(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for future in (self.settings_received, self.closed):
            if not future.done():
                future.set_result(None)
        self._crt_connection = None
        self._on_closed(self)

    def note_activity(self) -> None:
        """Remember that something arrived just now."""
        self._last_activity = self.loop.time()

    def open(self, headers: Mapping[str, str], payload: bytes, path: str) -> Http2Stream | None:
        """Send a request on a new stream. Return None if the connection takes no more."""
        stream = Http2Stream(self)
        if not self.active and not self.left_open:
            self.note_activity()  # without streams there was nothing to arrive
        try:
            stream.send(self._crt_connection, headers, payload, path)
        except Exception:  # it is closing, or the server sent GOAWAY
            self.retire()
            return None
        self.active.add(stream)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        return stream

    def on_ended(self, stream: Http2Stream) -> None:
        """Forget a stream that ended, if its reader has left."""
        self.left_open.discard(stream)

    def on_left(self, stream: Http2Stream) -> None:
        """Take note that a reader left its stream; close the connection if nobody reads on it."""
        self.active.discard(stream)
        if not stream.ended:
            self.left_open.add(stream)
            if self.loop.time() - self._last_activity > _QUIET_S:
                self._accepts_streams = False
        if not self.active:
            if self.left_open or not self._accepts_streams:
                self.close()
            elif self._idle_timer is None:
                self._idle_timer = self.loop.call_later(_IDLE_S, self.close)

    def retire(self) -> None:
        """Take no more streams, and close when the active ones are done."""
        self._accepts_streams = False
        if not self.active:
            self.close()

    def close(self) -> None:
        """Close the connection and end all its streams, at once."""
        self._accepts_streams = False
        if self._crt_connection is not None:
            self._crt_connection.close()
