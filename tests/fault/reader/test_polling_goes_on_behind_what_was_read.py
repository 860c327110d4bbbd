"""A shard is polled on behind the last record read, whatever its iterators do (F26, F27)."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import AtTimestamp
from kinesis_ds.testing import Delay, Fault, Refuse, Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, STREAM, iterator_starts, numbered, poll_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_an_expired_iterator_is_replaced_behind_the_last_record_read(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F26: behind what was read, not what was committed, and not where the query began."""
    expired = Refuse("ExpiredIteratorException")
    kinesis = serve(None, *[Fault(expired, "GetRecords", call=n) for n in (3, 4, 9)])
    agent = start_agent(kinesis, mode="polling").assign()
    records = numbered(1, 30)
    for first in range(0, 30, 5):
        kinesis.put(STREAM, *records[first : first + 5])
        seen = len(poll_calls(kinesis))
        eventually(lambda seen=seen: len(poll_calls(kinesis)) >= seen + 3, "three more polls")

    # Nothing was committed until now.
    agent.take_until(records)
    assert len(kinesis.struck()) == 3
    numbers = [str(r.sequence_number) for r in kinesis.records(STREAM)]
    begun, *renewed = iterator_starts(kinesis)
    assert begun == "TRIM_HORIZON"
    assert len(renewed) == 3
    assert all(start.removeprefix("AFTER_SEQUENCE_NUMBER:") in numbers for start in renewed)
    assert agent.errors() == {}
    assert agent.changes == 0


def test_nothing_read_yet_means_the_very_same_start(serve: Serve, start_agent: StartAgent) -> None:
    """F25, F26: a time stays that time; it does not become 'now' on the second attempt (F20)."""
    kinesis = serve(
        None,
        Fault(Refuse("InternalFailure", status=500), "GetShardIterator", call=1),
        Fault(Refuse("ExpiredIteratorException"), "GetRecords", call=1),
    )
    kinesis.put(STREAM, *numbered(1, 3))
    moment = AtTimestamp(round(kinesis.clock.wall() * 1000) - 60_000)
    agent = start_agent(kinesis, mode="polling").assign(position=moment)

    agent.take_until(numbered(1, 3))
    assert iterator_starts(kinesis) == [f"AT_TIMESTAMP:{moment.ms / 1000}"] * 3


def test_iterators_that_live_shorter_than_the_pause_between_polls(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F27: every iterator expires in the pause. The fresh one is used at once, so each second poll
    reads; were it to wait out the pause as well, none ever would.
    """
    kinesis = serve(Settings(iterator_life_s=10.0))
    slow = PollingOptions(min_period_s=20.0, max_records=10)
    agent = start_agent(kinesis, mode="polling", polling=slow).assign()
    records = numbered(1, 35)
    kinesis.put(STREAM, *records)

    agent.take_until(records)
    outcomes = [call.outcome for call in poll_calls(kinesis)]
    assert outcomes[:7] == ["ok", "ExpiredIteratorException"] * 3 + ["ok"]
    assert agent.errors() == {}


def test_an_iterator_that_expired_while_the_consumer_stood_still(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F26: ten minutes without room. When there is some, reading goes on where it stopped, at the
    first attempt: what must have expired is not even tried.
    """
    kinesis = serve()
    records = numbered(1, 60, 50_000)
    kinesis.put(STREAM, *records)
    agent = start_agent(kinesis, mode="polling", buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.state() == "parked", "no room")
    held, calls = agent.held(), len(poll_calls(kinesis))
    kinesis.clock.advance(600)  # type: ignore[attr-defined]
    assert agent.state() == "parked"
    assert len(poll_calls(kinesis)) == calls

    agent.take_until(records)
    last_held = kinesis.records(STREAM)[len(held) - 1].sequence_number
    assert iterator_starts(kinesis) == ["TRIM_HORIZON", f"AFTER_SEQUENCE_NUMBER:{last_held}"]
    assert {call.outcome for call in poll_calls(kinesis)} == {"ok"}


def test_an_answer_that_comes_later_than_iterators_live(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F27: what it brings counts, and the iterator in it is replaced."""
    slow = Fault(Delay(20.0, performed=True), "GetRecords", call=1)
    kinesis = serve(Settings(iterator_life_s=10.0), slow)
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    kinesis.put(STREAM, *numbered(4, 6))

    agent.take_until(numbered(1, 6))
    assert "ExpiredIteratorException" in [call.outcome for call in poll_calls(kinesis, FIRST)]
