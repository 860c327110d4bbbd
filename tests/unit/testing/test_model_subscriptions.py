"""Subscriptions in the double: what they send, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing.subscription import End, Send, Wait
from tests.support.model import Model, data_of, heartbeat, raised, shard_id, subscribed

# --- events --------------------------------------------------------------------------------------


def test_the_first_event_comes_at_once() -> None:
    """Empty where there is nothing to read; then there is silence until the heartbeat."""
    model, _, subscription = subscribed()

    first = heartbeat(model, subscription)
    assert subscription.next(model.now) == Wait(model.now + 5)
    model.now += 4.9
    assert isinstance(subscription.next(model.now), Wait)
    model.now += 0.1
    assert heartbeat(model, subscription) > first


def test_records_are_sent_as_they_come() -> None:
    """With the position after them, and the heartbeat counts anew from there."""
    model, _, subscription = subscribed()
    heartbeat(model, subscription)
    model.now += 2
    numbers = model.put(b"a", b"b")
    event = model.event(subscription)

    assert data_of(event["Records"]) == [b"a", b"b"]
    assert event["ContinuationSequenceNumber"] == str(numbers[-1])
    assert event["MillisBehindLatest"] == 0
    assert "ChildShards" not in event
    assert subscription.next(model.now) == Wait(model.now + 5)


def test_a_backlog_is_sent_in_bounded_events() -> None:
    """Each says how far behind it is; a record above the bound travels alone."""
    model = Model(event_bytes=1000, enforce_limits=False)
    model.create()
    arn = model.register()
    model.put(b"x" * 397, b"x" * 597, b"y", b"z" * 5000, b"w")
    model.now += 10
    subscription = model.subscribe(arn)
    events = [model.event(subscription) for _ in range(4)]

    sizes = [[len(d) for d in data_of(e["Records"])] for e in events]
    assert sizes == [[397, 597], [1], [5000], [1]]
    assert [e["MillisBehindLatest"] for e in events] == [10_000, 10_000, 10_000, 0]


def test_two_mebibytes_a_second() -> None:
    """A backlog of 10 MiB takes four seconds after the first two MiB, however often it is asked."""
    model = Model()
    model.create()
    arn = model.register()
    model.put(*[b"x" * (MIB - 3)] * 10)
    subscription = model.subscribe(arn)
    began, got = model.now, 0
    while got < 10:
        step = subscription.next(model.now)
        if isinstance(step, Send):
            got += step.records
        else:
            assert isinstance(step, Wait)
            model.now = min(step.until, model.now + 0.1)

    assert model.now - began == pytest.approx(4.0, abs=0.01)


def test_a_large_record_borrows() -> None:
    """It is sent at once, and what follows waits until it is paid for."""
    model = Model(event_bytes=10 * MIB)
    model.create()
    arn = model.register()
    model.put(b"x" * (8 * MIB - 3), b"y")
    subscription = model.subscribe(arn)

    assert len(model.event(subscription)["Records"]) == 2
    model.put(b"z" * (MIB - 3))
    step = subscription.next(model.now)
    assert isinstance(step, Wait)
    assert step.until == pytest.approx(model.now + 3.5, abs=0.01)
    model.now = step.until
    assert len(model.event(subscription)["Records"]) == 1


def test_without_limits_a_backlog_comes_at_once() -> None:
    """As fast as it is asked for."""
    model = Model(enforce_limits=False)
    model.create()
    arn = model.register()
    model.put(*[b"x" * 1000] * 20_000)
    subscription = model.subscribe(arn)
    got = 0
    while got < 20_000:
        got += len(model.event(subscription)["Records"])


# --- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        ("TRIM_HORIZON", {}, b"abc"),
        ("LATEST", {}, b"c"),
        ("AT_SEQUENCE_NUMBER", {"SequenceNumber": 1}, b"bc"),
        ("AFTER_SEQUENCE_NUMBER", {"SequenceNumber": 1}, b"c"),
        ("AT_TIMESTAMP", {"Timestamp": 1}, b"bc"),
    ],
)
def test_where_a_subscription_starts(kind: str, members: dict[str, Any], expected: bytes) -> None:
    """At the ends, at or after a record, or at a time."""
    model = Model()
    model.create()
    arn = model.register()
    numbers, times = [], []
    for item in (b"a", b"b"):
        numbers += model.put(item)
        times.append(model.now)
        model.now += 1
    values = {"SequenceNumber": str(numbers[1]), "Timestamp": times[1]}
    subscription = model.subscribe(arn, kind=kind, **{name: values[name] for name in members})
    model.put(b"c")

    assert b"".join(data_of(model.event(subscription)["Records"])) == expected


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_an_idle_position_is_good_to_resume(kind: str) -> None:
    """It is beyond the last record, below the next, and loses none between two subscriptions."""
    model, arn, subscription = subscribed()
    [last] = model.put(b"before")
    model.event(subscription)
    model.now += 5
    idle = heartbeat(model, subscription)
    subscription.close()
    [following] = model.put(b"between")

    assert last < idle < following
    resumed = model.subscribe(arn, kind=kind, SequenceNumber=str(idle))
    assert data_of(model.event(resumed)["Records"]) == [b"between"]


@pytest.mark.parametrize("expired_position", ["refuse", "oldest"])
def test_a_position_that_has_expired(expired_position: str) -> None:
    """Refused, or moved to the oldest record in silence."""
    model, arn, subscription = subscribed(expired_position=expired_position)
    subscription.close()
    model.now += 5
    first, _ = model.put(b"a", b"b")
    model.account.trim("s", shard_id(0))
    model.put(b"c")
    asked = {"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(first)}

    if expired_position == "refuse":
        assert model.subscribe_code(arn, **asked) == "InvalidArgumentException"
    else:
        assert data_of(model.event(model.subscribe(arn, **asked))["Records"]) == [b"c"]


def test_retention_overtakes_a_subscription_that_is_not_read() -> None:
    """It goes on with the oldest record, and says nothing, as far as AWS says."""
    model, _, subscription = subscribed(subscription_life_s=1e9)
    model.put(b"a")
    model.now += 25 * 3600
    model.put(b"b")

    assert data_of(model.event(subscription)["Records"]) == [b"b"]


# --- the end of a shard --------------------------------------------------------------------------


def test_the_last_event_names_the_children() -> None:
    """With the last records, if they are not sent yet; then the stream ends."""
    model, _, subscription = subscribed()
    heartbeat(model, subscription)
    model.put(b"last")
    model.split(0)
    event = model.event(subscription)

    assert data_of(event["Records"]) == [b"last"]
    assert "ContinuationSequenceNumber" not in event
    assert [c["ShardId"] for c in event["ChildShards"]] == [shard_id(1), shard_id(2)]
    assert subscription.next(model.now) == End()
    assert model.account.subscriptions() == []


def test_an_idle_shard_ends_when_it_is_closed() -> None:
    """The wait is no longer than the change that is under way takes."""
    model, _, subscription = subscribed()
    heartbeat(model, subscription)
    model.ask("SplitShard", ShardToSplit=shard_id(0), NewStartingHashKey="1000")
    step = subscription.next(model.now)

    assert step == Wait(model.now + model.settings.stream_ready_s)
    model.now = step.until
    event = model.event(subscription)
    assert event["Records"] == []
    assert event["MillisBehindLatest"] == 0
    assert len(event["ChildShards"]) == 2
    assert subscription.next(model.now) == End()


@pytest.mark.parametrize("kind", ["TRIM_HORIZON", "LATEST"])
def test_a_closed_shard_is_read_to_its_end(kind: str) -> None:
    """Event by event, and the children come with the last one only."""
    model = Model(event_bytes=10, enforce_limits=False)
    model.create()
    arn = model.register()
    model.put(b"1234567", b"1234567")
    model.split(0)
    subscription = model.subscribe(arn, kind=kind)
    events = [model.event(subscription) for _ in range(2 if kind == "TRIM_HORIZON" else 1)]

    assert subscription.next(model.now) == End()
    assert ["ChildShards" in e for e in events] == [False, True][-len(events) :]
    assert ["ContinuationSequenceNumber" in e for e in events] == [True, False][-len(events) :]


def test_scaling_ends_every_shard() -> None:
    """Children of merges name both parents."""
    model = Model()
    model.create(2)
    arn = model.register()
    subscriptions = [model.subscribe(arn, shard) for shard in (0, 1)]
    model.scale(1)

    for subscription in subscriptions:
        [child] = model.event(subscription)["ChildShards"]
        assert child["ParentShards"] == [shard_id(0), shard_id(1)]


# --- ends and errors in the stream ---------------------------------------------------------------


def test_a_subscription_lasts_five_minutes() -> None:
    """Then it ends, in silence, whatever there is to read."""
    model, _, subscription = subscribed()
    ends_at = model.now + 300
    while model.now < ends_at:
        step = subscription.next(model.now)
        if isinstance(step, Wait):
            model.now = step.until
    model.put(b"late")

    assert model.now == ends_at
    assert subscription.next(model.now) == End()


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        pytest.param("deregister", "ResourceNotFoundException", id="consumer deregistered"),
        pytest.param("delete", "ResourceNotFoundException", id="stream deleted"),
        pytest.param("key", "KMSDisabledException", id="key disabled"),
        pytest.param("forget", "ResourceNotFoundException", id="shard expired"),
        pytest.param("replace", "ResourceInUseException", id="taken over"),
    ],
)
def test_exceptions_in_the_stream(ending: str, expected: str) -> None:
    """At once, even with records to read; then the stream is over."""
    model, arn, subscription = subscribed()
    model.put(b"unread")
    if ending == "deregister":
        model.ask("DeregisterStreamConsumer", None, ConsumerARN=arn)
    elif ending == "delete":
        model.ask("DeleteStream", EnforceConsumerDeletion=True)
        model.settle()
        model.create()
    elif ending == "key":
        model.account.set_key_state("s", "KMSDisabledException")
    elif ending == "forget":
        model.split(0)
        model.account.settle(model.now)
        model.account.forget_shard("s", shard_id(0))
    else:
        model.now += 5
        model.subscribe(arn)
        assert subscription.superseded

    assert raised(model, subscription) == expected
