"""The HTTP/2 connections to one endpoint: which one takes the next request, and when to add one."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from typing import TYPE_CHECKING

import aiohttp

from kinesis_ds.aws.http2.connection import Http2Connection
from kinesis_ds.aws.http2.connector import Connector, retrieve_exception
from kinesis_ds.aws.http2.stream import RequestNotProcessedError
from kinesis_ds.aws.http2.wakeup import DelayedWakeup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kinesis_ds.aws.http2.stream import Http2Stream
    from kinesis_ds.aws.trust import Trust

# A request that the server has not processed is sent again over another connection: so many tries.
_MAX_TRIES = 3
# A server sends its settings at once, and with them how many streams it allows.
_SETTINGS_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 5.0


class Http2Pool:
    """Connections to one endpoint. Belongs to one event loop; close it when done.

    Args:
        endpoint: Its URL, https.
        trust: The certificates to trust.
        can_wait: Returns True if a piece of an answer can wait for a tenth of a second, or until
            the next piece of the same answer. Called on `awscrt`'s thread.

    Attributes:
        endpoint: As given.
    """

    def __init__(
        self,
        endpoint: str,
        trust: Trust,
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
        self._wakeup = DelayedWakeup(self._loop, can_wait)
        self._connections: list[Http2Connection] = []
        self._connecting: asyncio.Task[None] | None = None
        self._connector: Connector | None = None
        self._closed = False

    @contextlib.asynccontextmanager
    async def post(self, headers: Mapping[str, str], payload: bytes) -> AsyncIterator[Http2Stream]:
        """Send a request and yield its answer once that has begun. Leaving the context gives it up.

        Raises:
            NoHttp2Error: The endpoint does not speak HTTP/2.
            aiohttp.ClientError: No connection could be made, or it broke.
            ssl.SSLError: TLS failed.
        """
        headers = {
            **headers,
            "host": self._authority,
            "content-length": str(len(payload)),
            "user-agent": "kinesis_ds",
        }
        for _ in range(_MAX_TRIES):
            connection = await self._free_connection()
            stream = connection.open(headers, payload, self._path)
            if stream is None:
                continue
            try:
                try:
                    await stream.head()
                except RequestNotProcessedError:
                    connection.retire()
                    continue
                yield stream
                return
            finally:
                stream.leave()
        raise aiohttp.ClientConnectionError("The server closed each connection that was tried.")

    def statistics(self) -> list[tuple[int, int]]:
        """Return for each connection how many streams are read and how many are left open."""
        return [(len(each.active), len(each.left_open)) for each in self._connections]

    async def aclose(self) -> None:
        """Close all connections; whoever still reads from them gets an error. Idempotent."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        connections = tuple(self._connections)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait({each.closed for each in connections}, timeout=_CLOSE_TIMEOUT_S)
        self._connections.clear()
        self._wakeup.close()
        self._connector = None

    async def _free_connection(self) -> Http2Connection:
        """Return the connection with the most free slots; add one if all are full."""
        while not self._closed:
            free = [each for each in self._connections if each.free_slots > 0]
            if free:
                return max(free, key=lambda each: each.free_slots)
            if self._connecting is None or self._connecting.done():
                self._connecting = self._loop.create_task(self._connect(), name="http2-connect")
                self._connecting.add_done_callback(retrieve_exception)
            connecting = self._connecting
            # Awaiting the task itself would cancel it for all when one of those who wait is
            # cancelled.
            await asyncio.wait({connecting})
            if connecting.cancelled():
                break
            failed = connecting.exception()
            if failed is not None:
                # A copy for each caller: raising the same object again makes its traceback longer.
                raise type(failed)(*failed.args) from failed
        raise aiohttp.ClientConnectionError("The connection was closed.")

    async def _connect(self) -> None:
        if self._connector is None:
            self._connector = Connector(self._host, self._port, self._authority, self._trust)
        connection = Http2Connection(self._loop, self._wakeup, self._remove)
        connection.start(await self._connector.connect(connection.on_settings))
        self._connections.append(connection)
        try:
            await asyncio.wait({connection.settings_received}, timeout=_SETTINGS_TIMEOUT_S)
        except asyncio.CancelledError:
            connection.close()
            raise

    def _remove(self, connection: Http2Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
