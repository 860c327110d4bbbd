"""SubscribeToShard in the double: who gets a subscription."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.subscription import End
from tests.support.model import ARN, Model, heartbeat, raised, shard_id, subscribed


@pytest.mark.parametrize(
    ("arn", "shard", "expected"),
    [
        pytest.param("{arn}", 0, "ok", id="ok"),
        pytest.param(ARN + "s/consumer/c:1", 0, "ResourceNotFoundException", id="other consumer"),
        pytest.param(ARN + "t/consumer/c:1", 0, "ResourceNotFoundException", id="other stream"),
        pytest.param("{arn}", 7, "ResourceNotFoundException", id="no such shard"),
        pytest.param("c", 0, "ValidationException", id="no ARN"),
    ],
)
def test_what_must_exist(arn: str, shard: int, expected: str) -> None:
    """The consumer and the shard."""
    model = Model()
    model.create()
    registered = model.register()

    assert model.subscribe_code(arn.format(arn=registered), shard) == expected


def test_a_consumer_must_be_active() -> None:
    """Neither being created nor being removed."""
    model = Model(consumer_ready_s=2.0)
    model.create()
    members = {"StreamARN": ARN + "s", "ConsumerName": "c"}
    made = model.ask("RegisterStreamConsumer", None, **members)["Consumer"]
    arn = made["ConsumerARN"]

    assert model.subscribe_code(arn) == "ResourceInUseException"
    model.now += 2
    assert model.subscribe_code(arn) == "ok"
    model.ask("DeregisterStreamConsumer", None, ConsumerARN=arn)
    model.now += 1.5
    assert model.subscribe_code(arn) == "ResourceInUseException"
    model.now += 1.5
    assert model.subscribe_code(arn) == "ResourceNotFoundException"


def test_one_call_a_second_and_five_seconds_after_success() -> None:
    """The first rule counts calls, the second those that succeeded; then comes the take-over."""
    model, arn, first = subscribed()
    codes = []
    for pause in (0.5, 0.6, 0.9, 1.0, 1.9, 0.1):
        model.now += pause
        codes.append(model.subscribe_code(arn))

    assert codes == [
        "LimitExceededException",
        "ResourceInUseException",
        "LimitExceededException",
        "ResourceInUseException",
        "ResourceInUseException",
        "LimitExceededException",
    ]
    model.now += 1
    second = model.subscribe(arn)
    assert (first.superseded, second.superseded) == (True, False)
    assert raised(model, first) == "ResourceInUseException"
    heartbeat(model, second)


def test_closing_does_not_free_the_shard() -> None:
    """Within five seconds of a successful call the next is refused, connection or not."""
    model, arn, subscription = subscribed()
    subscription.close()
    subscription.close()
    model.now += 4.9

    assert subscription.next(model.now) == End()
    assert model.subscribe_code(arn) == "ResourceInUseException"
    model.now += 1
    assert model.subscribe_code(arn) == "ok"


def test_shards_and_consumers_do_not_get_in_each_others_way() -> None:
    """The rules are of one consumer and one shard, and so is the rate."""
    model = Model()
    model.create(2)
    arns = [model.register("a"), model.register("b")]
    opened = [model.subscribe(arn, shard) for arn in arns for shard in (0, 1)]

    assert model.account.subscriptions() == opened
    assert [(s.consumer_arn, s.shard_id) for s in opened] == [
        (arn, shard_id(shard)) for arn in arns for shard in (0, 1)
    ]
    model.put(*[b"x" * (MIB - 3)] * 2)
    for subscription in (opened[0], opened[2]):
        assert [len(model.event(subscription)["Records"]) for _ in range(2)] == [1, 1]


def test_rules_of_subscriptions_hold_without_limits() -> None:
    """They are rules, not rates."""
    model, arn, _ = subscribed(enforce_limits=False)
    model.now += 2

    assert model.subscribe_code(arn) == "ResourceInUseException"


def test_a_short_interval_for_tests() -> None:
    """Where the five seconds are made shorter, the one second is as well."""
    model, arn, _ = subscribed(resubscribe_s=0.1)
    model.now += 0.05
    assert model.subscribe_code(arn) == "LimitExceededException"
    model.now += 0.06

    assert model.subscribe_code(arn) == "ok"


def test_a_refused_call_is_no_success() -> None:
    """A bad position neither takes over nor starts the five seconds."""
    model = Model()
    model.create()
    arn = model.register()
    with pytest.raises(ServiceError, match="did not come from this stream"):
        model.subscribe(arn, kind="AFTER_SEQUENCE_NUMBER", SequenceNumber="5")
    model.now += 1

    assert model.subscribe_code(arn) == "ok"


def test_a_dry_run_opens_nothing() -> None:
    """It says that it would have."""
    model = Model()
    model.create()
    members = {"ConsumerARN": model.register(), "ShardId": shard_id(0), "DryRun": True}
    position = {"StartingPosition": {"Type": "LATEST"}}

    with pytest.raises(ServiceError, match="DryRunOperationException"):
        model.account.subscribe({**members, **position}, model.now)
    assert model.account.subscriptions() == []


def test_repr_tells_the_state() -> None:
    """Open, superseded or over."""
    model, arn, subscription = subscribed()
    model.now += 5
    assert repr(subscription) == "<s shardId-000000000000 c open>"
    model.subscribe(arn)
    assert repr(subscription) == "<s shardId-000000000000 c superseded>"
    subscription.close()
    assert repr(subscription) == "<s shardId-000000000000 c over>"
