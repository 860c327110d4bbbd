"""What a subscription promises, over HTTP/1.1 and over HTTP/2; both with TLS, and our double."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import os
import socket
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kinesis_ds.aws import transport as transport_choice
from kinesis_ds.aws.connection import Connection, EventStream
from kinesis_ds.aws.http2 import connection as http2_connection
from kinesis_ds.aws.http2 import connector
from kinesis_ds.aws.http2.stream import WINDOW_BYTES, Http2Stream
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    OptionError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import MIB
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.testing import (
    Cut,
    Disconnect,
    Fault,
    KinesisServer,
    NoAnswer,
    Raise,
    Refuse,
    Replay,
    Settings,
    Stall,
    endpoint,
)
from kinesis_ds.testing import http2 as double_http2
from kinesis_ds.testing.frames import initial_message
from kinesis_ds.wire.event_stream import MessageParser
from tests.support.polling import eventually

STREAM = "orders"
# What a reader may be behind, and over HTTP/1.1 one more read of the socket.
BEHIND = {"http1": 3 * WINDOW_BYTES, "http2": WINDOW_BYTES}


@pytest.fixture(params=["http1", "http2"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A double with two shards, trusted, whose shards may be taken again at once."""
    settings = Settings(enforce_limits=False, consumer_ready_s=0, resubscribe_s=0)
    with KinesisServer(settings, tls=True) as kinesis:
        kinesis.create_stream(STREAM, 2)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(kinesis.ca_file))
        yield kinesis


@pytest.fixture
def consumer(kinesis: KinesisServer) -> str:
    described = kinesis.call("DescribeStreamSummary", StreamName=STREAM)
    arn = described["StreamDescriptionSummary"]["StreamARN"]
    made = kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="reader")
    return str(made["Consumer"]["ConsumerARN"])


class Reader:
    """An open connection, and what it subscribes to."""

    def __init__(self, connection: Connection, consumer: str) -> None:
        self.connection = connection
        self._consumer = consumer

    def subscribe(self, shard: int = 0) -> contextlib.AbstractAsyncContextManager[EventStream]:
        shard_id = f"shardId-{shard:012}"
        return self.connection.subscribe(self._consumer, shard_id, TRIM_HORIZON, "the shard")

    @property
    def streams(self) -> list[tuple[int, int]]:
        """Of each HTTP/2 connection, the streams that are read and those left open."""
        pool = self.connection._http2  # what a pool holds is nowhere to be seen from outside
        return pool.statistics() if pool is not None else []


def run(
    kinesis: KinesisServer,
    consumer: str,
    transport: str,
    story: Callable[[Reader], Awaitable[Any]],
) -> Any:
    """A story with an open connection, in an event loop of its own."""

    async def whole() -> Any:
        async with opened(kinesis, consumer, transport) as reader:
            return await asyncio.wait_for(story(reader), 30)

    return asyncio.run(whole())


@contextlib.asynccontextmanager
async def opened(kinesis: KinesisServer, consumer: str, transport: Any) -> AsyncIterator[Reader]:
    aws = AwsOptions("us-east-1", kinesis.tls_endpoint, "access", "secret", transport=transport)
    async with Connection(aws, client_attempts=1) as connection:
        yield Reader(connection, consumer)


async def until(look: Callable[[], object]) -> None:
    """Wait until it is true, on the loop."""
    while not look():  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.01)


async def read(stream: EventStream, size: int) -> bytes:
    """At least so many bytes."""
    body = b""
    while len(body) < size:
        body += await stream.chunks.__anext__()
    return body


async def rest(stream: EventStream) -> bytes:
    return b"".join([piece async for piece in stream.chunks])


def data(body: bytes) -> list[bytes]:
    """The records in an event stream's bytes."""
    parser = MessageParser()
    parser.feed(body)
    found: list[bytes] = []
    while parser.next_size() is not None and (message := parser.take()) is not None:
        message.check()
        if message.headers().get(":event-type") == "SubscribeToShardEvent":
            records = orjson.loads(message.payload)["Records"]
            found += [base64.b64decode(record["Data"]) for record in records]
    return found


def test_records_arrive_exactly(kinesis: KinesisServer, consumer: str, transport: str) -> None:
    """Each byte once and in order, many windows of them."""
    replay = Replay.of(events=40, records_per_event=100, record_bytes=1000)
    kinesis.replay(STREAM, replay)
    expected = initial_message() + b"".join(replay.frames)

    async def story(reader: Reader) -> bytes:
        async with reader.subscribe() as stream:
            return await read(stream, len(expected))

    assert run(kinesis, consumer, transport, story) == expected


def test_records_of_ten_mebibytes_arrive(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """The largest record that Kinesis keeps."""
    record = os.urandom(10 * MIB - 3)
    kinesis.put(STREAM, record)
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])

    async def story(reader: Reader) -> list[bytes]:
        async with reader.subscribe(shard) as stream:
            return data(await read(stream, len(record) * 4 // 3))

    assert run(kinesis, consumer, transport, story) == [record]


def test_a_shard_that_nobody_reads_stops_and_its_neighbour_goes_on(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """Over HTTP/2 they share a connection; the one that goes on later has lost nothing."""
    replay = Replay.of(events=20, records_per_event=100, record_bytes=8000)
    kinesis.replay(STREAM, replay)
    expected = initial_message() + b"".join(replay.frames)

    async def story(reader: Reader) -> tuple[bytes, bytes, bytes]:
        async with reader.subscribe(0) as stalled, reader.subscribe(1) as other:
            whole = await read(other, len(expected))
            if transport == "http2":
                assert reader.streams == [(2, 0)]
            first = await stalled.chunks.__anext__()
            return whole, first, await read(stalled, len(expected) - len(first))

    whole, first, later = run(kinesis, consumer, transport, story)
    assert whole == expected
    assert len(first) <= BEHIND[transport] < len(expected) / 10
    assert first + later == expected


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refuse("ResourceNotFoundException", "no such shard"), StreamNotFoundError),
        (Refuse("AccessDeniedException", "not you"), AccessError),
        (Refuse("LimitExceededException", "slowly"), ThrottledError),
        (Refuse("InternalFailure", "oh", status=500), TransientError),
    ],
    ids=lambda value: getattr(value, "code", None) or value.__name__,
)
def test_a_refusal_is_told_apart(
    kinesis: KinesisServer,
    consumer: str,
    transport: str,
    refusal: Refuse,
    error: type[KinesisConnectorError],
) -> None:
    """An error before the stream; the next call over the same connection is answered."""
    kinesis.add_faults(Fault(refusal))
    kinesis.put(STREAM, b"one", partition_key="x")
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])

    async def story(reader: Reader) -> list[bytes]:
        with pytest.raises(error, match=refusal.message):
            async with reader.subscribe(shard):
                pass
        async with reader.subscribe(shard) as stream:
            return data(await read(stream, 200))

    assert run(kinesis, consumer, transport, story) == [b"one"]


def test_an_exception_in_the_stream_comes_after_what_was_sent(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """It is a frame as others are, and the stream ends properly behind it."""
    kinesis.put(STREAM, b"one")
    shard = int(kinesis.records(STREAM)[0].shard_id[-1])
    kinesis.add_faults(Fault(Raise("InternalFailureException", "oh"), event=2))

    async def story(reader: Reader) -> bytes:
        async with reader.subscribe(shard) as stream:
            body = await read(stream, 200)
            kinesis.put(STREAM, b"two")
            return body + await rest(stream)

    body = run(kinesis, consumer, transport, story)
    assert data(body) == [b"one"]
    assert b"InternalFailureException" in body


@pytest.mark.parametrize("action", [Cut(20), Disconnect(), Disconnect(performed=True)], ids=repr)
def test_a_stream_that_is_torn_is_a_passing_failure(
    kinesis: KinesisServer, consumer: str, transport: str, action: Cut | Disconnect
) -> None:
    """Its neighbour is not touched (HTTP/2: a reset), and the shard can be had again."""
    kinesis.add_faults(Fault(action, shard="shardId-000000000000"))

    async def story(reader: Reader) -> None:
        async with reader.subscribe(1) as neighbour:
            await neighbour.chunks.__anext__()
            with pytest.raises(TransientError):
                async with reader.subscribe(0) as stream:
                    await rest(stream)
            async with reader.subscribe(0) as stream:
                await stream.chunks.__anext__()
            await read(neighbour, 1)

    kinesis.replay(STREAM, Replay.of(events=20, records_per_event=10, record_bytes=10_000))
    if isinstance(action, Cut):
        kinesis.clear_faults()
        kinesis.add_faults(Fault(action, shard="shardId-000000000000", event=0))
    run(kinesis, consumer, transport, story)


def test_a_lost_connection_is_a_passing_failure_of_all_its_streams(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """And the next subscriptions make a new one."""

    async def story(reader: Reader) -> None:
        async with contextlib.AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(reader.subscribe(n)) for n in (0, 1)]
            for stream in streams:
                await read(stream, len(initial_message()))
            with kinesis.down():
                for stream in streams:
                    with pytest.raises(aiohttp.ClientError):
                        await rest(stream)
                with pytest.raises(TransientError, match="reachable from here"):
                    async with reader.subscribe(0):
                        pass
        async with reader.subscribe(0) as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


def test_a_silent_stream_can_be_broken_off(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """Half-open: its reader is told at once, and the shard can be had again."""
    kinesis.add_faults(Fault(Stall(), event=1))

    async def story(reader: Reader) -> None:
        with pytest.raises(TransientError):
            async with reader.subscribe() as stream:
                await read(stream, len(initial_message()))
                reading = asyncio.ensure_future(stream.chunks.__anext__())
                await asyncio.sleep(0)
                stream.abort()
                await reading
        async with reader.subscribe() as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


def test_no_answer_can_be_given_up(kinesis: KinesisServer, consumer: str, transport: str) -> None:
    """Whoever waits says how long, and the next call is answered."""
    kinesis.add_faults(Fault(NoAnswer()))

    async def story(reader: Reader) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.subscribe().__aenter__(), 0.5)
        assert all(read == 0 for read, _ in reader.streams)
        async with reader.subscribe() as stream:
            assert await stream.chunks.__anext__()

    run(kinesis, consumer, transport, story)


@types.coroutine
def cancelled_at(work: Any, nth: int) -> Generator[Any, Any, bool]:
    """Do some work; cancel it when it waits the n-th time. Whether it had ended before."""
    task = asyncio.current_task()
    assert task is not None
    steps, waits, thrown = work.__await__(), 0, None
    while True:
        try:
            waited = steps.throw(thrown) if thrown is not None else steps.send(None)
        except StopIteration:
            return waits < nth
        waits += 1
        if waits == nth:
            task.cancel()
        try:
            thrown = None
            yield waited
        except BaseException as exc:
            thrown = exc


def test_it_can_be_cancelled_wherever_it_waits(
    kinesis: KinesisServer, consumer: str, transport: str
) -> None:
    """No stream stays behind, and the connection can be used."""
    kinesis.replay(STREAM, Replay.of(events=4, records_per_event=10, record_bytes=10_000))

    async def subscribe_and_read(reader: Reader) -> None:
        async with reader.subscribe() as stream:
            await read(stream, 300_000)

    async def cancelled(reader: Reader, nth: int) -> bool:
        done = asyncio.ensure_future(cancelled_at(subscribe_and_read(reader), nth))
        with contextlib.suppress(asyncio.CancelledError):
            if await done:
                return False
        assert all(read == 0 for read, _ in reader.streams)
        await subscribe_and_read(reader)
        return True

    waits = 1
    # Over a new connection each time, so that it is cancelled while that is made, too.
    while run(kinesis, consumer, transport, functools.partial(cancelled, nth=waits)):
        waits += 1
    assert waits > 3


# --- HTTP/2 only ----------------------------------------------------------------------------------


def test_closing_ends_what_is_read_and_leaves_nothing(
    kinesis: KinesisServer, consumer: str
) -> None:
    """Streams that are still read fail; no thread and no socket stays."""
    me = psutil.Process()
    threads = me.num_threads()
    port = int(kinesis.tls_endpoint.rpartition(":")[2])

    async def whole() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with opened(kinesis, consumer, "http2") as reader:
                streams = [await stack.enter_async_context(reader.subscribe(n)) for n in (0, 1)]
                for stream in streams:
                    await read(stream, len(initial_message()))
            for stream in streams:
                with pytest.raises(aiohttp.ClientError):
                    await rest(stream)

    asyncio.run(whole())
    eventually(lambda: me.num_threads() <= threads, "the runtime's threads ended")
    assert not [c for c in me.net_connections("tcp") if c.raddr and c.raddr.port == port]


@pytest.mark.parametrize("whose", ["ours", "the server's"])
def test_streams_spread_over_connections(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """A connection takes as many as it may, also of streams that are asked for all at once."""
    monkeypatch.setattr(http2_connection if whose == "ours" else double_http2, "MAX_STREAMS", 2)

    async def story(reader: Reader) -> None:
        enough = asyncio.Event()
        spread: list[list[tuple[int, int]]] = []

        async def one(shard: int) -> None:
            async with reader.subscribe(shard):
                if sum(read for read, _ in reader.streams) == 5:
                    spread.append(sorted(reader.streams))
                    enough.set()
                await enough.wait()

        await asyncio.gather(*[one(n % 2) for n in range(5)])
        assert spread[0] == [(1, 0), (2, 0), (2, 0)]

    run(kinesis, consumer, "http2", story)


def test_a_connection_told_to_go_away_keeps_its_streams_and_gets_no_more(
    kinesis: KinesisServer, consumer: str
) -> None:
    """GOAWAY: the next stream goes to another connection, without a failure in between."""

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0) as old:
            await read(old, len(initial_message()))
            kinesis.go_away()
            kinesis.put(STREAM, *[b"%d" % n for n in range(50)], partition_key=bytes.decode)
            async with reader.subscribe(1) as new:
                await read(new, len(initial_message()))
                assert sorted(reader.streams) == [(1, 0), (1, 0)]
            assert await old.chunks.__anext__()
        assert all(read == 0 for read, _ in reader.streams)

    run(kinesis, consumer, "http2", story)


def test_what_is_left_open_ends_with_its_connection(kinesis: KinesisServer, consumer: str) -> None:
    """The runtime resets no streams; one that is left is granted nothing, and ends with the last
    that is read beside it.
    """
    kinesis.replay(STREAM, Replay.of(events=100, records_per_event=10, record_bytes=10_000))

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0) as neighbour:
            await neighbour.chunks.__anext__()
            async with reader.subscribe(1) as left:
                await left.chunks.__anext__()
            assert reader.streams == [(1, 1)]
            await read(neighbour, MIB)
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)
    eventually(lambda: not kinesis.subscriptions(), "no subscription left")


def test_a_connection_that_went_quiet_gets_no_more_streams(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be dead; those who still read on it find out by themselves."""
    monkeypatch.setattr(http2_connection, "_QUIET_S", -1.0)

    async def story(reader: Reader) -> None:
        async with reader.subscribe(0):
            async with reader.subscribe(1):
                assert reader.streams == [(2, 0)]
            async with reader.subscribe(1):
                assert [read for read, _ in reader.streams] == [1, 1]
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)


def test_an_idle_connection_is_kept_for_a_while(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that ended is soon followed by the next."""
    monkeypatch.setattr(http2_connection, "_IDLE_S", 0.2)
    kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), times=2))

    async def refused(reader: Reader) -> None:
        with pytest.raises(TransientError):
            async with reader.subscribe():
                pass

    async def story(reader: Reader) -> None:
        await refused(reader)
        assert reader.streams == [(0, 0)]
        await refused(reader)
        assert reader.streams == [(0, 0)]
        assert kinesis.connections() == 1
        await until(lambda: not reader.streams)

    run(kinesis, consumer, "http2", story)


# --- which of them --------------------------------------------------------------------------------


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was said of transports."""
    transport_choice.fall_back.cache_clear()
    transport_choice.installed.cache_clear()
    with caplog.at_level(logging.INFO, logger="kinesis_ds.aws.transport"):
        yield lambda: [r.getMessage() for r in caplog.records]
    transport_choice.installed.cache_clear()


def uses(kinesis: KinesisServer, consumer: str, transport: str) -> str:
    """The transport that a subscription took, twice."""

    async def story(reader: Reader) -> str:
        for _ in range(2):
            async with reader.subscribe() as stream:
                await stream.chunks.__anext__()
        return "http2" if isinstance(stream.chunks, Http2Stream) else "http1"

    return str(run(kinesis, consumer, transport, story))


Told = Callable[[], list[str]]


def test_auto_takes_http2_where_it_is_offered(
    kinesis: KinesisServer, consumer: str, told: Told
) -> None:
    """And says nothing."""
    assert uses(kinesis, consumer, "auto") == "http2"
    assert uses(kinesis, consumer, "http1") == "http1"
    assert told() == []


def test_without_an_offer_auto_falls_back_and_says_so_once(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALPN decides; who insists on HTTP/2 is told what to do."""
    certificate = kinesis._thread.certificate
    assert certificate is not None  # the double offers both; a test takes one away
    certificate.context.set_alpn_protocols(["http/1.1"])

    assert uses(kinesis, consumer, "auto") == "http1"
    assert uses(kinesis, consumer, "auto") == "http1"
    (line,) = told()
    assert "HTTP/1.1" in line
    assert "offers no HTTP/2" in line
    with pytest.raises(OptionError, match="transport is http2, and the endpoint offers no HTTP/2"):
        uses(kinesis, consumer, "http2")


def test_without_awscrt_auto_falls_back_and_says_how_to_get_it(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; who insists is told the same before anything is sent."""
    monkeypatch.setitem(sys.modules, "awscrt.http", None)

    assert uses(kinesis, consumer, "auto") == "http1"
    assert uses(kinesis, consumer, "auto") == "http1"
    (line,) = told()
    assert "pip install 'kinesis-ds[http2]'" in line
    for url in (None, kinesis.tls_endpoint):
        with pytest.raises(OptionError, match=r"pip install 'kinesis-ds\[http2\]'"):
            transport_choice.require("http2", url)


def test_a_proxy_keeps_auto_on_http1(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP/2 would go past it; where NO_PROXY names the endpoint there is none."""
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint) is False
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint) is False
    (line,) = told()
    assert "HTTPS_PROXY" in line
    with pytest.raises(OptionError, match="NO_PROXY"):
        transport_choice.require("http2", kinesis.tls_endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint)


def test_without_tls_there_is_no_http2(kinesis: KinesisServer, told: Told) -> None:
    """And nothing is imported to find that out."""
    assert not transport_choice.prefers_http2("auto", kinesis.endpoint)
    assert transport_choice.installed.cache_info().misses == 0
    with pytest.raises(OptionError, match="https://"):
        transport_choice.prefers_http2("http2", kinesis.endpoint)
    (line,) = told()
    assert "without TLS" in line


def test_a_certificate_that_is_not_trusted_is_told(
    kinesis: KinesisServer, consumer: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP/2 too, where the runtime keeps a failed handshake to itself for half a minute."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setattr(connector, "_ASK_PYTHON_AFTER_S", 0.1)

    with pytest.raises(TransientError, match="certificate verify failed"):
        uses(kinesis, consumer, transport)


def test_who_does_not_shake_hands_is_given_up(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and says nothing, to nobody."""
    monkeypatch.setattr(connector, "_ASK_PYTHON_AFTER_S", 0.1)
    monkeypatch.setattr(connector, "_CONNECT_TIMEOUT_S", 0.3)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"https://127.0.0.1:{silent.getsockname()[1]}"
        aws = AwsOptions("us-east-1", place, "access", "secret", transport="http2")

        async def whole() -> None:
            async with (
                Connection(aws, client_attempts=1) as connection,
                Reader(connection, consumer).subscribe(),
            ):
                pass

        with pytest.raises(TransientError, match="No TLS connection"):
            asyncio.run(whole())


def test_what_python_trusts_is_trusted(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody names a bundle: as over HTTP/1.1, where aiohttp asks Python."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(kinesis.ca_file))

    assert uses(kinesis, consumer, "http2") == "http2"


def test_a_folder_of_certificates_is_trusted(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As over HTTP/1.1, its files named by their hashes."""
    (tmp_path / "ca.pem").write_bytes(kinesis.ca_file.read_bytes())
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True)  # noqa: S607
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path))

    assert uses(kinesis, consumer, "http2") == "http2"


def test_what_is_signed_is_what_is_sent(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP/2 has no Host: the authority is what the signature says of it."""
    sent: list[Any] = []
    parse = endpoint._parse

    def note_and_parse(request: Any) -> Any:
        sent.append(request)
        return parse(request)

    monkeypatch.setattr(endpoint, "_parse", note_and_parse)

    assert uses(kinesis, consumer, "http2") == "http2"
    request = sent[0]
    assert request.http_version == "2"
    again = AWSRequest("POST", kinesis.tls_endpoint, data=request.body)
    signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert "host" in signed
    for name in set(signed) - {"host"}:
        again.headers[name] = request.headers[name]
    again.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("access", "secret"), "kinesis", "us-east-1")
    signature = signer.signature(
        signer.string_to_sign(again, signer.canonical_request(again)), again
    )
    assert request.headers[":authority"] == kinesis.tls_endpoint.removeprefix("https://")
    assert request.headers["authorization"].endswith(f"Signature={signature}")
