"""One request over HTTP/2, and its answer as it arrives."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from typing import TYPE_CHECKING, Any

import aiohttp

from kinesis_ds.aws.http2.wakeup import call_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from kinesis_ds.aws.http2.connection import Http2Connection

# How far the reader of an answer may be behind. aiohttp, set to 128 KiB, stops reading a socket at
# twice that.
WINDOW_BYTES = 256 * 1024
# Credit is granted in pieces of this size, to call into `awscrt` less often than every 16 KiB.
_GRANT_BYTES = WINDOW_BYTES // 4


class RequestNotProcessedError(Exception):
    """The server said that it has not processed the request, so it is safe to send it again.

    https://www.rfc-editor.org/rfc/rfc9113#section-8.7
    """


class Http2Stream:
    """One request and its answer. Runs on the event loop, except for the callbacks of `awscrt`.

    Iterate over it to read the body of the answer.

    Attributes:
        status: HTTP status of the answer; 0 until :meth:`head` has returned.
        headers: Headers of the answer, names in lower case.
        ended: True after the last byte has arrived, or the stream broke.
    """

    def __init__(self, connection: Http2Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._connection = connection
        self._loop = connection.loop
        self._crt_stream: Any = None
        # Filled by awscrt's thread, emptied on the loop: pieces of the body, and callbacks.
        self._inbox: deque[bytes | Callable[[], None]] = deque()
        self._wakeup_pending = False
        self._arrived: deque[bytes] = deque()
        self._taken_bytes = 0  # and not granted yet
        self._error: Exception | None = None
        self._left = False
        self._waiter: asyncio.Future[None] | None = None

    def send(
        self, crt_connection: Any, headers: Mapping[str, str], payload: bytes, path: str
    ) -> None:
        """Send the request.

        Raises:
            Exception: One of `awscrt`: this connection takes no more requests.
        """
        from awscrt.http import HttpHeaders, HttpRequest  # noqa: PLC0415

        request = HttpRequest(
            "POST",
            path,
            HttpHeaders([(name.lower(), value) for name, value in headers.items()]),
            io.BytesIO(payload),
        )
        self._crt_stream = crt_connection.request(request, self._on_response, self._on_body)
        self._crt_stream.completion_future.add_done_callback(self._on_complete)
        self._crt_stream.activate()

    # --- awscrt's thread ------------------------------------------------------------------------

    def _on_response(
        self, http_stream: Any, status_code: int, headers: list[tuple[str, str]], **_: Any
    ) -> None:
        del http_stream
        named = {name.lower(): value for name, value in headers}
        self._deliver(lambda: self._begin(status_code, named))

    def _on_body(self, http_stream: Any, chunk: bytes, **_: Any) -> None:
        del http_stream
        if self._left:
            return
        if not self._wakeup_pending and self._connection.wakeup.can_wait(chunk):
            self._inbox.append(chunk)
            self._connection.wakeup.add(self)
        else:
            self._deliver(chunk)

    def _on_complete(self, completed: Future[int]) -> None:
        error = completed.exception()
        self._deliver(lambda: self._end(error))

    def _deliver(self, item: bytes | Callable[[], None]) -> None:
        self._inbox.append(item)
        if not self._wakeup_pending:
            self._wakeup_pending = True
            call_on_loop(self._loop, self._read_inbox)

    # --- the event loop -------------------------------------------------------------------------

    def read_inbox_if_any(self) -> None:
        """Take in what has arrived, unless that was done meanwhile."""
        if self._inbox:
            self._read_inbox()

    def _read_inbox(self) -> None:
        self._wakeup_pending = False  # before reading: what arrives meanwhile wakes the loop again
        while self._inbox:
            item = self._inbox.popleft()
            if not isinstance(item, bytes):
                item()
            elif not self._left and self._error is None:
                self._arrived.append(item)
        self._connection.note_activity()
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers

    def _end(self, error: BaseException | None) -> None:
        if error is not None and self._error is None:
            name = getattr(error, "name", type(error).__name__)
            message = getattr(error, "message", str(error))
            if not self.status and "GOAWAY_RECEIVED" in name:
                self._error = RequestNotProcessedError(message)
            else:
                self._error = aiohttp.ClientPayloadError(f"{message} ({name})")
        self.ended = True
        self._crt_stream = None  # it refers to this object
        self._connection.on_ended(self)

    async def _inbox_read(self) -> None:
        """Wait until something was taken in."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def head(self) -> None:
        """Wait for status and headers. There is no time limit; the caller sets one.

        Raises:
            RequestNotProcessedError: The server closes the connection and did not look at this.
            aiohttp.ClientError: The stream or its connection broke.
        """
        while not self.status:
            self._raise_error()
            if self.ended:
                raise aiohttp.ClientPayloadError("The stream ended before its answer.")
            await self._inbox_read()

    def __aiter__(self) -> Http2Stream:
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes of the answer, and grant the server as many.

        Raises:
            aiohttp.ClientError: The stream or its connection broke; all that arrived before has
                been returned.
        """
        while not self._arrived:
            self._raise_error()
            if self.ended:
                raise StopAsyncIteration
            await self._inbox_read()
        taken = b"".join(self._arrived)
        self._arrived.clear()
        self._grant(len(taken))
        return taken

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _grant(self, size: int) -> None:
        self._taken_bytes += size
        if self._taken_bytes >= _GRANT_BYTES and self._crt_stream is not None and not self._left:
            self._crt_stream.update_window(self._taken_bytes)
            self._taken_bytes = 0

    def abort(self) -> None:
        """Make the reader fail as if the connection had been cut."""
        if not self.ended and self._error is None:
            self._error = aiohttp.ClientPayloadError("The stream was broken off from here.")
            self._arrived.clear()
            self._wake_reader()

    def leave(self) -> None:
        """Stop reading. Idempotent."""
        if not self._left:
            self._left = True
            self._arrived.clear()
            self._connection.on_left(self)
