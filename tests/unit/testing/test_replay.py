"""Events that are encoded beforehand, subscribed to and polled."""

from __future__ import annotations

import base64
from collections.abc import Callable

import orjson

from kinesis_ds.testing import (
    KinesisServer,
    ManualClock,
    Replay,
)
from kinesis_ds.testing import frames as sent
from tests.support.wire import INITIAL, Reply, WireClient, events


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
