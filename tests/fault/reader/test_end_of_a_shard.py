"""A shard is over when Kinesis says so twice, and not before its last record (F29, F30, F33)."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import AccessError
from kinesis_ds.testing import (
    Alter,
    CloseStream,
    Cut,
    Fault,
    KinesisServer,
    Raise,
    Refuse,
    Settings,
)
from kinesis_ds.testing.faults import StreamAction
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, STREAM, Agent, numbered, starts, subscribe_calls

pytestmark = pytest.mark.fault

NULL = Alter(put={"ChildShards": None, "ContinuationSequenceNumber": None})
NO_CHILDREN = Alter(drop=["ChildShards"])
CHILD = {"ShardId": "shardId-000000000009", "ParentShards": [FIRST], "HashKeyRange": {}}


@pytest.mark.each_transport
def test_the_end_comes_behind_the_last_records(kinesis: KinesisServer, agent: Agent) -> None:
    """F30: the last event holds records, and the shard is over when they are there, not sooner."""
    kinesis.put(STREAM, *numbered(1, 5))
    kinesis.split(STREAM, FIRST)
    agent.assign()

    agent.take_to_the_end(numbered(1, 5))
    assert starts(subscribe_calls(kinesis)) == ["TRIM_HORIZON"]


@pytest.mark.each_transport
def test_the_end_alone_is_an_end(kinesis: KinesisServer, agent: Agent) -> None:
    """F29: no records and no continuation while a subscription is open: nothing is asked for at
    null, and nothing at all any more.
    """
    kinesis.put(STREAM, *numbered(1, 2))
    agent.assign()
    agent.take_until(numbered(1, 2))
    kinesis.split(STREAM, FIRST)

    agent.take_to_the_end(numbered(1, 2))
    assert len(subscribe_calls(kinesis)) == 1
    assert kinesis.calls.calls("GetRecords") == []


@pytest.mark.parametrize(
    ("action", "last"),
    [
        pytest.param(NO_CHILDREN, [], id="no children"),
        pytest.param(NO_CHILDREN, numbered(4, 5), id="records and no children"),
        pytest.param(NULL, numbered(4, 5), id="null"),
        pytest.param(CloseStream(), numbered(4, 5), id="closed before the last records"),
        pytest.param(Cut(30, properly=True), [], id="cut short every time"),
        pytest.param(Raise("InternalFailureException"), [], id="failed every time"),
    ],
)
def test_half_an_end_is_confirmed(
    kinesis: KinesisServer, start_query: StartQuery, action: StreamAction, last: list[bytes]
) -> None:
    """F29, F33: without its child shards, or broken off at the end, every time, as some servers do:
    GetRecords is asked, nothing is lost, and the children found by ListShards follow.
    """
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    kinesis.put(STREAM, *last)
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(6, 7))
    # Records that are cut off every time could not be read by anybody.
    often = None if isinstance(action, Alter) or not last else 1
    kinesis.add_faults(Fault(action, shard=FIRST, event=1, times=often))
    query = start_query(kinesis, shardFetchInterval="2s")

    expected = [*numbered(1, 3), *last, *numbered(6, 7)]
    assert query.read_until(len(expected)) == expected
    assert kinesis.struck()
    asked = [call.request["StartingPosition"] for call in subscribe_calls(kinesis)]
    assert all(position.get("SequenceNumber", "") is not None for position in asked)


def test_no_continuation_in_the_middle_is_no_end(serve: Serve, start_agent: StartAgent) -> None:
    """F29, F33: GetRecords says that more may come, and reading goes on behind the last record."""
    none = Alter(drop=["ContinuationSequenceNumber"])
    kinesis = serve(Settings(event_bytes=1), Fault(none, event=2))
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 5))
    numbers = [r.sequence_number for r in kinesis.records(STREAM)]
    kinesis.wait_for(lambda: len(subscribe_calls(kinesis)) > 1, what="another subscription")
    # Events that were on their way behind the one without continuation count as well.
    assert set(starts(subscribe_calls(kinesis))[1:]) <= {
        f"AFTER_SEQUENCE_NUMBER:{number}" for number in numbers[1:]
    }
    assert not agent.ended()


def test_children_in_the_middle_are_no_end(serve: Serve, start_agent: StartAgent) -> None:
    """F33: named too early, with a way on, or without one."""
    kinesis = serve(
        Settings(event_bytes=1),
        Fault(Alter(put={"ChildShards": [CHILD]}), call=1, event=2),
    )
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 5))
    assert not agent.ended()


def test_records_behind_a_false_end_are_read(kinesis: KinesisServer, agent: Agent) -> None:
    """F30, F33: the connection breaks at a closed shard, and GetRecords still finds records."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()
    agent.take_until(numbered(1, 3))
    kinesis.add_faults(Fault(CloseStream(), event=0))
    with kinesis.down():
        kinesis.put(STREAM, *numbered(4, 9))
        kinesis.split(STREAM, FIRST)
    agent.mark_closed()

    agent.take_to_the_end(numbered(1, 9))


def test_an_idle_closed_shard_is_asked_for_its_end(serve: Serve, start_agent: StartAgent) -> None:
    """F33: some servers send heartbeats for ever; silence at the tip of a closed shard is looked
    into, and silence alone is no end.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 2))
    agent = start_agent(kinesis).assign()
    agent.take_until(numbered(1, 2))
    agent.mark_closed()  # it is not, so Kinesis says that more may come
    kinesis.wait_for(lambda: kinesis.calls.calls("GetRecords"), what="the question")
    kinesis.put(STREAM, *numbered(3, 4))

    agent.take_until(numbered(1, 4))
    kinesis.split(STREAM, FIRST)
    agent.take_to_the_end(numbered(1, 4))


def test_an_end_is_asked_for_through_throttling(kinesis: KinesisServer, agent: Agent) -> None:
    """F33: a shard shares GetRecords with every other reader of the stream."""
    throttled = Refuse("ProvisionedThroughputExceededException")
    kinesis.add_faults(
        Fault(NO_CHILDREN, event=1, times=None),
        Fault(throttled, "GetRecords", times=2),
        Fault(throttled, "GetShardIterator", times=1),
    )
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.split(STREAM, FIRST)
    agent.assign()

    agent.take_to_the_end(numbered(1, 3))
    assert len(subscribe_calls(kinesis)) == 1


def test_an_end_that_may_not_be_asked_for_is_told(kinesis: KinesisServer, agent: Agent) -> None:
    """F33, F45: with GetRecords denied the shard would stand still without a word."""
    kinesis.deny("GetRecords")
    kinesis.add_faults(Fault(NO_CHILDREN, event=1, times=None))
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.split(STREAM, FIRST)
    agent.assign()

    failure = agent.failure()
    assert isinstance(failure, AccessError)
    assert "kinesis:GetRecords" in str(failure)
    assert agent.take() == numbered(1, 3)
    assert not agent.ended()
