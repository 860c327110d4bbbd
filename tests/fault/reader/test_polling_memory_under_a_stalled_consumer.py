"""A consumer that stands still while polled shards hold more than the buffer (F40, F44)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import ScaledClock, Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, STREAM, numbered, poll_calls, put_to
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_the_bound_holds_nothing_is_asked_for_and_nothing_is_lost(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F40: two shards of 6 MB, room for 2 MiB. Without room there is no connection and no call."""
    kinesis = serve(shards=2)
    records = numbered(1, 300, 20_000)
    for shard in (FIRST, SECOND):
        put_to(kinesis, shard, *records)
    before = pa.total_allocated_bytes()
    agent = start_agent(kinesis, mode="polling", buffer_bytes=2 * MIB).assign(FIRST, SECOND)
    eventually(lambda: agent.state(FIRST) == agent.state(SECOND) == "parked", "no room")
    calls = len(kinesis.calls)
    assert agent.pool()["used_bytes"] <= 2 * MIB
    assert pa.total_allocated_bytes() - before <= 4 * MIB
    assert isinstance(kinesis.clock, ScaledClock)
    kinesis.clock.advance(120)
    assert agent.state(FIRST) == agent.state(SECOND) == "parked"
    assert len(kinesis.calls) == calls

    for shard in (FIRST, SECOND):
        agent.take_until(records, shard)
        assert agent.errors(shard) == {}
    assert agent.pool()["peak_bytes"] <= 2 * MIB


def test_records_that_grow_a_hundredfold_do_not_overshoot_the_bound(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F44: the room asked for is an estimate, and the estimate is wrong. What does not fit is
    dropped unread and asked for again, once; every record comes once.
    """
    kinesis = serve(Settings(enforce_limits=False))
    small, large = numbered(1, 300, 200), numbered(301, 308, 300_000)
    kinesis.put(STREAM, *small)
    agent = start_agent(kinesis, mode="polling", buffer_bytes=1 * MIB).assign()
    agent.take_until(small)
    kinesis.put(STREAM, *large)

    agent.take_until([*small, *large])
    eventually(lambda: agent.pool()["waiting"] == 0, "all has room")
    assert agent.errors() == {}


def test_a_record_larger_than_the_whole_buffer_gets_through(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F40: alone, when nothing else is held; it would stop its shard for ever otherwise."""
    kinesis = serve()
    kinesis.call("UpdateMaxRecordSize", StreamARN=arn(kinesis), MaxRecordSizeInKiB=4096)
    kinesis.clock.advance(60)  # type: ignore[attr-defined]
    records = [b"1", b"2" * 3_000_000, b"3"]
    kinesis.put(STREAM, *records)
    agent = start_agent(kinesis, mode="polling", buffer_bytes=1 * MIB).assign()

    agent.take_until(records)
    assert agent.errors() == {}


def test_what_was_read_and_not_committed_keeps_its_room(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F44: tasks may read it again and again; only the commit gives its room to others."""
    kinesis = serve()
    records = numbered(1, 150, 20_000)
    kinesis.put(STREAM, *records)
    agent = start_agent(kinesis, mode="polling", buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.state() == "parked", "no room")
    held, used = agent.held(), agent.pool()["used_bytes"]
    assert 0 < len(held) < 53
    for _ in range(5):
        assert agent.held() == held
    assert agent.pool()["used_bytes"] == used

    agent.take_until(records)
    assert agent.pool()["peak_bytes"] <= 1 * MIB


def test_a_full_shard_stops_alone(serve: Serve, start_agent: StartAgent) -> None:
    """F3: its neighbour's share of the buffer is its own."""
    kinesis = serve(shards=2)
    put_to(kinesis, FIRST, *numbered(1, 300, 20_000))
    agent = start_agent(kinesis, mode="polling", buffer_bytes=2 * MIB).assign(FIRST, SECOND)
    eventually(lambda: agent.state(FIRST) == "parked", "the first is full")
    polls = len(poll_calls(kinesis, SECOND))
    records = numbered(1, 50)
    put_to(kinesis, SECOND, *records)

    agent.take_until(records, SECOND)
    assert len(poll_calls(kinesis, SECOND)) > polls
    assert agent.state(FIRST) == "parked"


def arn(kinesis: object) -> str:
    found = kinesis.call("DescribeStreamSummary", StreamName=STREAM)  # type: ignore[attr-defined]
    return str(found["StreamDescriptionSummary"]["StreamARN"])
