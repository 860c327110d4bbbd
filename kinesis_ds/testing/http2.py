"""HTTP/2 on asyncio: many streams on one connection, each within its flow-control window."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

from kinesis_ds.testing.http import MAX_BODY_BYTES, Request

if TYPE_CHECKING:
    from kinesis_ds.testing.http import Handler

# Sending is held up while this much waits in the transport.
_HIGH_WATER = 256 * 1024
# On one connection.
MAX_STREAMS = 100


class _Stream:
    """A request under way, and its :class:`~kinesis_ds.testing.http.Reply`."""

    def __init__(self, connection: Http2Protocol, stream_id: int, headers: dict[str, str]) -> None:
        self.headers = headers
        self.body = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.room = asyncio.Event()
        self._connection = connection
        self._id = stream_id
        self._gone = False

    def close(self) -> None:
        """Give the request up: the client has reset the stream, or its connection is lost."""
        self._gone = True
        self.room.set()
        if self.task is not None:
            self.task.cancel()

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self._check()
        pairs = [(":status", str(status)), *((k.lower(), v) for k, v in headers.items())]
        with self._closed_is_gone():
            self._connection.h2.send_headers(self._id, pairs)
        self._connection.flush()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._check()
            with self._closed_is_gone():
                size = min(
                    self._connection.h2.local_flow_control_window(self._id),
                    self._connection.h2.max_outbound_frame_size,
                    len(view),
                )
                if size > 0:
                    self._connection.h2.send_data(self._id, view[:size].tobytes())
            if size <= 0:
                self.room.clear()
                await self.room.wait()
                continue
            view = view[size:]
            self._connection.flush()
            await self._connection.drained()

    async def end(self) -> None:
        self._check()
        with self._closed_is_gone():
            self._connection.h2.end_stream(self._id)
        self._connection.flush()

    def tear(self, *, at_once: bool = False) -> None:
        del at_once  # what waits for the stream's window is never sent in any case
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._connection.h2.reset_stream(self._id, h2.errors.ErrorCodes.INTERNAL_ERROR)
        self._connection.flush()

    def _check(self) -> None:
        if self._gone:
            raise ConnectionResetError("the client has gone")

    @contextlib.contextmanager
    def _closed_is_gone(self) -> Iterator[None]:
        try:
            yield
        except h2.exceptions.ProtocolError as exc:
            self._gone = True
            raise ConnectionResetError("the stream is closed") from exc


class Http2Protocol(asyncio.Protocol):
    """The server's side of one connection.

    Args:
        handler: Answers each request, in a task of its own.
        connected: The connection is in this set while it is open.

    Attributes:
        h2: The state of the protocol.
        transport: Its transport; None before it is made and once it is lost.
    """

    def __init__(self, handler: Handler, connected: set[Http2Protocol]) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._handler = handler
        self._connected = connected
        self._streams: dict[int, _Stream] = {}
        self._refuses_next = False
        self._refuses_from: int | None = None
        self._frozen = False
        self.transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER)
        self._connected.add(self)
        self.h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: self.h2.DEFAULT_MAX_HEADER_LIST_SIZE,
            },
        )
        self.h2.initiate_connection()
        # Bodies of PutRecords reach 14 MB: the window is not what tests are about.
        self.h2.increment_flow_control_window(2**24)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.transport.close()  # Python 3.10 wants that of a lost TLS connection too
        self.transport = None
        self._connected.discard(self)
        self._writable.set()
        for stream in tuple(self._streams.values()):
            stream.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def drained(self) -> None:
        """Wait until the socket takes more.

        Raises:
            ConnectionResetError: The connection is lost.
        """
        await self._writable.wait()
        if self.transport is None:
            raise ConnectionResetError("the connection is lost")

    def flush(self) -> None:
        if self.transport is not None and not self._frozen and (data := self.h2.data_to_send()):
            self.transport.write(data)

    def go_away(self, *, at_next_call: bool = False) -> None:
        """Send GOAWAY, and still answer the calls that are under way.

        Args:
            at_next_call: Send it only when another call comes, and do not answer that call.
        """
        if at_next_call:
            self._refuses_next = True
        else:
            self._say_go_away(2**31 - 1)

    def freeze(self) -> None:
        """Carry nothing more in either direction, and keep the connection open."""
        self._frozen = True
        if self.transport is not None:
            self.transport.pause_reading()

    def _say_go_away(self, last_stream_id: int) -> None:
        if self.transport is not None:
            # `h2` sends nothing more once it has said it.
            self.transport.write(GoAwayFrame(last_stream_id=last_stream_id).serialize())

    def close(self) -> None:
        """Send GOAWAY and close."""
        if self.transport is not None:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.h2.close_connection()
            self.flush()
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self.close()
            return
        for event in events:
            self._take(event)
        self.flush()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived() if self._refuses(event.stream_id):
                pass
            case h2.events.RequestReceived():
                headers = {str(k).lower(): str(v) for k, v in event.headers}
                self._streams[event.stream_id] = _Stream(self, event.stream_id, headers)
            case h2.events.DataReceived():
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    stream.body += event.data
                    if len(stream.body) > MAX_BODY_BYTES:
                        stream.tear()
                        self._end(event.stream_id)
            case h2.events.StreamEnded():
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    stream.task = asyncio.get_running_loop().create_task(
                        self._answer(event.stream_id, stream)
                    )
            case h2.events.StreamReset():
                self._end(event.stream_id)
            case h2.events.WindowUpdated():
                self._more_room([event.stream_id] if event.stream_id else self._streams)
            case h2.events.RemoteSettingsChanged():
                self._more_room(self._streams)
            case h2.events.ConnectionTerminated():
                self.close()

    def _more_room(self, stream_ids: Iterable[int]) -> None:
        """Let the writers of these streams go on, as far as the streams are still there."""
        for stream_id in stream_ids:
            if stream_id in self._streams:
                self._streams[stream_id].room.set()

    def _refuses(self, stream_id: int) -> bool:
        """Return whether a call comes after GOAWAY; send GOAWAY now if it was to come with it."""
        if self._refuses_next and self._refuses_from is None:
            self._refuses_from = stream_id
            self._say_go_away(stream_id - 1)
        return self._refuses_from is not None and stream_id >= self._refuses_from

    def _end(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.close()

    async def _answer(self, stream_id: int, stream: _Stream) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                await self._handler(Request(stream.headers, bytes(stream.body), "2"), stream)
        finally:
            self._streams.pop(stream_id, None)
