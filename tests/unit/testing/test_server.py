"""The double on its sockets: what each fault looks like to a client, over both versions of HTTP."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import psutil
import pytest

from kinesis_ds.testing import (
    Alter,
    AnswerWith,
    CloseStream,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    FailRecords,
    Fault,
    KinesisServer,
    ManualClock,
    MiscountResults,
    NoAnswer,
    OutliveTakeover,
    Pause,
    Raise,
    Refuse,
    Repeat,
    Replay,
    SendBytes,
    Stall,
    Trickle,
    event_stream,
)
from kinesis_ds.testing import frames as sent
from tests.support.polling import eventually
from tests.support.wire import Http1Client, Http2Client, Reply, Torn, WireClient, headers_of

PUTS = [{"Data": base64.b64encode(b"%d" % i).decode(), "PartitionKey": str(i)} for i in range(4)]
INITIAL = len(sent.initial_message())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[KinesisServer]:
    with KinesisServer(clock=clock, tls=True) as server:
        server.create_stream("orders")
        yield server


@pytest.fixture(params=[Http1Client, Http2Client], ids=["http1", "http2"])
def client(request: pytest.FixtureRequest, server: KinesisServer) -> Iterator[WireClient]:
    client = Http1Client(server.endpoint) if request.param is Http1Client else Http2Client(server)
    yield client
    client.close()


@pytest.fixture
def consumer(server: KinesisServer, clock: ManualClock) -> str:
    """A consumer that is ACTIVE."""
    arn = server.call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    given = server.call("RegisterStreamConsumer", StreamARN=arn["StreamARN"], ConsumerName="reader")
    clock.advance(1)
    return str(given["Consumer"]["ConsumerARN"])


@pytest.fixture
def subscribe(server: KinesisServer, client: WireClient, consumer: str) -> Callable[..., Reply]:
    """Calls SubscribeToShard from the oldest record."""
    (shard,) = server.open_shards("orders")

    def call(*faults: Fault) -> Reply:
        server.add_faults(*faults)
        return client.post(
            "SubscribeToShard",
            {
                "ConsumerARN": consumer,
                "ShardId": shard,
                "StartingPosition": {"Type": "TRIM_HORIZON"},
            },
        )

    return call


def put(client: WireClient) -> Reply:
    return client.post("PutRecords", {"StreamName": "orders", "Records": PUTS})


def stored(server: KinesisServer) -> list[bytes]:
    return [record.data for record in server.records("orders")]


def events(body: bytes) -> list[dict[str, Any]]:
    """The events of a body behind the initial response; each frame whole."""
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


# --- calls --------------------------------------------------------------------------------------


def test_a_call_is_answered(client: WireClient, server: KinesisServer) -> None:
    """And is in the journal, without its records."""
    answer = put(client)

    assert answer.status == 200
    assert answer.json()["FailedRecordCount"] == 0
    assert stored(server) == [b"0", b"1", b"2", b"3"]
    (call,) = server.calls.calls("PutRecords")
    assert (call.target.stream, call.records, call.outcome) == ("orders", 4, "ok")
    assert "Records" not in call.request


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({}, b"{}", "UnknownOperationException"),
        (headers_of("Explode"), b"{}", "UnknownOperationException"),
        (headers_of("ListStreams") | {"Authorization": ""}, b"{}", "MissingAuthenticationToken"),
        (headers_of("ListStreams"), b"{", "SerializationException"),
        (headers_of("ListStreams"), b"[]", "SerializationException"),
        (
            headers_of("ListStreams") | {"Content-Type": "application/x-amz-cbor-1.1"},
            b"\xa0",
            "SerializationException",
        ),
    ],
)
def test_what_is_no_call_is_refused(
    client: WireClient, headers: dict[str, str], body: bytes, code: str
) -> None:
    """With an error of the service, as AWS would."""
    answer = client.post("", body, headers)

    assert answer.status == 400
    assert answer.json()["__type"].startswith(code)


def test_refuse(client: WireClient, server: KinesisServer) -> None:
    """The error comes instead of the call."""
    server.add_faults(Fault(Refuse("InternalFailure", "oh", 500), operation="PutRecords"))
    answer = put(client)

    assert (answer.status, answer.json()) == (500, {"__type": "InternalFailure", "message": "oh"})
    assert stored(server) == []
    assert put(client).status == 200


def test_answer_with(client: WireClient, server: KinesisServer) -> None:
    """Any body, with any status."""
    server.add_faults(Fault(AnswerWith(b"<html>", 200, "text/html"), operation="PutRecords"))
    answer = put(client)

    assert (answer.status, answer.body()) == (200, b"<html>")
    assert stored(server) == []


@pytest.mark.parametrize("performed", [False, True])
def test_disconnect(client: WireClient, server: KinesisServer, performed: bool) -> None:
    """The connection, or the stream of HTTP/2, is torn; the call took effect or not."""
    server.add_faults(Fault(Disconnect(performed), operation="PutRecords"))
    with pytest.raises(Torn):
        put(client).body()

    assert len(stored(server)) == 4 * performed


@pytest.mark.parametrize("performed", [False, True])
def test_no_answer(server: KinesisServer, performed: bool) -> None:
    """Nothing comes for as long as the client likes to wait."""
    server.add_faults(Fault(NoAnswer(performed), operation="PutRecords"))
    client = Http1Client(server.endpoint)

    def wait() -> None:
        with pytest.raises(Torn):
            put(client)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: [c for c in server.calls if c.outcome == "NoAnswer"], "the call")

    assert len(stored(server)) == 4 * performed
    assert waiting.is_alive()
    server.stop()  # nobody else would end it
    waiting.join()
    client.close()


@pytest.mark.parametrize("performed", [False, True])
def test_delay(
    client: WireClient, server: KinesisServer, clock: ManualClock, performed: bool
) -> None:
    """The answer comes when the clock says so; the call takes effect before or after."""
    server.add_faults(Fault(Delay(30, performed), operation="PutRecords"))
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(put(client).json()))
    waiting.start()
    eventually(server.struck, "the fault")
    if performed:
        eventually(lambda: stored(server), "the records")
    assert len(stored(server)) == 4 * performed
    assert answers == []
    clock.advance(30)
    waiting.join()

    assert answers[0]["FailedRecordCount"] == 0
    assert len(stored(server)) == 4


def test_fail_records(client: WireClient, server: KinesisServer) -> None:
    """Those that fail are not stored; the others are, each with its own number."""
    server.add_faults(
        Fault(FailRecords("InternalFailure", first=1, every=2), operation="PutRecords")
    )
    answer = put(client).json()

    assert answer["FailedRecordCount"] == 2
    assert [r.get("ErrorCode") for r in answer["Records"]] == [None, "InternalFailure"] * 2
    assert stored(server) == [b"0", b"2"]
    numbers = [str(r.sequence_number) for r in server.records("orders")]
    assert [r["SequenceNumber"] for r in answer["Records"][::2]] == numbers


@pytest.mark.parametrize("by", [-1, -4, 1])
def test_miscount_results(client: WireClient, server: KinesisServer, by: int) -> None:
    """Everything is stored, and the answer says more or less."""
    server.add_faults(Fault(MiscountResults(by), operation="PutRecords"))

    assert len(put(client).json()["Records"]) == 4 + by
    assert len(stored(server)) == 4


def test_down(server: KinesisServer) -> None:
    """Connections are refused inside the block, and taken behind it at the same address."""
    address = server.endpoint
    client = Http1Client(server.endpoint)
    with server.down(), pytest.raises(ConnectionRefusedError):
        client.post("ListStreams", {})

    assert server.endpoint == address
    assert client.post("ListStreams", {}).json()["StreamNames"] == ["orders"]
    client.close()


# --- subscriptions ------------------------------------------------------------------------------


def test_events_come_as_they_happen(
    server: KinesisServer, subscribe: Callable[..., Reply], clock: ManualClock
) -> None:
    """The first at once, then with records or after five seconds, until five minutes are over."""
    server.put("orders", b"one")
    reply = subscribe()
    body = reply.read(INITIAL + 1)
    assert [len(e["Records"]) for e in events(body)] == [1]
    server.put("orders", b"two")
    body += reply.read(1)
    clock.advance(5)
    body += reply.read(1)
    assert [len(e["Records"]) for e in events(body)] == [1, 1, 0]
    assert len(server.subscriptions()) == 1
    clock.advance(300)
    reply.body()
    assert server.subscriptions() == []


def test_a_client_that_leaves_gives_its_subscription_up(
    server: KinesisServer, client: WireClient, subscribe: Callable[..., Reply]
) -> None:
    """At once, not at the next event."""
    subscribe().read(INITIAL)
    assert len(server.subscriptions()) == 1
    client.close()
    eventually(lambda: not server.subscriptions(), "it is given up")


@pytest.mark.parametrize("byte", [0, 1, 12, 40])
@pytest.mark.parametrize("properly", [False, True])
def test_cut(subscribe: Callable[..., Reply], byte: int, properly: bool) -> None:
    """So many bytes of the event arrive, and then an end that is none, or looks like one."""
    reply = subscribe(Fault(Cut(byte, properly)))
    body = b""
    try:
        for piece in reply.pieces:
            body += piece
        ended = True
    except Torn:
        ended = False

    assert len(body) == INITIAL + byte
    assert ended == properly


def test_cut_before_anything(subscribe: Callable[..., Reply]) -> None:
    """Event 0 is the initial response."""
    assert subscribe(Fault(Cut(0, properly=True), event=0)).body() == b""


def test_close_stream(subscribe: Callable[..., Reply]) -> None:
    """A proper end without an event."""
    assert subscribe(Fault(CloseStream())).body() == sent.initial_message()


def test_corrupt(subscribe: Callable[..., Reply], clock: ManualClock) -> None:
    """One byte is another one, and all goes on."""
    reply = subscribe(Fault(Corrupt(-1)))
    body = reply.read(INITIAL + 1)
    frame = body[INITIAL:]
    right = sent.event_message(frame[12 + int.from_bytes(frame[4:8], "big") : -4])

    assert frame[:-1] == right[:-1]
    assert frame[-1] == right[-1] ^ 0xFF
    clock.advance(5)
    assert len(events(body + reply.read(1))) == 2


@pytest.mark.parametrize(("byte", "at"), [(10_000, -1), (-10_000, 0)])
def test_corrupt_outside_of_a_frame(subscribe: Callable[..., Reply], byte: int, at: int) -> None:
    """A fault drawn at random must not fail the double itself."""
    frame = subscribe(Fault(Corrupt(byte), event=0)).read(INITIAL)[:INITIAL]
    assert frame[at] == sent.initial_message()[at] ^ 0xFF


def test_raise(subscribe: Callable[..., Reply]) -> None:
    """The exception is the last frame."""
    body = subscribe(Fault(Raise("KMSThrottlingException", "slow"))).body()

    assert body[INITIAL:] == sent.exception_message("KMSThrottlingException", "slow")


def test_send_bytes_and_repeat(subscribe: Callable[..., Reply]) -> None:
    """A frame of an unknown kind, and an event twice."""
    unknown = sent.message(b"{}", event_type="NewThing", message_type="event")
    reply = subscribe(Fault(SendBytes(unknown)), Fault(Repeat()))
    body = reply.read(INITIAL + len(unknown) + 1)

    assert body[INITIAL:].startswith(unknown)
    first, second, third = events(body + (b"" if len(events(body)) == 3 else reply.read(1)))
    assert first == {}
    assert second == third
    assert second["Records"] == []


def test_alter(subscribe: Callable[..., Reply]) -> None:
    """Other members in a sound frame."""
    change = Alter(put={"ChildShards": [{"ShardId": "x"}]}, drop=["ContinuationSequenceNumber"])
    (event,) = events(subscribe(Fault(change)).read(INITIAL + 1))

    assert event["ChildShards"] == [{"ShardId": "x"}]
    assert "ContinuationSequenceNumber" not in event


def test_trickle(subscribe: Callable[..., Reply]) -> None:
    """The same bytes in small pieces."""
    reply = subscribe(Fault(Trickle(5), event=0))
    pieces = [next(reply.pieces) for _ in range(INITIAL // 5)]

    assert {len(piece) for piece in pieces} == {5} or len(b"".join(pieces)) >= INITIAL // 5
    assert b"".join(pieces)[:INITIAL] == sent.initial_message()[: len(b"".join(pieces))]


def test_stall(server: KinesisServer, subscribe: Callable[..., Reply], clock: ManualClock) -> None:
    """Nothing comes any more, not even after five minutes, and the connection stays."""
    reply = subscribe(Fault(Stall(), event=2))
    reply.read(INITIAL + 1)
    server.put("orders", b"one")
    eventually(server.struck, "the stall")
    clock.advance(400)
    server.put("orders", b"two")

    assert len(server.subscriptions()) == 1
    threading.Timer(0.2, server.stop).start()
    with pytest.raises(Torn):
        reply.body()


def test_pause(server: KinesisServer, subscribe: Callable[..., Reply], clock: ManualClock) -> None:
    """What comes meanwhile comes afterwards."""
    reply = subscribe(Fault(Pause(60), event=2))
    body = reply.read(INITIAL + 1)
    server.put("orders", b"one")
    eventually(server.struck, "the pause")
    clock.advance(59)
    server.put("orders", b"two")
    clock.advance(1)
    body += reply.read(1)
    while sum(len(e["Records"]) for e in events(body)) < 2:
        body += reply.read(1)

    assert not events(body)[0]["Records"]


def test_take_over_ends_the_old_connection(
    subscribe: Callable[..., Reply], clock: ManualClock
) -> None:
    """After five seconds the new one is taken and the old one is told."""
    old = subscribe()
    old.read(INITIAL + 1)
    assert subscribe().json()["__type"] == "LimitExceededException"
    clock.advance(4.9)
    assert subscribe().json()["__type"] == "ResourceInUseException"
    clock.advance(1)
    new = subscribe()

    assert b"ResourceInUseException" in old.body()
    assert len(events(new.read(INITIAL + 1))) == 1


def test_outlive_takeover(
    server: KinesisServer, subscribe: Callable[..., Reply], clock: ManualClock
) -> None:
    """The old one goes on for so many events before it is told."""
    old = subscribe(Fault(OutliveTakeover(2)))
    old.read(INITIAL + 1)
    clock.advance(6)
    old.read(1)
    subscribe()
    server.put("orders", b"late")
    body = old.read(1)
    clock.advance(5)  # the second of them is a heartbeat
    rest = body + old.body()

    assert b"ResourceInUseException" in rest
    assert base64.b64encode(b"late") in rest


def test_a_client_that_does_not_read_is_cut_off_when_taken_over(
    server: KinesisServer,
    subscribe: Callable[..., Reply],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection would otherwise stay for as long as its buffers are full."""
    monkeypatch.setattr(event_stream, "_LAST_WORDS_S", 0.0)
    server.replay("orders", Replay.of(events=40, records_per_event=50, record_bytes=20_000))
    old = subscribe()
    old.read(INITIAL)
    clock.advance(6)
    subscribe().read(INITIAL)

    with pytest.raises(Torn):
        old.body()


def test_the_window_of_one_stream_holds_only_that_stream(
    server: KinesisServer, clock: ManualClock, consumer: str
) -> None:
    """HTTP/2: a stream that nobody reads stops at its window, its neighbour runs on."""
    server.scale("orders", 2)
    server.put("orders", *[b"x" * 10_000] * 200, partition_key=lambda d: str(id(d) % 97))
    server.put("orders", *[bytes([i]) * 10_000 for i in range(200)], partition_key=bytes.hex)
    client = Http2Client(server)
    replies = [
        client.post(
            "SubscribeToShard",
            {
                "ConsumerARN": consumer,
                "ShardId": shard,
                "StartingPosition": {"Type": "TRIM_HORIZON"},
            },
        )
        for shard in server.open_shards("orders")
    ]
    for _ in range(4):
        clock.advance(1)
    reading = replies[1].read(300_000)
    client.pump()

    assert len(reading) >= 300_000
    assert client.received(1) <= 65_535
    client.close()


def test_replay_sends_what_was_encoded_before(
    server: KinesisServer, subscribe: Callable[..., Reply], clock: ManualClock
) -> None:
    """All frames, as they are, past the rate of a shard; then heartbeats at the last number."""
    replay = Replay.of(events=50, records_per_event=100, record_bytes=1000)
    server.replay("orders", replay)
    reply = subscribe()
    size = INITIAL + sum(map(len, replay.frames))
    body = reply.read(size)

    assert body == sent.initial_message() + b"".join(replay.frames)
    data = [r["Data"] for e in events(body) for r in e["Records"]]
    assert len(data) == replay.records == 5000
    assert sum(len(base64.b64decode(d)) for d in data) == replay.data_bytes
    clock.advance(5)
    (beat,) = events(sent.initial_message() + reply.read(1))
    assert beat == {
        "Records": [],
        "ContinuationSequenceNumber": str(replay.last[-1]),
        "MillisBehindLatest": 0,
    }


def test_replay_goes_on_behind_a_position() -> None:
    """A client that comes back gets what it has not had."""
    replay = Replay.of(events=5, records_per_event=10, record_bytes=10)
    position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(replay.last[1])}

    assert b"".join(replay.chunks_from(position)) == b"".join(replay.frames[2:])


def test_replay_is_answered_to_get_records_too() -> None:
    """Whole events within both limits, in order, behind any position; then empty answers."""
    replay = Replay.of(events=5, records_per_event=10, record_bytes=10)
    numbers = []
    request = {
        "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
        "StartingSequenceNumber": str(replay.last[0]),
    }
    iterator = replay.iterator("orders", "shardId-000000000000", request)["ShardIterator"]
    for _ in range(3):
        answer = replay.get_records({"ShardIterator": iterator, "Limit": 25})
        iterator = answer["NextShardIterator"]
        records = orjson.loads(orjson.dumps(answer))["Records"]
        numbers.append([int(r["SequenceNumber"]) for r in records])

    assert [len(n) for n in numbers] == [20, 20, 0]
    assert [*numbers[0], *numbers[1]] == sorted({*numbers[0], *numbers[1]})
    assert numbers[0][-1] == replay.last[2]
    assert numbers[1][-1] == replay.last[4]


def test_a_shard_in_wire_speed_mode_is_polled_and_resumed(
    server: KinesisServer, client: WireClient, consumer: str
) -> None:
    """Over the network, from the positions of its own records, which the account never saw."""
    replay = Replay.of(events=5, records_per_event=10, record_bytes=10)
    server.replay("orders", replay)
    (shard,) = server.open_shards("orders")
    place = {"StreamName": "orders", "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.post("GetShardIterator", place).json()["ShardIterator"]
    polled = client.post("GetRecords", {"ShardIterator": iterator}).json()
    position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(replay.last[3])}
    subscription = {"ConsumerARN": consumer, "ShardId": shard, "StartingPosition": position}
    reply = client.post("SubscribeToShard", subscription)

    assert len(polled["Records"]) == 50
    assert polled["Records"][-1]["SequenceNumber"] == str(replay.last[4])
    assert reply.read(INITIAL + len(replay.frames[4])).endswith(replay.frames[4])


# --- life ---------------------------------------------------------------------------------------


def test_stopping_leaves_nothing() -> None:
    """No thread and no socket, whatever was under way."""
    before = {t.name for t in threading.enumerate()}
    sockets = len(psutil.Process().net_connections())
    server = KinesisServer(clock=ManualClock(), tls=True).start()
    clients = [Http1Client(server.endpoint), Http2Client(server)]
    for client in clients:
        client.post("ListStreams", {}).body()
    server.stop()
    server.stop()
    for client in clients:
        client.close()

    assert {t.name for t in threading.enumerate()} == before
    assert len(psutil.Process().net_connections()) == sockets


def test_it_listens_on_loopback_only(server: KinesisServer) -> None:
    """Nobody on another machine can reach it."""
    mine = [c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    ports = {int(url.rpartition(":")[2]) for url in (server.endpoint, server.tls_endpoint)}

    assert {a.ip for a in mine if a.port in ports} == {"127.0.0.1"}


def test_a_taken_port_is_an_error(server: KinesisServer) -> None:
    """At the start, where it can be seen."""
    port = int(server.endpoint.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        KinesisServer(port=port).start()


def test_a_failure_of_the_double_itself_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stops it is told: what was tested then proves nothing."""
    server = KinesisServer().start()
    endpoint = server._thread.endpoint
    monkeypatch.setattr(endpoint.account, "call", lambda *_: 1 / 0)
    client = Http1Client(server.endpoint)
    with pytest.raises(Torn):
        client.post("ListStreams", {})
    client.close()

    with pytest.raises(RuntimeError, match="please report"):
        server.stop()


def test_from_a_shell() -> None:
    """It says where it is, has its stream, and ends with a count of what it was asked."""
    with subprocess.Popen(
        [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", "--stream", "orders:3"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        address = lines[0].split()[2]
        client = Http1Client(address)
        shards = client.post("ListShards", {"StreamName": "orders"}).json()["Shards"]
        client.close()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()

    assert lines[1] == "stream orders: 3 shards\n"
    assert len(shards) == 3
    assert rest.split() == ["1", "ListShards", "ok"]
    assert process.returncode == 0


def test_from_a_shell_it_ends_with_its_input() -> None:
    """Whoever holds the other end may be killed, and then cannot end it otherwise."""
    with subprocess.Popen(
        [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", "--while-fed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Kinesis at http://127.0.0.1:")
        process.stdin.close()
        assert process.wait(30) == 0
