"""A query gets its consumer, whatever state it is in and whoever else registers (F35, F37)."""

from __future__ import annotations

import threading

import pytest

from kinesis_ds.errors import ConsumerError
from kinesis_ds.offsets import SourceOffset
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
    return offset.single().consumer


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
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F37: twenty are registered; it is waited for as long as the option says, and told."""
    arn = arn_of(kinesis)
    for n in range(20):
        kinesis.wait_for(
            lambda n=n: _register(kinesis, arn, f"other{n}"),  # type: ignore[misc]
            what="a consumer",
        )
    query = start_query(kinesis, registerConsumerTimeoutInterval="5s")

    with pytest.raises(ConsumerError, match=r"LimitExceeded.*at most 20 a stream"):
        query.read_until(1)
    assert len(consumer_arns(kinesis)) == 20


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
