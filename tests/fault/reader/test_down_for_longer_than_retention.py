"""A query that was down for longer than the stream keeps records, where Kinesis says nothing (F21).

Some say that Kinesis accepts a position older than the oldest record and starts there. By sequence
numbers alone that cannot be told from a shard that was idle: they have gaps.
"""

from __future__ import annotations

import logging
from typing import Literal

import pytest

from kinesis_ds.errors import AccessError, DataLossError
from kinesis_ds.testing import Delay, Fault, KinesisServer, Refuse, ScaledClock, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to, starts, subscribe_calls

pytestmark = pytest.mark.fault

HOUR_S = 3600.0
SILENT = Settings(expired_position="oldest")


def passes(kinesis: KinesisServer, hours: float) -> None:
    clock = kinesis.clock
    assert isinstance(clock, ScaledClock)
    clock.advance(hours * HOUR_S)


def read_three_then_down(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """A checkpoint behind record 3."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()


def two_expire(kinesis: KinesisServer) -> None:
    """Of 4 to 7, put while the query is down, 4 and 5 expire."""
    kinesis.put(STREAM, *numbered(4, 5))
    passes(kinesis, 10)
    kinesis.put(STREAM, *numbered(6, 7))
    passes(kinesis, 15)


def looks(kinesis: KinesisServer) -> int:
    """How often records were asked for to find out."""
    return len(kinesis.calls.calls("GetRecords"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if "may have expired unread" in r.message]


def test_a_silent_start_at_the_oldest_record_is_noticed(
    serve: Serve, start_query: StartQuery
) -> None:
    """F21: shard, position, retention and option are named, and nothing is read or subscribed."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    two_expire(kinesis)
    before = len(subscribe_calls(kinesis))
    query = start_query(kinesis)

    with pytest.raises(DataLossError) as caught:
        query.read_until(4)
    for said in (FIRST, STREAM, "AFTER:", "24 hours", "failOnDataLoss=false"):
        assert said in str(caught.value)
    assert query.data == numbered(1, 3)
    assert len(subscribe_calls(kinesis)) == before


def test_with_the_users_leave_it_goes_on_at_the_oldest_record(
    serve: Serve, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: one warning, then all that is left, never 'now'; and the next restart is clean."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    two_expire(kinesis)
    with caplog.at_level(logging.WARNING):
        query = start_query(kinesis, failOnDataLoss="false")
        assert query.read_until(5) == [*numbered(1, 3), *numbered(6, 7)]
    query.close()
    assert len(warnings(caplog)) == 1

    kinesis.put(STREAM, *numbered(8, 8))
    assert start_query(kinesis).read_until(6)[-1:] == numbered(8, 8)


def test_a_young_checkpoint_costs_no_call(serve: Serve, start_query: StartQuery) -> None:
    """F21: down for most of the retention; nothing can have expired, and nothing is asked."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    kinesis.put(STREAM, *numbered(4, 5))
    passes(kinesis, 23)

    assert start_query(kinesis).read_until(5) == numbered(1, 5)
    assert looks(kinesis) == 0


def test_what_is_still_there_is_no_loss(serve: Serve, start_query: StartQuery) -> None:
    """F21: so close to the retention that it is looked at, and the last record read is there."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    kinesis.put(STREAM, *numbered(4, 5))
    passes(kinesis, 24 - 0.05)

    assert start_query(kinesis).read_until(5) == numbered(1, 5)
    assert looks(kinesis) >= 1


def test_retention_that_was_made_longer_counts(serve: Serve, start_query: StartQuery) -> None:
    """F21: it is asked of the stream at each start."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    kinesis.call("IncreaseStreamRetentionPeriod", StreamName=STREAM, RetentionPeriodHours=72)
    kinesis.put(STREAM, *numbered(4, 5))
    passes(kinesis, 60)

    assert start_query(kinesis).read_until(5) == numbered(1, 5)
    assert looks(kinesis) == 0


@pytest.mark.parametrize("expired", ["refuse", "oldest"])
def test_an_idle_shard_cannot_prove_that_nothing_was_lost(
    serve: Serve, start_query: StartQuery, expired: Literal["refuse", "oldest"]
) -> None:
    """F21: it counts as a loss, whichever way the server has with old positions; the message says
    that it may be none, and with the user's leave reading goes on.
    """
    kinesis = serve(Settings(expired_position=expired))
    read_three_then_down(kinesis, start_query)
    passes(kinesis, 30)
    query = start_query(kinesis)

    with pytest.raises(DataLossError, match="If nothing was written to the shard"):
        query.read_until(4)
    query.close()
    query = start_query(kinesis, failOnDataLoss="false")
    kinesis.put(STREAM, *numbered(4, 5))
    assert query.read_until(5) == numbered(1, 5)


def test_a_start_that_was_pinned_and_never_read_from(serve: Serve, start_query: StartQuery) -> None:
    """F21: 'latest' means the moment of the first start, and records since then are gone."""
    kinesis = serve(SILENT)
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    query.close()
    two_expire(kinesis)

    with pytest.raises(DataLossError, match="AT_TIMESTAMP"):
        start_query(kinesis, initialPosition="latest").read_until(1)


def test_no_shard_waits_for_the_look_at_another(serve: Serve, start_query: StartQuery) -> None:
    """F21: one answer takes its time; the other shard is read meanwhile."""
    kinesis = serve(SILENT, shards=2)
    query = start_query(kinesis)
    for shard in (FIRST, SECOND):
        put_to(kinesis, shard, *numbered(1, 2))
    query.read_until(4)
    query.close()
    passes(kinesis, 30)
    put_to(kinesis, SECOND, b"second")
    kinesis.add_faults(Fault(Delay(20), "GetShardIterator", shard=FIRST))
    query = start_query(kinesis, failOnDataLoss="false")
    query.run_until(kinesis.struck, "a look that takes its time")
    put_to(kinesis, FIRST, b"first")

    assert query.read_until(5)[4:] == [b"second"]
    assert query.read_until(6)[5:] == [b"first"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Refuse("ProvisionedThroughputExceededException"), "GetRecords", times=5),
        Fault(Refuse("InternalFailure", status=500), "GetShardIterator", times=5),
    ],
    ids=["throttled", "failing"],
)
def test_a_look_that_fails_for_a_moment_is_repeated(
    serve: Serve, start_query: StartQuery, fault: Fault
) -> None:
    """F21: no answer is neither a loss nor none."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    two_expire(kinesis)
    kinesis.add_faults(fault)

    with pytest.raises(DataLossError):
        start_query(kinesis).read_until(4)
    assert len(kinesis.struck()) == 5


def test_a_look_that_is_denied(
    serve: Serve, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F21: the missing permission is named; with the user's leave it is not needed."""
    kinesis = serve(SILENT)
    read_three_then_down(kinesis, start_query)
    two_expire(kinesis)
    kinesis.deny("GetShardIterator")
    query = start_query(kinesis)

    with pytest.raises(AccessError, match="GetShardIterator"):
        query.read_until(4)
    query.close()
    query = start_query(kinesis, failOnDataLoss="false")
    assert query.read_until(5) == [*numbered(1, 3), *numbered(6, 7)]
    assert "cannot tell whether records have expired" in caplog.text


def test_a_position_that_is_refused_is_told_by_the_first_who_asks(
    serve: Serve, start_query: StartQuery
) -> None:
    """F21: where Kinesis refuses old positions, the look comes first and says the same."""
    kinesis = serve()
    read_three_then_down(kinesis, start_query)
    two_expire(kinesis)

    with pytest.raises(DataLossError, match=FIRST):
        start_query(kinesis).read_until(4)
    query = start_query(kinesis, failOnDataLoss="false")
    assert query.read_until(5) == [*numbered(1, 3), *numbered(6, 7)]
    kinds = [start.partition(":")[0] for start in starts(subscribe_calls(kinesis))]
    assert kinds[-1] == "TRIM_HORIZON"
