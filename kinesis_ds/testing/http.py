"""A request and the way to answer it, for any version of HTTP; and HTTP/1.1.

HTTP/1.1 is aiohttp's low-level server. HTTP/2 is :mod:`kinesis_ds.testing.http2`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from kinesis_ds.limits import MIB

# The largest PutRecords is 10 MiB before base64.
MAX_BODY_BYTES = 16 * MIB


@dataclass(frozen=True)
class Request:
    """A request, read to its end.

    Attributes:
        headers: By name in lower case.
        body: All of the body.
        http_version: ``1.1`` or ``2``.
    """

    headers: Mapping[str, str]
    body: bytes
    http_version: str


class Reply(Protocol):
    """The answer to one request.

    Every method raises ConnectionError if the client has gone. The request's handler is cancelled
    when the client goes.
    """

    async def start(self, status: int, headers: Mapping[str, str]) -> None: ...

    async def write(self, data: bytes) -> None:
        """Send a piece of the body; wait while the client does not take it."""

    async def end(self) -> None:
        """End the body properly."""

    def tear(self, *, at_once: bool = False) -> None:
        """Break off without an end. What was written still arrives, unless ``at_once``."""


Handler = Callable[[Request, Reply], Awaitable[None]]


class _Http1Reply:
    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None
        self.torn = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.response = web.StreamResponse(status=status, headers=headers)
        if "Content-Length" not in headers:
            self.response.enable_chunked_encoding()
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        assert self.response is not None
        await self.response.write(data)

    async def end(self) -> None:
        assert self.response is not None
        await self.response.write_eof()

    def tear(self, *, at_once: bool = False) -> None:
        self.torn = True
        if self._request.transport is not None:
            if at_once:
                self._request.transport.abort()
            else:
                self._request.transport.close()


def http1_protocol(handler: Handler) -> web.Server:
    """Return a factory of protocols for ``loop.create_server``. Call on the loop."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = _Http1Reply(request)
        with contextlib.suppress(ConnectionError):
            await handler(Request(headers, body, "1.1"), reply)
        if reply.response is None or reply.torn:
            # Nothing may follow on this connection, least of all an answer of aiohttp's own.
            reply.tear()
            raise asyncio.CancelledError
        return reply.response

    return web.Server(handle, handler_cancellation=True, access_log=None, lingering_time=0)
