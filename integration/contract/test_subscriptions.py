"""SubscribeToShard: what is sent, where it begins and goes on, and how it ends.

Tests share a stream and its consumers, and take a shard each: the rules are about a consumer and a
shard.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from integration.contract.conftest import MakeStream
from integration.contract.stream import (
    INVALID,
    MIB,
    Stream,
    hash_range,
    refused,
)
from integration.contract.subscription import EndedError, Subscription
from integration.contract.targets import Target

LONG_AGO = datetime.datetime(2014, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class Shard:
    """A shard of the shared stream that one test has for itself."""

    stream: Stream
    id: str
    listed: dict[str, Any]

    def put(self, data: bytes) -> str:
        """Write a record into this shard; its sequence number."""
        put = self.stream.put(data, hash_key=hash_range(self.listed)[0])
        assert put["ShardId"] == self.id
        return put["SequenceNumber"]

    def subscribe(self, consumer: str, kind: str = "TRIM_HORIZON", **position: Any) -> Any:
        return self.stream.subscribe(consumer, self.id, kind, **position)


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """The shared stream."""
    with target.stream(40) as made:
        yield made


@pytest.fixture(scope="module")
def consumers(stream: Stream) -> list[str]:
    """The ARNs of five ACTIVE consumers of the shared stream."""
    arn = stream.arn
    registered = [
        stream.client.register_stream_consumer(StreamARN=arn, ConsumerName=f"consumer-{i}")
        for i in range(5)
    ]
    arns = [answer["Consumer"]["ConsumerARN"] for answer in registered]
    for consumer in arns:
        stream.wait_for_consumer(consumer)
    return arns


@pytest.fixture(scope="module")
def consumer(consumers: list[str]) -> str:
    """One of them."""
    return consumers[0]


@pytest.fixture(scope="module")
def other_consumer(consumers: list[str]) -> str:
    """Another one."""
    return consumers[1]


@pytest.fixture(scope="module")
def unused(stream: Stream) -> Iterator[Shard]:
    """Shards that no test has had."""
    return (Shard(stream, listed["ShardId"], listed) for listed in stream.open_shards())


@pytest.fixture
def shard(unused: Iterator[Shard]) -> Shard:
    """A shard for this test alone."""
    return next(unused)


@pytest.fixture(scope="module")
def filled(unused: Iterator[Shard]) -> tuple[Shard, list[dict[str, Any]]]:
    """A shard with three records more than a second apart, and these; for different consumers."""
    shard = next(unused)
    for data in (b"one", b"two", b"three"):
        shard.put(data)
        shard.stream.target.pass_time(1.1)
    stream = shard.stream
    return shard, stream.read(stream.iterator(shard.id), at_least=3)


def is_error(error: Exception, code: str) -> bool:
    """Whether a subscription was ended by this exception, sent as an event."""
    return isinstance(error, EventStreamError) and error.response["Error"]["Code"] == code


def test_subscription_begins_with_an_initial_response(shard: Shard, consumer: str) -> None:
    """The event stream of an accepted call can be read by the SDK of AWS."""
    with shard.subscribe(consumer):
        pass


def test_record_arrives_as_it_was_put(shard: Shard, consumer: str) -> None:
    """An event has records with data, partition key, sequence number and time of arrival."""
    number = shard.put(b"data")
    with shard.subscribe(consumer) as subscription:
        (record,) = subscription.next_with_records()["Records"]
    assert (record["Data"], record["PartitionKey"]) == (b"data", "key")
    assert record["SequenceNumber"] == number
    assert isinstance(record["ApproximateArrivalTimestamp"], datetime.datetime)


def test_latest_sends_what_is_put_from_now_on(shard: Shard, consumer: str) -> None:
    """LATEST begins just after the newest record there is when the call is accepted."""
    shard.put(b"before")
    with shard.subscribe(consumer, "LATEST") as subscription:
        shard.put(b"after")
        assert subscription.records(1) == [b"after"]


def test_trim_horizon_sends_all(filled: Any, consumers: list[str]) -> None:
    """TRIM_HORIZON begins at the oldest record of the shard."""
    shard, _ = filled
    with shard.subscribe(consumers[0], "TRIM_HORIZON") as subscription:
        assert subscription.records(3) == [b"one", b"two", b"three"]


def test_at_sequence_number_sends_that_record(filled: Any, consumers: list[str]) -> None:
    """AT_SEQUENCE_NUMBER begins at the record with this number."""
    shard, records = filled
    position = {"SequenceNumber": records[1]["SequenceNumber"]}
    with shard.subscribe(consumers[1], "AT_SEQUENCE_NUMBER", **position) as subscription:
        assert subscription.records(2) == [b"two", b"three"]


def test_after_sequence_number_sends_the_next_record(filled: Any, consumers: list[str]) -> None:
    """AFTER_SEQUENCE_NUMBER begins right after the record with this number."""
    shard, records = filled
    position = {"SequenceNumber": records[1]["SequenceNumber"]}
    with shard.subscribe(consumers[2], "AFTER_SEQUENCE_NUMBER", **position) as subscription:
        assert subscription.records(1) == [b"three"]


def test_at_timestamp_sends_from_that_time_on(filled: Any, consumers: list[str]) -> None:
    """AT_TIMESTAMP begins at the first record of that time or later."""
    shard, records = filled
    position = {"Timestamp": records[1]["ApproximateArrivalTimestamp"]}
    with shard.subscribe(consumers[3], "AT_TIMESTAMP", **position) as subscription:
        assert subscription.records(2) == [b"two", b"three"]


def test_old_timestamp_is_the_trim_horizon(filled: Any, consumers: list[str]) -> None:
    """AT_TIMESTAMP before the oldest record begins at the oldest record."""
    shard, _ = filled
    with shard.subscribe(consumers[4], "AT_TIMESTAMP", Timestamp=LONG_AGO) as subscription:
        assert subscription.records(3) == [b"one", b"two", b"three"]


def test_idle_shard_is_heard_of_every_five_seconds(
    target: Target, shard: Shard, consumer: str
) -> None:
    """Without records an event comes about every five seconds, with a position and no lag."""
    with shard.subscribe(consumer, "LATEST") as subscription:
        subscription.next()
        first = target.now()
        event = subscription.next()
        assert 3.5 <= target.now() - first <= 6.5
    assert event["Records"] == []
    assert event["ContinuationSequenceNumber"]
    assert event["MillisBehindLatest"] == 0


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_position_of_an_idle_shard_can_be_resumed(
    shard: Shard, consumer: str, other_consumer: str, kind: str
) -> None:
    """ContinuationSequenceNumber is a position even where no record was ever written."""
    with shard.subscribe(consumer, "LATEST") as subscription:
        position = subscription.next()["ContinuationSequenceNumber"]
    shard.put(b"later")
    with shard.subscribe(other_consumer, kind, SequenceNumber=position) as subscription:
        assert subscription.records(1) == [b"later"]


def test_position_after_records_can_be_resumed(
    shard: Shard, consumer: str, other_consumer: str
) -> None:
    """A subscription AFTER the last event's ContinuationSequenceNumber leaves out and repeats none.

    It is not below the numbers of the event's records.
    """
    last = shard.put(b"first")
    with shard.subscribe(consumer) as subscription:
        event = subscription.next_with_records()
    position = event["ContinuationSequenceNumber"]
    assert int(position) >= int(last)
    shard.put(b"second")
    with shard.subscribe(
        other_consumer, "AFTER_SEQUENCE_NUMBER", SequenceNumber=position
    ) as subscription:
        assert subscription.records(1) == [b"second"]


@pytest.mark.takes(15)
def test_backlog_is_sent_in_events_of_bounded_size(
    target: Target, shard: Shard, consumer: str
) -> None:
    """A subscriber that is behind is told so, until it has all; a record of 1 MiB fits."""
    for _ in range(4):
        shard.put(b"x" * (MIB - 3))
        target.pass_time(1.1 if target.limited else 0.05)
    with shard.subscribe(consumer) as subscription:
        events = [subscription.next_with_records()]
        while sum(len(event["Records"]) for event in events) < 4:
            events.append(subscription.next_with_records())
    assert max(sum(len(r["Data"]) for r in e["Records"]) for e in events) < 4 * (MIB - 3)
    assert events[0]["MillisBehindLatest"] > 0
    assert events[-1]["MillisBehindLatest"] == 0


def test_consumers_do_not_share_a_shard(shard: Shard, consumer: str, other_consumer: str) -> None:
    """Two consumers subscribe to one shard at once, and each gets every record."""
    with shard.subscribe(consumer) as one, shard.subscribe(other_consumer) as other:
        shard.put(b"both")
        assert one.records(1) == other.records(1) == [b"both"]


def test_second_call_within_five_seconds_is_refused(
    target: Target, shard: Shard, consumer: str
) -> None:
    """Less than 5 s after a successful call the same one gets ResourceInUseException."""
    with shard.subscribe(consumer, "LATEST") as first:
        target.pass_time(1.5)
        with refused("ResourceInUseException"):
            shard.subscribe(consumer, "LATEST").close()
        shard.put(b"unharmed")
        assert first.records(1) == [b"unharmed"]


def test_closing_does_not_shorten_the_five_seconds(
    target: Target, shard: Shard, consumer: str
) -> None:
    """The five seconds count from the call, also where its connection has been closed since."""
    with shard.subscribe(consumer, "LATEST"):
        pass
    target.pass_time(1.5)
    with refused("ResourceInUseException"):
        shard.subscribe(consumer, "LATEST").close()


def test_second_call_within_a_second_is_throttled(shard: Shard, consumer: str) -> None:
    """A consumer may call once a second for a shard; more often is LimitExceededException."""
    with shard.subscribe(consumer, "LATEST"), refused("LimitExceededException"):
        shard.subscribe(consumer, "LATEST").close()


def test_call_after_five_seconds_takes_over(target: Target, shard: Shard, consumer: str) -> None:
    """5 s after a successful call the same one is accepted, and the subscription before it ends."""
    with shard.subscribe(consumer, "LATEST") as first:
        target.pass_time(5.5)
        with shard.subscribe(consumer, "LATEST") as second:
            shard.put(b"new")
            end = first.end()
            assert second.records(1) == [b"new"]
    assert isinstance(end, EndedError) or is_error(end, "ResourceInUseException")


@pytest.mark.takes(302)
def test_subscription_ends_after_five_minutes(target: Target, shard: Shard, consumer: str) -> None:
    """A subscription lives for up to five minutes, then it ends in good order."""
    with shard.subscribe(consumer, "LATEST") as subscription:
        target.pass_time(290)
        shard.put(b"late")
        assert subscription.records(1) == [b"late"]
        target.pass_time(12)
        assert isinstance(subscription.end(), EndedError)


def events_to_the_end(
    subscription: Subscription, children: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All events; the last of them, and it alone, names these children."""
    events, end = subscription.rest()
    assert isinstance(end, EndedError)
    *before, last = events
    assert not any(event.get("ChildShards") for event in before)
    told = {child["ShardId"]: child for child in last["ChildShards"]}
    assert told.keys() == {child["ShardId"] for child in children}
    for child in children:
        assert hash_range(told[child["ShardId"]]) == hash_range(child)
    return events


def data_of(events: list[dict[str, Any]]) -> list[bytes]:
    return [record["Data"] for event in events for record in event["Records"]]


def test_split_ends_a_subscription_with_the_children(shard: Shard, consumer: str) -> None:
    """The parent's records come first; the last event has ChildShards; then the stream ends."""
    shard.put(b"old")
    with shard.subscribe(consumer) as subscription:
        assert subscription.records(1) == [b"old"]
        children = shard.stream.split(shard.listed)
        events = events_to_the_end(subscription, children)
    assert data_of(events) == []
    assert {tuple(c["ParentShards"]) for c in events[-1]["ChildShards"]} == {(shard.id,)}


def test_last_event_of_a_shard_has_no_position(shard: Shard, consumer: str) -> None:
    """There is nothing to go on with at the end of a shard, so no ContinuationSequenceNumber."""
    with shard.subscribe(consumer) as subscription:
        children = shard.stream.split(shard.listed)
        *_, last = events_to_the_end(subscription, children)
    assert not last.get("ContinuationSequenceNumber")


def test_merge_ends_both_subscriptions_with_the_child(
    unused: Iterator[Shard], consumer: str
) -> None:
    """Both parents' last events have the one child, and it has both as its parents."""
    one, other = next(unused), next(unused)
    with one.subscribe(consumer) as first, other.subscribe(consumer) as second:
        child = one.stream.merge(one.listed, other.listed)
        for subscription in (first, second):
            (told,) = events_to_the_end(subscription, [child])[-1]["ChildShards"]
            assert set(told["ParentShards"]) == {one.id, other.id}


def test_update_shard_count_ends_a_subscription(target: Target, make_stream: MakeStream) -> None:
    """UpdateShardCount replaces shards; the subscriptions of those end as with a split."""
    stream = make_stream()
    consumer = stream.consumer("one")
    (parent,) = stream.open_shards()
    with stream.subscribe(consumer, parent["ShardId"]) as subscription:
        target.client.update_shard_count(
            StreamName=stream.name, TargetShardCount=2, ScalingType="UNIFORM_SCALING"
        )
        stream.wait_until_active()
        children = stream.children(parent)
        assert len(children) == 2
        events_to_the_end(subscription, children)


def test_closed_shard_is_sent_to_its_end(shard: Shard, consumer: str) -> None:
    """A shard that was split before can be subscribed to: its records, its children, the end."""
    shard.put(b"old")
    children = shard.stream.split(shard.listed)
    with shard.subscribe(consumer) as subscription:
        events = events_to_the_end(subscription, children)
    assert data_of(events) == [b"old"]


def test_unknown_shard_is_not_found(stream: Stream, consumer: str) -> None:
    """A shard that the stream does not have gets ResourceNotFoundException."""
    with refused("ResourceNotFoundException"):
        stream.subscribe(consumer, "shardId-000000009999").close()


def test_unknown_consumer_is_not_found(shard: Shard, consumer: str) -> None:
    """A consumer that is not registered gets ResourceNotFoundException."""
    unknown = consumer.replace("consumer-0", "unknown")
    with refused("ResourceNotFoundException"):
        shard.subscribe(unknown).close()


def test_consumer_has_to_be_active(shard: Shard) -> None:
    """A consumer that is still CREATING gets ResourceInUseException."""
    stream = shard.stream
    answer = stream.client.register_stream_consumer(StreamARN=stream.arn, ConsumerName="creating")
    consumer = answer["Consumer"]["ConsumerARN"]
    try:
        with refused("ResourceInUseException"):
            shard.subscribe(consumer).close()
    finally:
        stream.wait_for_consumer(consumer)


def test_sequence_number_is_required(shard: Shard, consumer: str) -> None:
    """AT_SEQUENCE_NUMBER is refused without a number."""
    with refused(*INVALID):
        shard.subscribe(consumer, "AT_SEQUENCE_NUMBER").close()


def test_sequence_number_that_is_no_number_is_refused(shard: Shard, consumer: str) -> None:
    """A sequence number consists of digits."""
    with refused(*INVALID):
        shard.subscribe(consumer, "AT_SEQUENCE_NUMBER", SequenceNumber="abc").close()


def test_deregistered_consumer_is_sent_no_more(shard: Shard) -> None:
    """A subscription of a consumer that is deregistered ends with ResourceNotFoundException."""
    consumer = shard.stream.consumer("leaving")
    with shard.subscribe(consumer, "LATEST") as subscription:
        shard.stream.client.deregister_stream_consumer(ConsumerARN=consumer)
        end = subscription.end()
    assert is_error(end, "ResourceNotFoundException")


def test_deleted_stream_ends_a_subscription(make_stream: MakeStream) -> None:
    """A subscription of a stream that is deleted ends."""
    stream = make_stream()
    consumer = stream.consumer("one")
    (shard,) = stream.open_shards()
    with stream.subscribe(consumer, shard["ShardId"], "LATEST") as subscription:
        stream.client.delete_stream(StreamName=stream.name, EnforceConsumerDeletion=True)
        end = subscription.end()
    assert isinstance(end, EndedError) or is_error(end, "ResourceNotFoundException")
