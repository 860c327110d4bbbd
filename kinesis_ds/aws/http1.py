"""Requests over HTTP/1.1, with aiohttp."""

from __future__ import annotations

import contextlib
import functools
import urllib.parse
import urllib.request
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp

from kinesis_ds.aws.answers import MAX_ERROR_BYTES, error_answer
from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_FRAME_BYTES

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from kinesis_ds.aws.signing import SignedRequest

CONNECT_TIMEOUT_S = 10.0
# aiohttp stops reading a socket at twice this; so does a shard whose buffer is full.
_READ_AHEAD_BYTES = 128 * 1024


def http1_session(trust: ssl.SSLContext | bool) -> aiohttp.ClientSession:
    """Return a session without a limit of connections. Close it when done.

    Args:
        trust: The certificates to trust, as aiohttp takes them.
    """
    return aiohttp.ClientSession(
        # Each subscription holds a connection of its own for as long as it lives.
        connector=aiohttp.TCPConnector(limit=0, ssl=trust),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        read_bufsize=_READ_AHEAD_BYTES,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


@contextlib.asynccontextmanager
async def post(
    session: aiohttp.ClientSession, request: SignedRequest, target: str, **options: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request and yield its response if it has status 200.

    Leaving the context before the end of the body closes the socket.

    Args:
        session: Made by :func:`http1_session`.
        request: What to send.
        target: What the call is about, for messages.
        options: More arguments for aiohttp, such as ``timeout``.

    Raises:
        KinesisConnectorError: The answer has another status.
        aiohttp.ClientError: The request could not be sent, or was not answered.
    """
    options |= _proxy_for(request.endpoint)
    async with session.post(
        request.endpoint, data=request.payload, headers=request.headers, **options
    ) as response:
        try:
            if response.status != 200:
                body = await read_beginning(response, MAX_ERROR_BYTES)
                error_type = response.headers.get("x-amzn-ErrorType")
                raise error_answer(response.status, error_type, body, request.operation, target)
            yield response
        finally:
            break_off(response)


def break_off(response: aiohttp.ClientResponse) -> None:
    """Close the socket of an answer that was not read to its end, at once.

    A regular close would say goodbye in TLS and wait for the same from a peer that may still be
    sending. That takes up to 30 s, longer than the event loop may live.
    """
    connection = response.connection
    if connection is None:
        return  # read to its end, and given back
    transport = connection.transport
    response.close()
    if transport is not None:
        transport.abort()


async def body_chunks(
    response: aiohttp.ClientResponse, operation: str, target: str
) -> AsyncIterator[bytes]:
    """Yield the body as it arrives.

    Raises:
        ProtocolError: It is longer than an answer can be.
    """
    left = MAX_FRAME_BYTES
    async for chunk in response.content.iter_any():
        left -= len(chunk)
        if left < 0:
            raise ProtocolError(
                f"{operation} for {target} answered more than {MAX_FRAME_BYTES} bytes.",
                "Is the endpoint a Kinesis endpoint?",
            )
        yield chunk


async def read_beginning(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the body, which may come in pieces, cut at ``max_bytes``."""
    body = b""
    while len(body) < max_bytes and (piece := await response.content.read(max_bytes - len(body))):
        body += piece
    return body


def served_ms(response: aiohttp.ClientResponse) -> int | None:
    """Return the ``Date`` of an answer in milliseconds since the epoch, None if it has none."""
    try:
        return int(parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=16)
def _proxy_for(endpoint: str) -> dict[str, Any]:
    """Return the argument ``proxy`` for aiohttp, or nothing, by the environment at the first call.

    aiohttp itself would look up the environment with each request, on a thread of its own. It would
    also look for a password in ``.netrc``, and that would replace the signature.
    """
    parts = urllib.parse.urlsplit(endpoint)
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or urllib.request.proxy_bypass(parts.hostname or ""):
        return {}
    return {"proxy": found}  # with user and password, if it has them
