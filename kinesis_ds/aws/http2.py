"""Requests over HTTP/2, on `awscrt`: many answers at once on few TLS connections.

Each answer has a flow-control window of its own, and the window is its reader's credit: bytes are
granted to the server as the reader takes them. A reader that stops is sent no more than the window,
while its neighbours on the same connection go on; the connection's own window is never what limits.

The runtime calls from a thread of its own. What it says is put down and the event loop woken; all
decisions are made there, so there is no lock. For what can wait a moment, such as heartbeats, the
loop is woken once for all streams: to wake it for each costs more than what is done then.

`awscrt` cannot reset a stream, so one that its reader leaves before its end is *left open*: it is
granted nothing more, and what still comes is dropped. Once nobody reads on a connection it is
closed, and what was left open on it ends.

`awscrt` is imported when the first connection is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
import urllib.parse
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from concurrent.futures import Future

# What an answer's reader may be behind. aiohttp, at 128 KiB, stops reading a socket at twice that.
WINDOW_BYTES = 256 * 1024
# Credit is given in pieces this large: a call into the runtime for each 16 KiB would be many.
_GRANT_BYTES = WINDOW_BYTES // 4
# On one connection, whatever more the server would allow.
MAX_STREAMS = 100
_CONNECT_TIMEOUT_S = 10.0
# The runtime keeps a failed handshake to itself for half a minute; Python is asked after this long.
_ASK_AFTER_S = 2.0
_IDLE_S = 30.0
_CLOSE_TIMEOUT_S = 5.0
# An idle subscription hears a heartbeat every 5 s: what is this quiet is not trusted with more.
_QUIET_S = 15.0
# How long what can wait does wait.
_MOMENT_S = 0.1
# Requests that the server says it has not looked at go to another connection, so often.
_PLACES = 3
# By TCP: a dead peer is found within 30 s, also where no stream is watched.
_KEEP_ALIVE_S, _KEEP_ALIVE_PROBES = 10, 2
# The second lets a server without HTTP/2 say so, where it would end the handshake.
_OFFERED = ["h2", "http/1.1"]


class NoHttp2Error(Exception):
    """The endpoint chose another protocol than HTTP/2 (ALPN)."""


class _NotLookedAtError(Exception):
    """The request reached nobody, by the server's own word: it may be sent again."""


@dataclass(frozen=True)
class Trust:
    """Which certificates to trust: a file, or else a folder; neither is the runtime's own choice.

    Given both, the runtime forgets the file.
    """

    file: str | None = None
    folder: str | None = None

    def context(self) -> ssl.SSLContext:
        """What trusts the same in Python, and asks for the same."""
        context = ssl.create_default_context(cafile=self.file, capath=self.folder)
        context.set_alpn_protocols(_OFFERED)
        return context


def trusted_by_default() -> Trust:
    """What Python's own TLS trusts, so that both transports trust the same.

    It would take a file and a folder together; where there is a file, the folder holds the same.
    """
    paths = ssl.get_default_verify_paths()
    return Trust(paths.cafile, None if paths.cafile else paths.capath)


class Http2Stream:
    """One request and its answer. Everything but ``_tell`` runs on the event loop.

    Attributes:
        status: Of the answer, once :meth:`head` has returned.
        headers: Of the answer, names in lower case.
    """

    def __init__(self, place: _Place) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._place = place
        self._loop = place.loop
        self._runtime: Any = None
        # Written by the runtime's thread, read on the loop.
        self._inbox: deque[bytes | Callable[[], None]] = deque()
        self._told = False
        self._arrived: deque[bytes] = deque()
        self._to_grant = 0
        self._error: Exception | None = None
        self._left = False
        self._waiter: asyncio.Future[None] | None = None

    def send(self, connection: Any, headers: Mapping[str, str], payload: bytes, path: str) -> None:
        """Send the request.

        Raises:
            Exception: The runtime's: this connection takes no more requests.
        """
        from awscrt.http import HttpHeaders, HttpRequest  # noqa: PLC0415

        request = HttpRequest(
            "POST",
            path,
            HttpHeaders([(name.lower(), value) for name, value in headers.items()]),
            io.BytesIO(payload),
        )
        self._runtime = connection.request(request, self._on_response, self._on_body)
        self._runtime.completion_future.add_done_callback(self._on_complete)
        self._runtime.activate()

    # --- the runtime's thread -------------------------------------------------------------------

    def _on_response(
        self, http_stream: Any, status_code: int, headers: list[tuple[str, str]], **_: Any
    ) -> None:
        del http_stream
        named = {name.lower(): value for name, value in headers}
        self._tell(lambda: self._begin(status_code, named))

    def _on_body(self, http_stream: Any, chunk: bytes, **_: Any) -> None:
        del http_stream
        if self._left:
            return
        if not self._told and self._place.gathered.takes(chunk):
            self._inbox.append(chunk)
            self._place.gathered.add(self)
        else:
            self._tell(chunk)

    def _on_complete(self, completed: Future[int]) -> None:
        error = completed.exception()
        self._tell(lambda: self._end(error))

    def _tell(self, news: bytes | Callable[[], None]) -> None:
        self._inbox.append(news)
        if not self._told:
            self._told = True
            _post(self._loop, self._look)

    # --- the event loop -------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what was told, if that has not been done meanwhile."""
        if self._inbox:
            self._look()

    def _look(self) -> None:
        self._told = False  # before looking: what comes meanwhile wakes the loop again
        while self._inbox:
            news = self._inbox.popleft()
            if not isinstance(news, bytes):
                news()
            elif not self._left and self._error is None:
                self._arrived.append(news)
        self._place.heard()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers

    def _end(self, error: BaseException | None) -> None:
        if error is not None and self._error is None:
            name = getattr(error, "name", type(error).__name__)
            said = getattr(error, "message", str(error))
            if not self.status and "GOAWAY_RECEIVED" in name:
                self._error = _NotLookedAtError(said)
            else:
                self._error = aiohttp.ClientPayloadError(f"{said} ({name})")
        self.ended = True
        self._runtime = None  # it refers to this object
        self._place.ended(self)

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def head(self) -> None:
        """Wait for status and headers. Who waits says how long.

        Raises:
            aiohttp.ClientError: The stream or its connection broke.
        """
        while not self.status:
            self._raise_error()
            if self.ended:
                raise aiohttp.ClientPayloadError("The stream ended before its answer.")
            await self._news()

    def __aiter__(self) -> Http2Stream:
        return self

    async def __anext__(self) -> bytes:
        """The next of the answer's bytes. What is not taken is not granted.

        Raises:
            aiohttp.ClientError: The stream or its connection broke, after all that came before.
        """
        while not self._arrived:
            self._raise_error()
            if self.ended:
                raise StopAsyncIteration
            await self._news()
        taken = b"".join(self._arrived)
        self._arrived.clear()
        self._grant(len(taken))
        return taken

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _grant(self, size: int) -> None:
        self._to_grant += size
        if self._to_grant >= _GRANT_BYTES and self._runtime is not None and not self._left:
            self._runtime.update_window(self._to_grant)
            self._to_grant = 0

    def abort(self) -> None:
        """Have the reader fail, as if the connection had been cut."""
        if not self.ended and self._error is None:
            self._error = aiohttp.ClientPayloadError("The stream was broken off from here.")
            self._arrived.clear()
            self._wake()

    def leave(self) -> None:
        """Nothing more of it is read. Idempotent."""
        if not self._left:
            self._left = True
            self._arrived.clear()
            self._place.left(self)


class _Gathered:
    """The streams that have been told what can wait; the loop is woken once for all of them.

    Args:
        takes: Whether a piece of an answer can wait. Called on the runtime's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, takes: Callable[[bytes], bool]) -> None:
        self.takes = takes
        self._loop = loop
        self._streams: deque[Http2Stream] = deque()
        self._told = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Http2Stream) -> None:
        """Have a stream looked at in a moment. On the runtime's thread."""
        self._streams.append(stream)
        if not self._told:
            self._told = True
            _post(self._loop, self._wait)

    def close(self) -> None:
        """Look at nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(_MOMENT_S, self._look)

    def _look(self) -> None:
        self._told = False  # before looking, as a stream does
        while self._streams:
            self._streams.popleft().look()


class _Place:
    """A connection, and the streams on it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gathered: _Gathered,
        changed: Callable[[_Place], None],
    ) -> None:
        self.loop = loop
        self.gathered = gathered
        self.runtime: Any = None
        self.shut: asyncio.Future[None] = loop.create_future()
        self.settled: asyncio.Future[None] = loop.create_future()
        self.read: set[Http2Stream] = set()
        self.left_open: set[Http2Stream] = set()
        self._limit = MAX_STREAMS
        self._trusted = True
        self._heard_at = loop.time()
        self._idle: asyncio.TimerHandle | None = None
        self._changed = changed

    @property
    def room(self) -> int:
        """How many more streams it takes."""
        if not self._trusted or self.shut.done() or not self.runtime.is_open():
            return 0
        return self._limit - len(self.read) - len(self.left_open)

    # --- the runtime's thread -------------------------------------------------------------------

    def on_settings(self, settings: list[Any]) -> None:
        """The server's settings have come, or changed."""
        limits = [s.value for s in settings if s.id.name == "MAX_CONCURRENT_STREAMS"]
        _post(self.loop, self._settle, limits)

    def on_shutdown(self, _: Future[None]) -> None:
        """It is closed: its streams have been told."""
        _post(self.loop, self._closed)

    # --- the event loop -------------------------------------------------------------------------

    def _settle(self, limits: list[int]) -> None:
        self._limit = min(MAX_STREAMS, *limits) if limits else self._limit
        self.heard()
        if not self.settled.done():
            self.settled.set_result(None)

    def _closed(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        for waited in (self.settled, self.shut):
            if not waited.done():
                waited.set_result(None)
        self.runtime = None
        self._changed(self)

    def heard(self) -> None:
        self._heard_at = self.loop.time()

    def open(self, headers: Mapping[str, str], payload: bytes, path: str) -> Http2Stream | None:
        """Send a request; None where the connection turns out to take no more."""
        stream = Http2Stream(self)
        if not self.read and not self.left_open:
            self.heard()  # nothing was to be heard
        try:
            stream.send(self.runtime, headers, payload, path)
        except Exception:  # it is closing, or was told to take its leave
            self.retire()
            return None
        self.read.add(stream)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        return stream

    def ended(self, stream: Http2Stream) -> None:
        self.left_open.discard(stream)
        if stream in self.read:
            return  # its reader still has to leave
        self._changed(self)

    def left(self, stream: Http2Stream) -> None:
        self.read.discard(stream)
        if not stream.ended:
            self.left_open.add(stream)
            if self.loop.time() - self._heard_at > _QUIET_S:
                self._trusted = False
        if not self.read:
            if self.left_open or not self._trusted:
                self.close()
            elif self._idle is None:
                self._idle = self.loop.call_later(_IDLE_S, self.close)
        self._changed(self)

    def retire(self) -> None:
        """No more streams; closed once those it has are done."""
        self._trusted = False
        if not self.read:
            self.close()

    def close(self) -> None:
        """End it with all its streams, at once."""
        self._trusted = False
        if self.runtime is not None:
            self.runtime.close()


class Http2Pool:
    """Connections to one endpoint. Belongs to one event loop; close it when done.

    Args:
        endpoint: Its URL, https.
        trust: Which certificates to trust; asked once.
        can_wait: Whether a piece of an answer can wait for a tenth of a second, or until the next
            one of the same answer. Called on the runtime's thread.

    Attributes:
        endpoint: As given.
    """

    def __init__(
        self,
        endpoint: str,
        trust: Callable[[], Trust],
        can_wait: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self.endpoint = endpoint
        parts = urllib.parse.urlsplit(endpoint)
        self._host = parts.hostname or ""
        self._port = parts.port or 443
        self._path = parts.path or "/"
        # As botocore signs it.
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if self._port == 443 else f"{name}:{self._port}"
        self._trust = trust
        self._loop = asyncio.get_running_loop()
        self._gathered = _Gathered(self._loop, can_wait)
        self._places: list[_Place] = []
        self._connecting: asyncio.Task[None] | None = None
        self._runtime: _Runtime | None = None
        self._closed = False

    @contextlib.asynccontextmanager
    async def post(self, headers: Mapping[str, str], payload: bytes) -> AsyncIterator[Http2Stream]:
        """A request, and its answer once that has begun. Leaving the context gives it up.

        Raises:
            NoHttp2Error: The endpoint speaks something else.
            aiohttp.ClientError: No connection could be made, or it broke.
            ssl.SSLError: TLS failed.
        """
        headers = {
            **headers,
            "host": self._authority,
            "content-length": str(len(payload)),
            "user-agent": "kinesis_ds",
        }
        for _ in range(_PLACES):
            place = await self._with_room()
            stream = place.open(headers, payload, self._path)
            if stream is None:
                continue
            try:
                try:
                    await stream.head()
                except _NotLookedAtError:
                    place.retire()
                    continue
                yield stream
                return
            finally:
                stream.leave()
        raise aiohttp.ClientConnectionError("The server closed each connection that was tried.")

    def statistics(self) -> list[tuple[int, int]]:
        """Of each connection, how many streams are read and how many are left open."""
        return [(len(place.read), len(place.left_open)) for place in self._places]

    async def aclose(self) -> None:
        """Close all connections; what is read from them fails. Idempotent."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        places = tuple(self._places)
        for place in places:
            place.close()
        if places:
            await asyncio.wait({place.shut for place in places}, timeout=_CLOSE_TIMEOUT_S)
        self._places.clear()
        self._gathered.close()
        self._runtime = None

    async def _with_room(self) -> _Place:
        """The connection that takes the next stream; a new one where all are full."""
        while not self._closed:
            free = [place for place in self._places if place.room > 0]
            if free:
                return max(free, key=lambda place: place.room)
            if self._connecting is None or self._connecting.done():
                self._connecting = self._loop.create_task(self._connect(), name="http2-connect")
                self._connecting.add_done_callback(_forget)
            connecting = self._connecting
            # Not awaited itself: whoever is cancelled here must not end it for the others.
            await asyncio.wait({connecting})
            if connecting.cancelled():
                break
            failed = connecting.exception()
            if failed is not None:
                # One each: a traceback grows with each who raises.
                raise type(failed)(*failed.args) from failed
        raise aiohttp.ClientConnectionError("The connection was closed.")

    async def _connect(self) -> None:
        if self._runtime is None:
            self._runtime = _Runtime(self._trust())
        place = _Place(self._loop, self._gathered, self._changed)
        coming = self._runtime.connect(self._host, self._port, place)
        made: asyncio.Future[Any] = self._loop.create_future()
        coming.add_done_callback(lambda done: _hand_over(self._loop, done, made))
        try:
            await asyncio.wait({made}, timeout=_ASK_AFTER_S)
            if not made.done():
                await self._wait_or_learn_why_not(made)
        finally:
            if not made.done():
                made.cancel()  # should it still come, it is closed
        if made.cancelled():
            raise aiohttp.ClientConnectionError(
                f"No TLS connection to {self._authority} within {_CONNECT_TIMEOUT_S:g}s."
            )
        failed = made.exception()
        if failed is not None:
            raise _connect_error(failed) from failed
        place.runtime = made.result()
        place.runtime.shutdown_future.add_done_callback(place.on_shutdown)
        self._places.append(place)
        try:
            # How many streams the server allows. It says so at once.
            await asyncio.wait({place.settled}, timeout=_CONNECT_TIMEOUT_S)
        except asyncio.CancelledError:
            place.close()
            raise

    async def _wait_or_learn_why_not(self, made: asyncio.Future[Any]) -> None:
        """Wait on for a connection, as long as Python's own TLS does not say what is wrong.

        Raises:
            ssl.SSLError: It does.
        """
        deadline = self._loop.time() + _CONNECT_TIMEOUT_S - _ASK_AFTER_S
        asking = self._loop.create_task(self._shake_hands(), name="http2-handshake")
        asking.add_done_callback(_forget)
        waited_for: set[asyncio.Future[Any]] = {made, asking}
        try:
            while waited_for and not made.done():
                left = max(0.0, deadline - self._loop.time())
                done, waited_for = await asyncio.wait(
                    waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if asking in done and isinstance(failed := asking.exception(), ssl.SSLError):
                    raise failed
                if not done:
                    return
        finally:
            asking.cancel()
            await asyncio.wait({asking})

    async def _shake_hands(self) -> None:
        """Make a TLS connection without the runtime, and drop it."""
        assert self._runtime is not None
        context = self._runtime.trust.context()
        _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        writer.transport.abort()

    def _changed(self, place: _Place) -> None:
        if place.shut.done() and place in self._places:
            self._places.remove(place)


class _Runtime:
    """`awscrt`'s thread and what it needs to make connections. It ends with its last reference."""

    def __init__(self, trust: Trust) -> None:
        from awscrt import io as crt  # noqa: PLC0415

        self.trust = trust
        options = crt.TlsContextOptions()
        options.alpn_list = _OFFERED
        if trust.file or trust.folder:
            options.override_default_trust_store_from_path(trust.folder, trust.file)
        try:
            self._tls = crt.ClientTlsContext(options)
        except Exception as exc:
            raise ssl.SSLError(f"the certificates to trust cannot be used: {exc}") from exc
        group = crt.EventLoopGroup(1)
        self._bootstrap = crt.ClientBootstrap(group, crt.DefaultHostResolver(group))
        self._socket = crt.SocketOptions()
        self._socket.connect_timeout_ms = int(_CONNECT_TIMEOUT_S * 1000)
        self._socket.keep_alive = True
        self._socket.keep_alive_timeout_secs = _KEEP_ALIVE_S
        self._socket.keep_alive_interval_secs = _KEEP_ALIVE_S
        self._socket.keep_alive_max_probes = _KEEP_ALIVE_PROBES

    def connect(self, host: str, port: int, place: _Place) -> Future[Any]:
        from awscrt.http import Http2ClientConnection, Http2Setting, Http2SettingID  # noqa: PLC0415

        tls = self._tls.new_connection_options()
        tls.set_server_name(host)
        connecting: Future[Any] = Http2ClientConnection.new(
            host,
            port,
            self._bootstrap,
            self._socket,
            tls,
            # A server that makes frames as large as a TLS record halves the pieces that come.
            initial_settings=[Http2Setting(Http2SettingID.MAX_FRAME_SIZE, WINDOW_BYTES)],
            on_remote_settings_changed=place.on_settings,
            manual_window_management=True,
            initial_window_size=WINDOW_BYTES,
        )
        return connecting


def _forget(task: asyncio.Task[None]) -> None:
    """Whoever waited for it may have gone: its failure is nobody's then."""
    if not task.cancelled():
        task.exception()


def _connect_error(failed: BaseException) -> Exception:
    name = getattr(failed, "name", type(failed).__name__)
    said = getattr(failed, "message", str(failed))
    if "UNSUPPORTED_PROTOCOL" in name:
        return NoHttp2Error(said)
    if "_TLS_" in name:
        return ssl.SSLError(f"{said} ({name})")
    return aiohttp.ClientConnectionError(f"{said} ({name})")


def _hand_over(
    loop: asyncio.AbstractEventLoop, done: Future[Any], made: asyncio.Future[Any]
) -> None:
    """Give a connection to who waits for it; nobody waits any more: close it. On any thread."""

    def settle() -> None:
        failed = done.exception()
        if made.done():
            if failed is None:
                done.result().close()
        elif failed is not None:
            made.set_exception(failed)
        else:
            made.set_result(done.result())

    if not _post(loop, settle) and done.exception() is None:
        done.result().close()


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> bool:
    """Call something on a loop soon, from any thread; False where the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True
