"""A query gets its consumer, whatever state it is in and whoever else registers (F35, F37)."""

from __future__ import annotations

import logging
import threading

import pytest

from kinesis_ds.errors import ConsumerError
from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.testing import Disconnect, Fault, KinesisServer, Refuse, ServiceError, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import STREAM, numbered, subscribe_calls
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


def arn_of(kinesis: KinesisServer) -> str:
    found = kinesis.call("DescribeStreamSummary", StreamName=STREAM)["StreamDescriptionSummary"]
    return str(found["StreamARN"])


def consumer_arns(kinesis: KinesisServer) -> list[str]:
    found = kinesis.call("ListStreamConsumers", StreamARN=arn_of(kinesis))["Consumers"]
    return [c["ConsumerARN"] for c in found]


def name_of(query: MicroBatches) -> str:
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    return next(iter(offset.streams.values())).consumer


def registered(kinesis: KinesisServer) -> int:
    """How many consumers were registered over the network."""
    calls = kinesis.calls.calls("RegisterStreamConsumer")
    return len([call for call in calls if call.outcome == "ok"])


def test_a_fast_restart_meets_its_consumer_being_deleted(
    serve: Serve, start_query: StartQuery
) -> None:
    """F35: it waits until the old one is gone and registers a new one, whose ARN is another; none
    but that one is subscribed with.
    """
    kinesis = serve(Settings(consumer_ready_s=6))
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis)
    query.read_until(2)
    query.close()
    before = len(subscribe_calls(kinesis))
    (old,) = consumer_arns(kinesis)
    kinesis.call("DeregisterStreamConsumer", ConsumerARN=old)
    kinesis.put(STREAM, *numbered(3, 4))

    query = start_query(kinesis)
    assert query.read_until(4) == numbered(1, 4)
    (new,) = consumer_arns(kinesis)
    assert new != old
    assert {c.request["ConsumerARN"] for c in subscribe_calls(kinesis)[before:]} == {new}
    assert registered(kinesis) == 2


def test_one_that_stays_in_deletion_is_told(serve: Serve, start_query: StartQuery) -> None:
    """F35: not waited for longer than the option says; name, state and option are named."""
    kinesis = serve(Settings(consumer_ready_s=60))
    arn = arn_of(kinesis)
    kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="mine")
    kinesis.call("DeregisterStreamConsumer", StreamARN=arn, ConsumerName="mine")
    query = start_query(kinesis, consumerName="mine", registerConsumerTimeoutInterval="5s")

    with pytest.raises(ConsumerError) as caught:
        query.read_until(1)
    for said in ("mine", STREAM, "DELETING", "registerConsumerTimeoutInterval"):
        assert said in str(caught.value)


def test_one_that_is_created_slowly_is_waited_for(serve: Serve, start_query: StartQuery) -> None:
    """F37: CREATING for half a minute, registered once."""
    kinesis = serve(Settings(consumer_ready_s=30))
    kinesis.put(STREAM, *numbered(1, 2))

    assert start_query(kinesis).read_until(2) == numbered(1, 2)
    assert registered(kinesis) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Refuse("LimitExceededException"), "RegisterStreamConsumer", times=12),
        Fault(Refuse("ResourceInUseException"), "RegisterStreamConsumer", times=2),
        Fault(Refuse("InternalFailure", status=500), "RegisterStreamConsumer", times=6),
        Fault(Disconnect(performed=True), "RegisterStreamConsumer"),
        Fault(Refuse("LimitExceededException"), "DescribeStreamConsumer", times=12),
    ],
    ids=["throttled", "raced", "failing", "answer lost", "description throttled"],
)
def test_registration_that_does_not_work_at_once_is_tried_again(
    kinesis: KinesisServer, start_query: StartQuery, fault: Fault
) -> None:
    """F37: throttled by the account's other streams, raced by a peer, or without an answer."""
    kinesis.add_faults(fault)
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis)

    assert query.read_until(2) == numbered(1, 2)
    assert len(kinesis.struck()) == fault.times
    assert len(consumer_arns(kinesis)) == 1


def test_a_consumer_that_another_process_registers_meanwhile_is_used(
    serve: Serve, start_query: StartQuery
) -> None:
    """F37: the other's call comes between ours to look and ours to register."""
    kinesis = serve(
        Settings(consumer_ready_s=3),
        Fault(Refuse("ResourceInUseException"), "RegisterStreamConsumer", call=1),
    )
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, consumerName="shared")
    arn = arn_of(kinesis)

    def register() -> None:
        kinesis.wait_for(kinesis.struck, what="our registration to be refused")
        if not consumer_arns(kinesis):
            kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="shared")

    peer = threading.Thread(target=register)
    peer.start()
    try:
        assert query.read_until(2) == numbered(1, 2)
    finally:
        peer.join()
    assert len(consumer_arns(kinesis)) == 1


def test_no_room_for_another_consumer_is_told(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F37: twenty are registered; it is waited for as long as the option says, and told with their
    names: at once in the log, and in the error.
    """
    arn = arn_of(kinesis)
    for n in range(20):
        kinesis.wait_for(
            lambda n=n: _register(kinesis, arn, f"other{n}"),  # type: ignore[misc]
            what="a consumer",
        )
    query = start_query(kinesis, registerConsumerTimeoutInterval="5s")

    with caplog.at_level(logging.WARNING), pytest.raises(ConsumerError) as caught:
        query.read_until(1)
    for said in ("LimitExceeded", "at most 20 a stream", "has 20 consumers: other0, other1, "):
        assert said in str(caught.value)
    (told,) = [r.getMessage() for r in caplog.records]
    for said in ("waits up to 5s for its consumer", "has 20 consumers: other0, ", "consumer-name"):
        assert said in told
    assert len(consumer_arns(kinesis)) == 20


def test_consumers_that_checkpoints_left_behind_are_named_with_the_way_to_remove_them(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F37: at once, oldest first: those whose names were made up are the ones that pile up."""
    arn = arn_of(kinesis)
    for n in range(20):
        name = f"other{n}" if n < 12 else f"kinesis_ds_{20 - n:012x}"
        kinesis.wait_for(
            lambda name=name: _register(kinesis, arn, name),  # type: ignore[misc]
            what="a consumer",
        )
    query = start_query(kinesis, registerConsumerTimeoutInterval="5s")

    with caplog.at_level(logging.WARNING), pytest.raises(ConsumerError) as caught:
        query.read_until(1)
    found = kinesis.call("ListStreamConsumers", StreamARN=arn)["Consumers"]
    oldest = min(
        (c["ConsumerCreationTimestamp"], c["ConsumerName"])
        for c in found
        if c["ConsumerName"].startswith("kinesis_ds_")
    )[1]
    command = f"deregister-stream-consumer --stream-arn {arn} --consumer-name {oldest}"
    for text in (caplog.text, str(caught.value)):
        assert "made up the names of 8 of them, oldest first" in text
        assert f"{oldest} (since " in text
        assert command in text


def test_registrations_of_other_streams_pass(
    serve: Serve, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F37: five are being created in the account already; it is waited for, and told once when that
    takes long.
    """
    kinesis = serve(Settings(consumer_ready_s=80))
    kinesis.create_stream("other")
    other = arn_of(kinesis).replace(STREAM, "other")
    for n in range(5):
        kinesis.call("RegisterStreamConsumer", StreamARN=other, ConsumerName=f"other{n}")
    kinesis.put(STREAM, *numbered(1, 2))

    with caplog.at_level(logging.WARNING):
        assert start_query(kinesis).read_until(2) == numbered(1, 2)
    assert "LimitExceededException" in {
        call.outcome for call in kinesis.calls.calls("RegisterStreamConsumer")
    }
    (told,) = [r.getMessage() for r in caplog.records]
    assert "waits up to 300s for its consumer" in told
    assert "LimitExceededException" in told
    assert "has" not in told.partition("last seen")[0]


def _register(kinesis: KinesisServer, arn: str, name: str) -> bool:
    try:
        kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName=name)
    except ServiceError:
        return False  # more than five at once, or in a second
    return True


def test_the_checkpoint_names_the_consumer_before_it_is_registered(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F35: killed at any time, a query finds its own consumer again and leaves no other behind."""
    query = start_query(kinesis)
    assert query.step()
    name = name_of(query)
    assert registered(kinesis) == 0
    query.close()
    kinesis.put(STREAM, *numbered(1, 2))
    for _ in range(2):
        query = start_query(kinesis)
        query.read_until(2)
        assert name_of(query) == name
        query.close()

    assert [arn.rpartition("/")[2].partition(":")[0] for arn in consumer_arns(kinesis)] == [name]
    assert registered(kinesis) == 1


# --- consumers that somebody else has registered ------------------------------------------------


@pytest.mark.parametrize("by", ["name", "arn"])
def test_a_registered_consumer_is_used_and_left_as_it_is(
    serve: Serve, start_query: StartQuery, by: str
) -> None:
    """F36, F37: while it is being created it is waited for; nothing is registered, and nothing
    deregistered.
    """
    kinesis = serve(Settings(consumer_ready_s=6))
    kinesis.call("RegisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName="theirs")
    (arn,) = consumer_arns(kinesis)
    kinesis.put(STREAM, *numbered(1, 2))
    for n in (2, 3):
        query = start_query(kinesis, registeredConsumerId="theirs" if by == "name" else arn)
        kinesis.put(STREAM, *numbered(n + 1, n + 1))
        assert query.read_until(n + 1) == numbered(1, n + 1)
        query.close()

    assert consumer_arns(kinesis) == [arn]
    assert {call.request["ConsumerARN"] for call in subscribe_calls(kinesis)} == {arn}
    for operation in ("RegisterStreamConsumer", "DeregisterStreamConsumer"):
        assert kinesis.calls.calls(operation) == []


def told(query: MicroBatches) -> str:
    with pytest.raises(ConsumerError) as caught:
        query.read_until(1)
    return str(caught.value)


def test_a_registered_consumer_that_is_missing_is_told(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F35: by name and by ARN, with the command that registers it; an ARN that was registered again
    names its successor.
    """
    arn = arn_of(kinesis)
    command = f"register-stream-consumer --stream-arn {arn} --consumer-name theirs"
    error = told(start_query(kinesis, registeredConsumerId="theirs"))
    assert f"theirs is not registered with stream {STREAM}" in error
    assert command in error

    gone = f"{arn}/consumer/theirs:1600000000"
    error = told(start_query(kinesis, registeredConsumerId=gone))
    assert gone in error
    assert command in error

    kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="theirs")
    (now,) = consumer_arns(kinesis)
    assert f"registered since: {now}" in told(start_query(kinesis, registeredConsumerId=gone))
    assert registered(kinesis) == 0


def test_a_registered_consumer_of_another_stream_is_told(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """One of the same name in another account: both are named, and no call is needed to see it."""
    other = arn_of(kinesis).replace(":000000000000:", ":999999999999:")
    theirs = f"{other}/consumer/theirs:1600000000"

    error = told(start_query(kinesis, registeredConsumerId=theirs))
    assert f"belongs to {other}, and the query reads {arn_of(kinesis)}" in error
    assert kinesis.calls.calls("DescribeStreamConsumer") == []


def test_a_registered_consumer_that_is_being_deleted_is_told(
    serve: Serve, start_query: StartQuery
) -> None:
    """F35: at once, since it never becomes ACTIVE again."""
    kinesis = serve(Settings(consumer_ready_s=60))
    arn = arn_of(kinesis)
    kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="theirs")
    kinesis.call("DeregisterStreamConsumer", StreamARN=arn, ConsumerName="theirs")

    error = told(start_query(kinesis, registeredConsumerId="theirs"))
    assert "is being deleted" in error
    assert "Register it again" in error


def test_a_registered_consumer_that_stays_in_creation_is_told(
    serve: Serve, start_query: StartQuery
) -> None:
    """F37: not waited for longer than the option says."""
    kinesis = serve(Settings(consumer_ready_s=600))
    kinesis.call("RegisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName="theirs")
    query = start_query(
        kinesis, registeredConsumerId="theirs", registerConsumerTimeoutInterval="5s"
    )

    error = told(query)
    for said in ("theirs", "CREATING", "5s", "registerConsumerTimeoutInterval"):
        assert said in error


def test_looking_for_a_registered_consumer_may_fail_for_a_moment(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F37: throttled by others that start at the same time."""
    kinesis.call("RegisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName="theirs")
    fault = Fault(Refuse("LimitExceededException"), "DescribeStreamConsumer", times=12)
    kinesis.add_faults(fault)
    kinesis.put(STREAM, *numbered(1, 2))

    query = start_query(kinesis, registeredConsumerId="theirs")
    assert query.read_until(2) == numbered(1, 2)
    assert len(kinesis.struck()) == 12


def test_a_registered_consumer_that_goes_while_it_is_read_with(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F32: the query does not promise to register it again."""
    kinesis.call("RegisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName="theirs")
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, registeredConsumerId="theirs")
    query.read_until(2)
    kinesis.call("DeregisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName="theirs")

    with pytest.raises(ConsumerError, match="Register it again and restart the query"):
        query.read_until(3)


def test_made_up_names_begin_as_told(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """So that a policy can allow them, and their owner finds them."""
    kinesis.put(STREAM, *numbered(1, 2))
    start_query(kinesis, consumerNamePrefix="team-a-").read_until(2)

    (arn,) = consumer_arns(kinesis)
    assert "/consumer/team-a-" in arn
