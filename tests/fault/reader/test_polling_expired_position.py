"""Records that expire before a polled shard was read that far (F21, F22)."""

from __future__ import annotations

import logging
from typing import Literal

import pytest

from kinesis_ds.errors import DataLossError
from kinesis_ds.limits import MIB
from kinesis_ds.plan.position import After
from kinesis_ds.testing import Fault, KinesisServer, Refuse, ScaledClock, Settings
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, STREAM, iterator_starts, numbered
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

DAY_S = 24 * 3600.0


def two_are_lost(kinesis: KinesisServer) -> After:
    """The position behind record 3; of 4 to 7, put while nobody read, 4 and 5 expire."""
    kinesis.put(STREAM, *numbered(1, 7))
    records = kinesis.records(STREAM)
    kinesis.trim(STREAM, FIRST, records[4].sequence_number)
    return After(str(records[2].sequence_number))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_refused_position_fails_by_default_and_says_what_to_do(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F21: shard, position and option are named; nothing is read, and nothing is tried for ever."""
    position = two_are_lost(kinesis)
    agent = start_agent(kinesis, mode="polling").assign(position=position)
    failure = agent.failure()

    assert isinstance(failure, DataLossError)
    for said in (FIRST, STREAM, str(position), "failOnDataLoss=false"):
        assert said in str(failure)
    assert agent.held() == []
    assert len(iterator_starts(kinesis)) == 1
    assert agent.state() == "failed"


def test_with_the_users_leave_it_goes_on_at_the_oldest_record(
    kinesis: KinesisServer, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: one warning, then all that is left, never 'now'; the fallback keeps the pace (F23)."""
    position = two_are_lost(kinesis)
    kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), "GetShardIterator", call=2))
    with caplog.at_level(logging.WARNING):
        agent = start_agent(kinesis, mode="polling", fail_on_data_loss=False)
        agent.assign(position=position).take_until(numbered(6, 7))

    (said,) = warnings(caplog)
    assert "is gone" in said
    assert str(position) in said
    before = f"AFTER_SEQUENCE_NUMBER:{position.sequence_number}"
    assert iterator_starts(kinesis) == [before, "TRIM_HORIZON", "TRIM_HORIZON"]
    calls = kinesis.calls.calls("GetShardIterator", FIRST)
    assert calls[1].at - calls[0].at >= 0.2


def test_what_is_read_again_from_the_oldest_record_on_comes_once(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F22: a server may refuse a number for reasons of its own; what lies before it was read."""
    kinesis.put(STREAM, *numbered(1, 5))
    third = After(str(kinesis.records(STREAM)[2].sequence_number))
    kinesis.add_faults(Fault(Refuse("InvalidArgumentException"), "GetShardIterator"))
    agent = start_agent(kinesis, mode="polling", fail_on_data_loss=False).assign(position=third)

    agent.take_until(numbered(4, 5))
    assert iterator_starts(kinesis)[1:] == ["TRIM_HORIZON"]


@pytest.mark.parametrize("expired", ["refuse", "oldest"])
def test_nothing_lost_is_no_loss(
    serve: Serve, start_agent: StartAgent, expired: Literal["refuse", "oldest"]
) -> None:
    """F21: the records up to the position have expired, those behind it are there."""
    kinesis = serve(Settings(expired_position=expired))
    kinesis.put(STREAM, *numbered(1, 5))
    records = kinesis.records(STREAM)
    kinesis.trim(STREAM, FIRST, records[2].sequence_number)
    position = After(str(records[2].sequence_number))

    start_agent(kinesis, mode="polling").assign(position=position).take_until(numbered(4, 5))


@pytest.mark.parametrize("expired", ["refuse", "oldest"])
@pytest.mark.parametrize("leave", [True, False])
def test_a_consumer_that_stands_still_for_longer_than_records_are_kept(
    serve: Serve,
    start_agent: StartAgent,
    caplog: pytest.LogCaptureFixture,
    expired: Literal["refuse", "oldest"],
    *,
    leave: bool,
) -> None:
    """F21, F22: the query runs all the time; what was not read for want of room has expired. Where
    the server starts at the oldest record without a word, the age of the position tells.
    """
    kinesis = serve(Settings(expired_position=expired))
    kinesis.put(STREAM, *numbered(1, 60, 50_000))
    agent = start_agent(
        kinesis,
        mode="polling",
        buffer_bytes=1 * MIB,
        retention_s=DAY_S,
        fail_on_data_loss=not leave,
    ).assign()
    eventually(lambda: agent.state() == "parked", "no room")
    held = agent.held()
    assert isinstance(kinesis.clock, ScaledClock)
    kinesis.clock.advance(DAY_S + 3600)
    left = numbered(61, 62)
    kinesis.put(STREAM, *left)

    with caplog.at_level(logging.WARNING):
        if leave:
            agent.take_until([*held, *left])
            assert len([said for said in warnings(caplog) if "is gone" in said]) == 1
        else:
            agent.take()
            assert isinstance(agent.failure(), DataLossError)
            assert agent.take() == held


def test_a_shard_that_fell_out_of_the_stream(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F21: a closed shard, not read to its end, whose records are all gone."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    agent.diagnosis = DataLossError("Shard x is no longer in the stream.")
    with_children = Fault(Refuse("ResourceNotFoundException"), "GetRecords", times=None)
    kinesis.add_faults(with_children)

    assert agent.failure() is agent.diagnosis
    assert not agent.ended()


def test_a_shard_that_fell_out_of_the_stream_is_left_behind_with_the_users_leave(
    kinesis: KinesisServer, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: it counts as ended, so that its children begin; with a warning."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling", fail_on_data_loss=False).assign()
    agent.take_until(numbered(1, 3))
    agent.diagnosis = DataLossError("Shard x is no longer in the stream.")
    kinesis.add_faults(Fault(Refuse("ResourceNotFoundException"), "GetRecords", times=None))

    with caplog.at_level(logging.WARNING):
        agent.take_to_the_end(numbered(1, 3))
    assert "Going on without it" in caplog.text


def test_a_number_that_is_refused_too_early_is_no_loss(
    kinesis: KinesisServer, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F21, F24: the position says when it was seen, and nothing since can have expired."""
    kinesis.put(STREAM, *numbered(1, 5))
    third = kinesis.records(STREAM)[2]
    position = After(str(third.sequence_number), round(third.arrived * 1000))
    kinesis.add_faults(Fault(Refuse("InvalidArgumentException"), "GetShardIterator"))
    with caplog.at_level(logging.WARNING):
        agent = start_agent(kinesis, mode="polling", retention_s=DAY_S).assign(position=position)
        agent.take_until(numbered(4, 5))

    assert iterator_starts(kinesis)[1].startswith("AT_TIMESTAMP:")
    assert "from the time in it" in "".join(warnings(caplog))


@pytest.mark.parametrize("expired", ["refuse", "oldest"])
def test_a_query_that_was_down_meanwhile(
    serve: Serve, start_query: StartQuery, expired: Literal["refuse", "oldest"]
) -> None:
    """F21, F22: as for subscriptions, through the checkpoint, whatever the server says."""
    kinesis = serve(Settings(expired_position=expired))
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, consumerMode="polling")
    query.read_until(3)
    query.close()
    assert isinstance(kinesis.clock, ScaledClock)
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.clock.advance(10 * 3600)
    kinesis.put(STREAM, *numbered(6, 7))
    kinesis.clock.advance(15 * 3600)
    query = start_query(kinesis, consumerMode="polling")
    with pytest.raises(DataLossError, match=FIRST):
        query.read_until(4)
    assert query.data == numbered(1, 3)
    query.close()

    query = start_query(kinesis, consumerMode="polling", failOnDataLoss="false")
    assert query.read_until(5) == [*numbered(1, 3), *numbered(6, 7)]
