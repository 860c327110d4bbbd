"""A consumer that is taken away or shared while a query reads (F32, F36, F39)."""

from __future__ import annotations

import logging

import pytest

from kinesis_ds.errors import ConsumerError
from kinesis_ds.testing import Delay, Fault, KinesisServer, Refuse
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import STREAM, numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_a_shared_consumer_is_told_once_for_all_shards(
    serve: Serve, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F39: with the name of the consumer, however many shards are refused."""
    shards = 4
    kinesis = serve(shards=shards)
    kinesis.add_faults(Fault(Refuse("ResourceInUseException"), times=None))
    agent = start_agent(kinesis, consumer="shared-by-two")
    ids = kinesis.open_shards(STREAM)
    with caplog.at_level(logging.WARNING):
        agent.assign(*ids)
        for shard in ids:
            eventually(
                lambda s=shard: agent.errors(s).get("ResourceInUseException", 0) >= 36,  # type: ignore[misc]
                "36 refusals",
            )

    (told,) = [r.getMessage() for r in caplog.records]
    assert "consumer shared-by-two " in told
    assert "consumerName" in told


def test_a_consumer_deleted_while_all_is_quiet_is_told(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F32: the open subscription goes on and says nothing; looking now and then finds out, long
    before the subscription's five minutes are over. No shard counts as ended.
    """
    query = start_query(kinesis, consumerRefreshInterval="10s", consumerName="mine")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    before = len(subscribe_calls(kinesis))
    # The subscription is left alone: its end would tell as well.
    kinesis.add_faults(Fault(Refuse("ResourceNotFoundException"), "DescribeStreamConsumer"))

    with pytest.raises(ConsumerError, match=f"mine of stream {STREAM} was deregistered") as caught:
        query.read_until(4)
    assert "registers the consumer again" in str(caught.value)
    assert len(subscribe_calls(kinesis)) == before
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    assert start_query(kinesis, consumerName="mine").read_until(5) == numbered(1, 5)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Refuse("LimitExceededException"), "DescribeStreamConsumer", times=8),
        Fault(Refuse("InternalFailure", status=500), "DescribeStreamConsumer", times=8),
        Fault(Delay(20), "DescribeStreamConsumer", times=2),
    ],
    ids=["throttled", "failing", "slow"],
)
def test_looking_for_the_consumer_may_fail(
    kinesis: KinesisServer, start_query: StartQuery, fault: Fault
) -> None:
    """F32: no answer says nothing about the consumer; reading goes on, and so does looking."""
    query = start_query(kinesis, consumerRefreshInterval="5s")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    kinesis.add_faults(fault)
    kinesis.wait_for(lambda: len(kinesis.struck()) == fault.times, what="the looks that fail")
    looked = len(kinesis.calls.calls("DescribeStreamConsumer"))
    kinesis.wait_for(
        lambda: len(kinesis.calls.calls("DescribeStreamConsumer")) > looked, what="the next look"
    )
    kinesis.put(STREAM, *numbered(4, 5))

    assert query.read_until(5) == numbered(1, 5)
