"""Make connections with `awscrt`, and find out why one cannot be made."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp

from kinesis_ds.aws.http2.stream import WINDOW_BYTES
from kinesis_ds.aws.http2.wakeup import call_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kinesis_ds.aws.trust import Trust

_CONNECT_TIMEOUT_S = 10.0
# `awscrt` reports a failed TLS handshake only after half a minute. After this long without a
# connection, Python's TLS is asked what is wrong.
_ASK_PYTHON_AFTER_S = 2.0
# TCP keep-alive finds a dead peer within 30 s, even if no stream is watched.
_KEEP_ALIVE_S, _KEEP_ALIVE_PROBES = 10, 2
# A server without HTTP/2 chooses the second, instead of ending the handshake.
_ALPN_PROTOCOLS = ["h2", "http/1.1"]


class NoHttp2Error(Exception):
    """The endpoint chose another protocol than HTTP/2 (ALPN)."""


class Connector:
    """Makes connections to one endpoint. Owns `awscrt`'s thread, which ends with this object.

    Args:
        host: Name or address of the endpoint.
        port: Its port.
        label: The endpoint in error texts.
        trust: The certificates to trust.

    Raises:
        ssl.SSLError: The certificates cannot be used.
    """

    def __init__(self, host: str, port: int, label: str, trust: Trust) -> None:
        from awscrt import io as crt  # noqa: PLC0415

        self._host = host
        self._port = port
        self._label = label
        self._trust = trust
        options = crt.TlsContextOptions()
        options.alpn_list = _ALPN_PROTOCOLS
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

    async def connect(self, on_settings: Callable[[list[Any]], None]) -> Any:
        """Return a new connection, an object of `awscrt`.

        Args:
            on_settings: Called on `awscrt`'s thread with the server's settings.

        Raises:
            NoHttp2Error: The endpoint does not speak HTTP/2.
            ssl.SSLError: The TLS handshake failed.
            aiohttp.ClientConnectionError: The endpoint cannot be reached, or not in time.
        """
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Any] = loop.create_future()
        started = self._start(on_settings)
        started.add_done_callback(lambda done: _hand_over(loop, done, made))
        try:
            await asyncio.wait({made}, timeout=_ASK_PYTHON_AFTER_S)
            if not made.done():
                await self._wait_and_ask_python(made)
        finally:
            if not made.done():
                made.cancel()  # a connection that still comes is closed
        if made.cancelled():
            raise aiohttp.ClientConnectionError(
                f"No TLS connection to {self._label} within {_CONNECT_TIMEOUT_S:g}s."
            )
        failed = made.exception()
        if failed is not None:
            raise _translated(failed) from failed
        return made.result()

    def _start(self, on_settings: Callable[[list[Any]], None]) -> Future[Any]:
        from awscrt.http import Http2ClientConnection, Http2Setting, Http2SettingID  # noqa: PLC0415

        tls = self._tls.new_connection_options()
        tls.set_server_name(self._host)
        started: Future[Any] = Http2ClientConnection.new(
            self._host,
            self._port,
            self._bootstrap,
            self._socket,
            tls,
            # Servers that fill a frame with one TLS record would send pieces of half the size.
            initial_settings=[Http2Setting(Http2SettingID.MAX_FRAME_SIZE, WINDOW_BYTES)],
            on_remote_settings_changed=on_settings,
            manual_window_management=True,
            initial_window_size=WINDOW_BYTES,
        )
        return started

    async def _wait_and_ask_python(self, made: asyncio.Future[Any]) -> None:
        """Wait for the connection until the time is over, or Python's TLS says what is wrong.

        Raises:
            ssl.SSLError: Python's TLS handshake failed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONNECT_TIMEOUT_S - _ASK_PYTHON_AFTER_S
        handshake = loop.create_task(self._handshake_in_python(), name="http2-handshake")
        handshake.add_done_callback(retrieve_exception)
        waited_for: set[asyncio.Future[Any]] = {made, handshake}
        try:
            while waited_for and not made.done():
                left = max(0.0, deadline - loop.time())
                done, waited_for = await asyncio.wait(
                    waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if handshake in done and isinstance(failed := handshake.exception(), ssl.SSLError):
                    raise failed
                if not done:
                    return
        finally:
            handshake.cancel()
            await asyncio.wait({handshake})

    async def _handshake_in_python(self) -> None:
        """Make a TLS connection without `awscrt`, and drop it."""
        context = self._trust.context()
        context.set_alpn_protocols(_ALPN_PROTOCOLS)
        _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        writer.transport.abort()


def retrieve_exception(task: asyncio.Task[None]) -> None:
    """Keep asyncio from logging a task's exception when nobody is left to await the task."""
    if not task.cancelled():
        task.exception()


def _translated(failed: BaseException) -> Exception:
    name = getattr(failed, "name", type(failed).__name__)
    message = getattr(failed, "message", str(failed))
    if "UNSUPPORTED_PROTOCOL" in name:
        return NoHttp2Error(message)
    if "_TLS_" in name:
        return ssl.SSLError(f"{message} ({name})")
    return aiohttp.ClientConnectionError(f"{message} ({name})")


def _hand_over(
    loop: asyncio.AbstractEventLoop, done: Future[Any], made: asyncio.Future[Any]
) -> None:
    """Pass a connection to the loop; close it if nobody waits for it. Called on any thread."""

    def settle() -> None:
        failed = done.exception()
        if made.done():
            if failed is None:
                done.result().close()
        elif failed is not None:
            made.set_exception(failed)
        else:
            made.set_result(done.result())

    if not call_on_loop(loop, settle) and done.exception() is None:
        done.result().close()
