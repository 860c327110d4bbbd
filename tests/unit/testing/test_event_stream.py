"""Subscriptions of the double on its sockets, and what each fault inside them looks like."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable

import pytest

from kinesis_ds.testing import (
    Alter,
    CloseStream,
    Corrupt,
    Cut,
    Fault,
    KinesisServer,
    ManualClock,
    OutliveTakeover,
    Pause,
    Raise,
    Repeat,
    Replay,
    SendBytes,
    Stall,
    Trickle,
    event_stream,
)
from kinesis_ds.testing import frames as sent
from tests.support.polling import eventually
from tests.support.wire import INITIAL, Http2Client, Reply, Torn, WireClient, events


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
