"""Simple clients that show byte by byte what the double sends over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import orjson

from kinesis_ds.testing.frames import initial_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_ds.testing import KinesisServer

_TIMEOUT_S = 20.0
# Bytes of the message that begins every subscription.
INITIAL = len(initial_message())


class Torn(Exception):  # noqa: N818  # what the tests look for
    """The connection was cut in the middle of the body."""


def headers_of(operation: str) -> dict[str, str]:
    return {
        "X-Amz-Target": f"Kinesis_20131202.{operation}",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20261120/us-east-1/kinesis/aws4_request",
    }


class Reply:
    """A status, and a body that comes in pieces."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status = status
        self.pieces = pieces

    def body(self) -> bytes:
        """Return the whole body. Raises Torn."""
        return b"".join(self.pieces)

    def json(self) -> Any:
        return orjson.loads(self.body())

    def read(self, size: int) -> bytes:
        """Return at least so many bytes, or all there are."""
        found = b""
        while len(found) < size and (piece := next(self.pieces, b"")):
            found += piece
        return found


class Http1Client:
    """An HTTP/1.1 client with a connection for each request."""

    def __init__(self, endpoint: str) -> None:
        self._address = urlsplit(endpoint).netloc
        self._open: list[http.client.HTTPConnection | http.client.HTTPResponse] = []

    def post(
        self, operation: str, members: dict[str, Any] | bytes, headers: dict[str, str] | None = None
    ) -> Reply:
        body = members if isinstance(members, bytes) else orjson.dumps(members)
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_S)
        self._open.append(connection)
        connection.request("POST", "/", body, headers_of(operation) if headers is None else headers)
        try:
            answer = connection.getresponse()
        except (http.client.HTTPException, ConnectionError) as exc:
            raise Torn from exc
        self._open.append(answer)
        return Reply(answer.status, self._pieces(answer))

    def _pieces(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while piece := answer.read1(65536):
                yield piece
        except (http.client.HTTPException, ConnectionError) as exc:
            raise Torn from exc

    def close(self) -> None:
        for closable in self._open:
            closable.close()


class Http2Client:
    """One HTTP/2 connection with TLS for all requests. Reading from a stream opens its window."""

    def __init__(self, server: KinesisServer) -> None:
        context = ssl.create_default_context(cafile=str(server.ca_file))
        context.set_alpn_protocols(["h2"])
        url = urlsplit(server.tls_endpoint)
        plain = socket.create_connection((url.hostname, url.port), timeout=_TIMEOUT_S)
        self._socket = context.wrap_socket(plain, server_hostname=url.hostname)
        assert self._socket.selected_alpn_protocol() == "h2"
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(2**24)
        self._streams: dict[int, list[Any]] = {}
        self._lost = False
        self._flush()

    def post(
        self, operation: str, members: dict[str, Any] | bytes, headers: dict[str, str] | None = None
    ) -> Reply:
        body = members if isinstance(members, bytes) else orjson.dumps(members)
        number = self._h2.get_next_available_stream_id()
        given = headers_of(operation) if headers is None else headers
        pseudo = {":method": "POST", ":path": "/", ":scheme": "https", ":authority": "127.0.0.1"}
        lower = {name.lower(): value for name, value in given.items()}
        self._h2.send_headers(number, list((pseudo | lower).items()))
        self._h2.send_data(number, body, end_stream=True)
        self._streams[number] = []
        self._flush()
        while not (first := self._next(number)):
            pass
        return Reply(first, self._pieces(number))

    def received(self, reply_number: int) -> int:
        """Return the bytes of a stream that have come and were not read yet."""
        return sum(len(e) for e in self._streams[reply_number] if isinstance(e, bytes))

    def pump(self) -> None:
        """Read what has come, with at most a short wait."""
        self._socket.settimeout(0.2)
        try:
            self._receive()
        except TimeoutError:
            return
        finally:
            self._socket.settimeout(_TIMEOUT_S)

    def _pieces(self, number: int) -> Iterator[bytes]:
        while True:
            event = self._next(number)
            if event is None:
                return
            self._h2.acknowledge_received_data(len(event), number)
            self._flush()
            yield event

    def _next(self, number: int) -> Any:
        """Return the status, then each piece, then None. Raises Torn."""
        while not self._streams[number]:
            self._receive()
        event = self._streams[number].pop(0)
        if event is Torn:
            raise Torn
        return event

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            for waiting in self._streams.values():
                waiting.append(Torn)
            return
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    status = int(dict(event.headers or [])[":status"])
                    self._streams[event.stream_id].append(status)
                case h2.events.DataReceived():
                    self._streams[event.stream_id].append(event.data)
                case h2.events.StreamEnded():
                    self._streams[event.stream_id].append(None)
                case h2.events.StreamReset():
                    self._streams[event.stream_id].append(Torn)
                case h2.events.ConnectionTerminated():
                    for waiting in self._streams.values():
                        waiting.append(Torn)
        self._flush()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


WireClient = Http1Client | Http2Client


def events(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a body behind the initial response; every frame is whole."""
    found = []
    at = INITIAL
    while at < len(body):
        size, headers = (
            int.from_bytes(body[at : at + 4], "big"),
            int.from_bytes(body[at + 4 : at + 8], "big"),
        )
        assert len(body) >= at + size, "a frame that was cut"
        found.append(orjson.loads(body[at + 12 + headers : at + size - 4]))
        at += size
    return found
