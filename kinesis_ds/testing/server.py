"""The double as a server on 127.0.0.1, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson

from kinesis_ds.testing.account import Account
from kinesis_ds.testing.clock import Changes, ScaledClock, ServerClock
from kinesis_ds.testing.endpoint import Endpoint
from kinesis_ds.testing.http import http1_protocol
from kinesis_ds.testing.settings import Settings
from kinesis_ds.testing.swallowing import Swallow

if TYPE_CHECKING:
    from aiohttp import web

    from kinesis_ds.testing.faults import Fault, Target
    from kinesis_ds.testing.http2 import Http2Protocol
    from kinesis_ds.testing.journal import Journal
    from kinesis_ds.testing.log import StoredRecord
    from kinesis_ds.testing.replay import Replay
    from kinesis_ds.testing.subscription import Subscription

logger = logging.getLogger(__name__)

T = TypeVar("T")
HOST = "127.0.0.1"
_ANSWER_WITHIN_S = 60.0
_LOOK_AGAIN_S = 0.2
# Sums of times are not exact: what is to be done by now was begun a little earlier.
_ROUNDING_S = 0.001
# Of requests under way when the server ends; 0 would mean for ever.
_GRACE_S = 0.05


class KinesisServer:
    """A Kinesis on this machine that keeps the service's rules. Use as a context manager.

        with KinesisServer() as kinesis:
            kinesis.create_stream("orders", shards=4)
            query = spark.readStream.format("kinesis").options(**kinesis.options("orders"))...

    Any credentials are accepted. Methods may be called from any thread.

    Args:
        settings: How it behaves.
        clock: The time it lives in: :class:`~kinesis_ds.testing.ScaledClock` (the machine's own by
            default) or :class:`~kinesis_ds.testing.ManualClock`.
        faults: What is to go wrong.
        port: Of HTTP/1.1; 0 for a free one.
        tls: Also listen with TLS, where a client may choose HTTP/2 or HTTP/1.1 by ALPN.

    Attributes:
        settings, clock: As given.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: ServerClock | None = None,
        faults: Sequence[Fault] = (),
        port: int = 0,
        tls: bool = False,
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock or ScaledClock()
        self._first_faults = tuple(faults)
        self._port = port
        self._tls = tls
        self._tls_port = 0
        self._certificate: _Certificate | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._endpoint: Endpoint | None = None
        self._changes: Changes | None = None
        self._listeners: list[asyncio.Server] = []
        self._http1: web.Server | None = None
        self._http2: set[Http2Protocol] = set()

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> KinesisServer:
        """Listen. Raises OSError where the port is taken."""
        if self._thread is not None:
            raise RuntimeError("the server has been started already")
        self._thread = threading.Thread(target=self._run, name="kinesis-double", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """End all connections and the thread. Idempotent.

        Raises:
            RuntimeError: The double itself failed at some call: what was tested proves nothing.
        """
        if self._thread is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):
            self._running.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._certificate is not None:
            self._certificate.remove()
            self._certificate = None
        if self._endpoint is not None and self._endpoint.crashes:
            raise RuntimeError("the double failed; please report this") from (
                self._endpoint.crashes.pop()
            )

    def __enter__(self) -> KinesisServer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # --- where it is ----------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """Its URL without TLS: HTTP/1.1."""
        return f"http://{HOST}:{self._port}"

    @property
    def tls_endpoint(self) -> str:
        """Its URL with TLS: HTTP/2 or HTTP/1.1, as the client prefers."""
        if not self._tls:
            raise RuntimeError("start it with tls=True")
        return f"https://{HOST}:{self._tls_port}"

    @property
    def ca_file(self) -> Path:
        """The certificate to trust for :attr:`tls_endpoint` (``AWS_CA_BUNDLE``)."""
        if self._certificate is None:
            raise RuntimeError("start it with tls=True")
        return self._certificate.ca_file

    def options(self, stream: str) -> dict[str, str]:
        """What source and sink need to find a stream here."""
        return {
            "streamName": stream,
            "endpoint": self.endpoint,
            "region": self.settings.region,
            "awsAccessKey": "test",
            "awsSecretKey": "test",
        }

    # --- streams --------------------------------------------------------------------------------

    def call(self, operation: str, **members: Any) -> dict[str, Any]:
        """Any call of the API but SubscribeToShard, without network and faults, within the rates.

        Raises:
            ServiceError: What the service would answer.
        """
        answer = self._tell(lambda e: e.account.call(operation, members, self.clock.wall()))
        return cast("dict[str, Any]", orjson.loads(orjson.dumps(answer)))

    def create_stream(self, name: str, shards: int = 1) -> None:
        """A stream that is ACTIVE at once."""

        def create(endpoint: Endpoint) -> None:
            # So long that it may have been resharded long ago as well.
            long_ago = self.clock.wall() - 2 * self.settings.stream_ready_s - _ROUNDING_S
            members = {"StreamName": name, "ShardCount": shards}
            endpoint.account.call_unlimited("CreateStream", members, long_ago)

        self._tell(create)

    def put(
        self, stream: str, *data: bytes, partition_key: str | Callable[[bytes], str] = "key"
    ) -> None:
        """Records, past the limits of a shard's rate, so that a test has its input at once."""

        def put(endpoint: Endpoint) -> None:
            now = self.clock.wall()
            for item in data:
                key = partition_key if isinstance(partition_key, str) else partition_key(item)
                endpoint.account.store(stream, item, key, now)

        self._tell(put)

    def records(self, stream: str) -> list[StoredRecord]:
        """Every record that was put and is kept, of all shards, each shard in its order."""
        return self._look(lambda e: e.account.records(stream))

    def wait_for_records(
        self, stream: str, count: int, within_s: float = 120.0
    ) -> list[StoredRecord]:
        """Wait until a stream holds so many records; returns them.

        Raises:
            AssertionError: Not within ``within_s`` seconds of the machine's time.
        """
        self.wait_for(
            lambda: len(self.records(stream)) >= count, within_s, f"{count} records in {stream}"
        )
        return self.records(stream)

    def wait_for(
        self, condition: Callable[[], object], within_s: float = 120.0, what: str = ""
    ) -> None:
        """Wait until a condition holds, looking at it after every call.

        Raises:
            AssertionError: Not within ``within_s`` seconds of the machine's time.
        """
        deadline = time.monotonic() + within_s
        while True:
            ticket = self._look(lambda _: self._called())
            if condition():
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {within_s:g}s: {what or 'the condition'}")
            # A condition may also look at other things than the double.
            self._wait_for(self._next_call(ticket, min(left, _LOOK_AGAIN_S)))

    def _called(self) -> int:
        assert self._endpoint is not None
        return self._endpoint.called

    async def _next_call(self, ticket: int, within_s: float) -> None:
        assert self._endpoint is not None
        await self._endpoint.next_call(ticket, within_s)

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """What ListShards says, of all shards."""
        return self._look(
            lambda e: [s.description() for s in e.account.streams[stream].shards.values()]
        )

    def open_shards(self, stream: str) -> list[str]:
        """Ids of the shards that take records."""
        return [
            shard["ShardId"]
            for shard in self.shards(stream)
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]

    def split(self, stream: str, shard_id: str) -> list[str]:
        """Split a shard in its middle; ids of the children."""
        hashes = next(s for s in self.shards(stream) if s["ShardId"] == shard_id)["HashKeyRange"]
        low, high = int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])
        return self._reshard(
            "SplitShard",
            stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((low + high) // 2 + 1),
        )

    def merge(self, stream: str, one: str, other: str) -> list[str]:
        """Merge two neighbours; the id of the child."""
        return self._reshard("MergeShards", stream, ShardToMerge=one, AdjacentShardToMerge=other)

    def scale(self, stream: str, shards: int) -> list[str]:
        """UpdateShardCount; ids of the new shards."""
        return self._reshard(
            "UpdateShardCount", stream, TargetShardCount=shards, ScalingType="UNIFORM_SCALING"
        )

    def _reshard(self, operation: str, stream: str, **members: Any) -> list[str]:
        before = set(self.open_shards(stream))

        def reshard(endpoint: Endpoint) -> None:
            long_ago = self.clock.wall() - self.settings.stream_ready_s - _ROUNDING_S
            request = {"StreamName": stream, **members}
            endpoint.account.call_unlimited(operation, request, long_ago)

        self._tell(reshard)
        return [shard for shard in self.open_shards(stream) if shard not in before]

    def trim(self, stream: str, shard_id: str, up_to: int | None = None) -> None:
        """Forget a shard's records up to this sequence number, as retention does; None: all."""
        self._tell(lambda e: e.account.trim(stream, shard_id, up_to))

    def forget_shard(self, stream: str, shard_id: str) -> None:
        """A closed shard is no longer listed, as after its retention."""
        self._tell(lambda e: e.account.forget_shard(stream, shard_id))

    def set_key_state(self, stream: str, code: str | None) -> None:
        """The stream's KMS key cannot be used, for example ``KMSDisabledException``; None: it
        can.
        """
        self._tell(lambda e: e.account.set_key_state(stream, code))

    def deny(self, operation: str, stream: str | None = None) -> None:
        """Take away the permission for an operation."""
        self._tell(lambda e: e.account.deny(operation, stream))

    def allow(self, operation: str, stream: str | None = None) -> None:
        """Give the permission back."""
        self._tell(lambda e: e.account.allow(operation, stream))

    def end_session(self, access_key: str, at: float | None = None) -> None:
        """Refuse calls that are signed with a temporary access key as expired.

        Args:
            access_key: Its id.
            at: From when on, by the wall clock of :attr:`clock`; None: from now on.
        """
        when = self.clock.wall() if at is None else at
        self._tell(lambda e: e.session_ends.update({access_key: when}))

    def subscriptions(self) -> list[Subscription]:
        """Those open."""
        return self._look(lambda e: e.account.subscriptions())

    def connections(self) -> int:
        """How many connections of clients are open, or closed with a call still being worked on."""

        def count(_: Endpoint) -> int:
            return len(self._http2) + (len(self._http1.connections) if self._http1 else 0)

        return self._look(count)

    def replay(self, stream: str, replay: Replay) -> None:
        """Wire-speed mode: each shard of the stream sends these events to its subscribers."""
        shards = self.open_shards(stream)
        self._tell(lambda e: e.replays.update({(stream, shard): replay for shard in shards}))

    def swallow(self, stream: str) -> None:
        """Wire-speed mode: PutRecords into the stream is acknowledged, and nothing kept."""

        def swallow(endpoint: Endpoint) -> None:
            shards = endpoint.account.streams[stream].shards.values()
            endpoint.swallows[stream] = Swallow(sorted((s.first_hash, s.shard_id) for s in shards))

        self._tell(swallow)

    # --- faults ---------------------------------------------------------------------------------

    def add_faults(self, *faults: Fault) -> None:
        """More that is to go wrong, counted from now."""
        self._tell(lambda e: e.script.add(faults, self.clock.wall()))

    def clear_faults(self) -> None:
        """Nothing more goes wrong."""
        self._tell(lambda e: e.script.clear())

    def pending_faults(self) -> list[Fault]:
        """Those that may strike again."""
        return self._look(lambda e: e.script.pending())

    def struck(self) -> list[tuple[Fault, Target]]:
        """Those that struck, in order, and where."""
        return self._look(lambda e: list(e.script.struck))

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """The endpoint is gone inside the block: connections are torn and new ones refused."""
        self._wait_for(self._unlisten())
        try:
            yield
        finally:
            self._wait_for(self._listen())

    def go_away(self, *, at_next_call: bool = False) -> None:
        """Have HTTP/2 clients take new calls elsewhere (GOAWAY). What is under way goes on.

        Args:
            at_next_call: Each connection says so when another call comes on it, which is not
                answered any more.
        """

        async def go_away() -> None:
            for connection in tuple(self._http2):
                connection.go_away(at_next_call=at_next_call)

        self._wait_for(go_away())

    def freeze_connections(self) -> None:
        """Have the HTTP/2 connections that are open carry nothing more, in either direction, and
        stay open: the way there is dead. New ones work.
        """

        async def freeze() -> None:
            for connection in tuple(self._http2):
                connection.freeze()

        self._wait_for(freeze())

    @property
    def calls(self) -> Journal:
        """What was asked, over the network."""
        assert self._endpoint is not None
        return self._endpoint.journal

    # --- its thread -----------------------------------------------------------------------------

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the server does not run")
        return self._loop

    def _look(self, look: Callable[[Endpoint], T]) -> T:
        async def on_loop() -> T:
            assert self._endpoint is not None
            self._endpoint.account.settle(self.clock.wall())
            return look(self._endpoint)

        return self._wait_for(on_loop())

    def _tell(self, change: Callable[[Endpoint], T]) -> T:
        async def on_loop() -> T:
            assert self._endpoint is not None
            assert self._changes is not None
            self._endpoint.account.settle(self.clock.wall())
            try:
                return change(self._endpoint)
            finally:
                self._changes.tell_all()

        return self._wait_for(on_loop())

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._running)
        except RuntimeError:
            work.close()
            raise
        return future.result(_ANSWER_WITHIN_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as exc:  # handed to the thread that waits for the start
            self._failure = exc
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._changes = Changes(self.clock)
        self._endpoint = Endpoint(Account(self.settings), self.clock, self._changes)
        self._endpoint.script.add(self._first_faults, self.clock.wall())
        try:
            if self._tls:
                self._certificate = _Certificate()
            await self._listen()
            self._ready.set()
            await self._stop.wait()
        finally:
            await self._unlisten()
            self._changes.close()

    async def _listen(self) -> None:
        assert self._endpoint is not None
        loop = asyncio.get_running_loop()
        self._http1 = http1_protocol(self._endpoint.handle)
        plain = await loop.create_server(self._http1, HOST, self._port)
        self._port = plain.sockets[0].getsockname()[1]
        self._listeners = [plain]
        if self._certificate is not None:
            secure = await loop.create_server(
                self._by_alpn, HOST, self._tls_port, ssl=self._certificate.context
            )
            self._tls_port = secure.sockets[0].getsockname()[1]
            self._listeners.append(secure)

    async def _unlisten(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
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

    def _by_alpn(self) -> asyncio.Protocol:
        assert self._http1 is not None
        return _AlpnSwitch(self._http1, self._new_http2)

    def _new_http2(self) -> asyncio.Protocol:
        from kinesis_ds.testing.http2 import Http2Protocol  # noqa: PLC0415  # needs the package h2

        assert self._endpoint is not None
        return Http2Protocol(self._endpoint.handle, self._http2)


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


class _Certificate:
    """A certificate for 127.0.0.1 by an authority that lives as long as the server."""

    def __init__(self) -> None:
        import trustme  # noqa: PLC0415  # only TLS needs it

        authority = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        authority.issue_cert(HOST, "localhost").configure_cert(self.context)
        self._folder = tempfile.TemporaryDirectory(prefix="kinesis-double-")
        self.ca_file = Path(self._folder.name) / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))

    def remove(self) -> None:
        self._folder.cleanup()
