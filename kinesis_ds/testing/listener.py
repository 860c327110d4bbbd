"""The ports of the double: HTTP/1.1, and with TLS what a client chooses; its open connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from kinesis_ds.testing.http import http1_protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aiohttp import web

    from kinesis_ds.testing.http import Handler
    from kinesis_ds.testing.http2 import Http2Protocol

# How many seconds requests under way have when the listener closes; 0 would mean for ever.
_GRACE_S = 0.05


class Listener:
    """Listens on one address, and may close and open again on the same ports. Use it on one loop.

    Args:
        handler: Answers each request.
        host: The IP address to listen on.
        port: Port of HTTP/1.1 without TLS; 0 for a free one.
        tls: Also listen with TLS, on a free port.

    Attributes:
        port: The port of HTTP/1.1 without TLS, once it was open.
        tls_port: The port with TLS, once it was open; else 0.
    """

    def __init__(self, handler: Handler, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host = host
        self.port = port
        self.tls_port = 0
        self._handler = handler
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._http1: web.Server | None = None
        self._http2: set[Http2Protocol] = set()

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: A port is taken.
        """
        loop = asyncio.get_running_loop()
        self._http1 = http1_protocol(self._handler)
        plain = await loop.create_server(self._http1, self._host, self.port)
        self.port = plain.sockets[0].getsockname()[1]
        self._servers = [plain]
        if self._tls is not None:
            secure = await loop.create_server(
                self._by_alpn, self._host, self.tls_port, ssl=self._tls
            )
            self.tls_port = secure.sockets[0].getsockname()[1]
            self._servers.append(secure)

    async def close(self) -> None:
        """Stop listening and tear all connections. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers = []
        transports = [connection.transport for connection in self._http2]
        for connection in tuple(self._http2):
            connection.close()
        if self._http1 is not None:
            transports += [connection.transport for connection in self._http1.connections]
            self._http1.pre_shutdown()
            await self._http1.shutdown(_GRACE_S)
            self._http1 = None
        for transport in transports:
            if transport is not None:
                transport.abort()  # what a client does not take would hold it open
        # Transports end in the loop's next rounds, and TLS takes a few.
        for _ in range(5):
            await asyncio.sleep(0)

    def connections(self) -> int:
        """Count the connections that are open, or closed with a call still being worked on."""
        return len(self._http2) + (len(self._http1.connections) if self._http1 else 0)

    async def go_away(self, *, at_next_call: bool = False) -> None:
        """Send GOAWAY on every HTTP/2 connection, at once or when another call comes on it."""
        for connection in tuple(self._http2):
            connection.go_away(at_next_call=at_next_call)

    async def freeze(self) -> None:
        """Carry nothing more on the HTTP/2 connections that are open, and keep them open."""
        for connection in tuple(self._http2):
            connection.freeze()

    def _by_alpn(self) -> asyncio.Protocol:
        assert self._http1 is not None
        return _AlpnSwitch(self._http1, self._new_http2)

    def _new_http2(self) -> asyncio.Protocol:
        from kinesis_ds.testing.http2 import Http2Protocol  # noqa: PLC0415  # needs the package h2

        return Http2Protocol(self._handler, self._http2)


class _AlpnSwitch(asyncio.Protocol):
    """Becomes the protocol that the client chose, once the handshake is over."""

    def __init__(
        self, http1: Callable[[], asyncio.Protocol], http2: Callable[[], asyncio.Protocol]
    ) -> None:
        self._http1 = http1
        self._http2 = http2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        chosen = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = (self._http2 if chosen == "h2" else self._http1)()
        cast("asyncio.Transport", transport).set_protocol(protocol)
        protocol.connection_made(transport)
