"""A shard in which nothing was written for long: an empty answer is not the tip (F24, F43)."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.position import After
from kinesis_ds.testing import AnswerWith, Fault, KinesisServer, Refuse, ScaledClock, Settings
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, STREAM, Agent, iterator_starts, numbered
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

HOUR_S = 3600.0
# GetRecords looks through five minutes for one answer.
STRETCHES = Settings(stretch_s=300.0)


def advance(kinesis: KinesisServer, seconds: float) -> None:
    assert isinstance(kinesis.clock, ScaledClock)
    kinesis.clock.advance(seconds)


def test_hours_of_nothing_are_crossed(serve: Serve, start_agent: StartAgent) -> None:
    """Six hours in 72 empty answers, with one iterator after the other and no doubt between."""
    kinesis = serve(STRETCHES)
    kinesis.put(STREAM, *numbered(1, 2))
    advance(kinesis, 6 * HOUR_S)
    kinesis.put(STREAM, *numbered(3, 4))
    agent = start_agent(kinesis, mode="polling").assign()

    agent.take_until(numbered(1, 4))
    assert 72 <= agent.shard()["empty"] <= 80
    assert agent.shard()["millis_behind"] == 0
    assert iterator_starts(kinesis) == ["TRIM_HORIZON"]


def test_the_lag_is_told_while_a_stretch_is_crossed(serve: Serve, start_agent: StartAgent) -> None:
    """It comes down answer by answer, and does not say 0 before the tip."""
    kinesis = serve(STRETCHES)
    kinesis.put(STREAM, *numbered(1, 1))
    advance(kinesis, 3 * HOUR_S)
    kinesis.put(STREAM, *numbered(2, 2))
    agent = start_agent(kinesis, mode="polling").assign()
    lags = [0]

    def crossed() -> bool:
        lags.append(agent.shard()["millis_behind"])
        return agent.take() == numbered(1, 2)

    eventually(crossed, "both records")
    seen = [lag for lag in lags if lag]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > HOUR_S * 1000


def test_an_iterator_that_expires_in_the_middle_of_a_stretch(
    serve: Serve, start_agent: StartAgent
) -> None:
    """It is replaced behind the last record, since a number for the middle does not exist; what the
    stretch turns out to hold comes once.
    """
    expired = Refuse("ExpiredIteratorException")
    kinesis = serve(STRETCHES, *[Fault(expired, "GetRecords", call=n) for n in (20, 50)])
    kinesis.put(STREAM, *numbered(1, 2))
    advance(kinesis, 3 * HOUR_S)
    kinesis.put(STREAM, *numbered(3, 4))
    behind_2 = f"AFTER_SEQUENCE_NUMBER:{kinesis.records(STREAM)[1].sequence_number}"
    agent = start_agent(kinesis, mode="polling").assign()

    agent.take_until(numbered(1, 4))
    assert iterator_starts(kinesis) == ["TRIM_HORIZON", behind_2, behind_2]


def position(agent: Agent) -> After:
    found = agent.agent.available()[FIRST]
    assert isinstance(found, After)
    return found


@pytest.mark.parametrize("refuses", [True, False])
def test_more_than_a_day_of_silence_leaves_a_position_to_resume(
    serve: Serve, start_agent: StartAgent, *, refuses: bool
) -> None:
    """F24: 30 hours after the last record it has expired, and with it, for a server that thinks so,
    the number in the position. But the shard was seen to be empty since: reading goes on from then,
    what was written meanwhile comes, and nobody is told of a loss that was none.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    for _ in range(3):
        advance(kinesis, 10 * HOUR_S)
        now_ms = kinesis.clock.wall() * 1000
        eventually(
            lambda now_ms=now_ms: (position(agent).seen_ms or 0) > now_ms, "the moment moves"
        )
    assert kinesis.records(STREAM) == []
    agent.close()
    left, asked = position(agent), len(iterator_starts(kinesis))
    kinesis.put(STREAM, *numbered(4, 6))
    advance(kinesis, 20 * HOUR_S)  # down, but for less than records are kept
    kinesis.put(STREAM, *numbered(7, 7))
    if refuses:
        kinesis.add_faults(Fault(Refuse("InvalidArgumentException"), "GetShardIterator"))

    resumed = start_agent(kinesis, mode="polling", retention_s=24 * HOUR_S)
    resumed.assign(position=left).take_until(numbered(4, 7))
    begun, *then = iterator_starts(kinesis)[asked:]
    assert begun == f"AFTER_SEQUENCE_NUMBER:{left.sequence_number}"
    assert [start.partition(":")[0] for start in then] == ["AT_TIMESTAMP"] * refuses


def test_an_idle_source_asks_for_nothing_else(serve: Serve, start_query: StartQuery) -> None:
    """F43: no consumer is registered, and no subscription opened, by a query that polls."""
    kinesis = serve(shards=2)
    query = start_query(kinesis, consumerMode="polling")
    kinesis.put(STREAM, *numbered(1, 10))
    query.read_until(10)

    asked = {call.target.operation for call in kinesis.calls}
    assert asked <= {"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"}


def test_an_answer_cut_short_is_not_the_end_of_the_shard(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F33: what stands between here and Kinesis may lose a member; an end is asked for twice."""
    cut = AnswerWith(b'{"Records":[],"MillisBehindLatest":0}')
    kinesis = serve(None, Fault(cut, "GetRecords", call=2))
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    eventually(kinesis.struck, "the cut answer")
    kinesis.put(STREAM, *numbered(4, 6))

    agent.take_until(numbered(1, 6))
    assert not agent.ended()
