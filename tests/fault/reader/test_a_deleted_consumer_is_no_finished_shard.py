"""ResourceNotFound may mean the consumer, the stream or the shard: which, is looked up (F32)."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.errors import ConsumerError, KinesisConnectorError, OffsetError, StreamNotFoundError
from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import After
from kinesis_ds.testing import Delay, Fault, KinesisServer, Raise, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


def arn_of(kinesis: KinesisServer) -> str:
    found = kinesis.call("DescribeStreamSummary", StreamName=STREAM)["StreamDescriptionSummary"]
    return str(found["StreamARN"])


def consumers(kinesis: KinesisServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kinesis.call("ListStreamConsumers", StreamARN=arn_of(kinesis))[
        "Consumers"
    ]
    return found


def deregister(kinesis: KinesisServer) -> str:
    """Somebody removes the query's consumer; its name."""
    (consumer,) = consumers(kinesis)
    name = str(consumer["ConsumerName"])
    kinesis.call("DeregisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName=name)
    return name


def fail(query: MicroBatches) -> KinesisConnectorError:
    """Run until the query fails; returns why."""
    with pytest.raises(KinesisConnectorError) as caught:
        query.read_until(10_000)
    return caught.value


def assert_nothing_ended(query: MicroBatches) -> None:
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    assert all(isinstance(p, After) for p in next(iter(offset.streams.values())).shards.values())


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_deregistered_consumer_is_told_and_a_restart_goes_on(
    kinesis: KinesisServer, start_query: StartQuery, fail_on_data_loss: str
) -> None:
    """F32: the query fails with the consumer's name, no shard counts as read to its end, and the
    restarted query registers it again and misses nothing. It is no loss of data, so the user's
    leave to lose some changes nothing.
    """
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, failOnDataLoss=fail_on_data_loss)
    query.read_until(3)
    name = deregister(kinesis)

    error = fail(query)
    assert isinstance(error, ConsumerError)
    assert f"{name} of stream {STREAM} was deregistered" in str(error)
    assert_nothing_ended(query)
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    assert start_query(kinesis).read_until(5) == numbered(1, 5)
    assert [c["ConsumerName"] for c in consumers(kinesis)] == [name]


def test_a_consumer_registered_again_by_somebody_is_told(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F32, F35: one of that name is ACTIVE, and the query's own is gone all the same."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    # By the time the cause is looked for, the new one is there.
    kinesis.add_faults(Fault(Delay(20), "DescribeStreamSummary"))
    name = deregister(kinesis)
    kinesis.wait_for(lambda: not consumers(kinesis), what="the consumer to go")
    kinesis.call("RegisterStreamConsumer", StreamARN=arn_of(kinesis), ConsumerName=name)

    assert isinstance(fail(query), ConsumerError)
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    assert start_query(kinesis).read_until(5) == numbered(1, 5)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_deleted_stream_is_told(
    kinesis: KinesisServer, start_query: StartQuery, fail_on_data_loss: str
) -> None:
    """F32: neither its shards nor its consumer are what is missing; without a stream there is
    nothing to go on with, whatever may be lost.
    """
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, failOnDataLoss=fail_on_data_loss)
    query.read_until(3)
    kinesis.call("DeleteStream", StreamName=STREAM, EnforceConsumerDeletion=True)

    assert isinstance(fail(query), StreamNotFoundError)
    assert_nothing_ended(query)


def test_a_stream_created_again_is_told(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """F32: the name is there, and its positions mean nothing."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    kinesis.call("DeleteStream", StreamName=STREAM, EnforceConsumerDeletion=True)
    kinesis.wait_for(
        lambda: not kinesis.call("ListStreams")["StreamNames"], what="the stream to go"
    )
    kinesis.create_stream(STREAM)

    assert isinstance(fail(start_query(kinesis)), OffsetError)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Raise("ResourceNotFoundException"), times=2),
        Fault(Refuse("ResourceNotFoundException"), times=2),
    ],
    ids=["in the stream", "of the call"],
)
def test_where_all_is_there_it_passes(
    kinesis: KinesisServer, start_query: StartQuery, fault: Fault
) -> None:
    """F32: nothing is missing, so nothing has ended, and reading goes on."""
    kinesis.add_faults(fault)
    kinesis.put(STREAM, *numbered(1, 3))

    assert start_query(kinesis).read_until(3) == numbered(1, 3)
    assert len(kinesis.struck()) == 2
