"""A consumer that stands still while the stream holds more than the buffer (F40, F44)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to, starts, subscribe_calls
from tests.support.aggregates import User, aggregate
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

SMALL_EVENTS = Settings(event_bytes=100_000)


def test_the_bound_holds_the_subscriptions_are_given_back_and_nothing_is_lost(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F40: two shards of 6 MB, room for 2 MiB; demand opens them again where they stopped."""
    kinesis = serve(SMALL_EVENTS, shards=2)
    records = numbered(1, 300, 20_000)
    for shard in (FIRST, SECOND):
        put_to(kinesis, shard, *records)
    before = pa.total_allocated_bytes()
    agent = start_agent(kinesis, buffer_bytes=2 * MIB, idle_timeout_s=20.0).assign(FIRST, SECOND)
    eventually(lambda: agent.state(FIRST) == agent.state(SECOND) == "parked", "both are given back")
    eventually(lambda: not kinesis.subscriptions(), "the service is rid of them")
    assert agent.pool()["used_bytes"] <= 2 * MIB
    assert pa.total_allocated_bytes() - before <= 4 * MIB
    assert len(kinesis.calls.calls("SubscribeToShard")) == 2

    for shard in (FIRST, SECOND):
        agent.take_until(records, shard)
        assert agent.errors(shard) == {}
    assert agent.pool()["peak_bytes"] <= 2 * MIB


def test_what_was_read_and_not_committed_keeps_its_room(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F44: tasks may read it again and again; only the commit gives its room to others."""
    kinesis = serve(SMALL_EVENTS)
    records = numbered(1, 150, 20_000)
    kinesis.put("orders", *records)
    agent = start_agent(kinesis, buffer_bytes=1 * MIB).assign()

    def settled() -> bool:
        # All that was received is decoded: no room is taken by anything but records.
        shard = agent.shard()
        return agent.pool()["waiting"] == 1 and shard["held_bytes"] // 20_000 == shard["records"]

    eventually(settled, "no room")
    held, used = agent.held(), agent.pool()["used_bytes"]
    assert 0 < len(held) < 53
    for _ in range(5):
        assert agent.held() == held
    assert agent.pool()["used_bytes"] == used
    assert agent.pool()["waiting"] == 1

    agent.take_until(records)
    eventually(lambda: agent.pool()["used_bytes"] == 0, "all room is given back")
    assert agent.pool()["peak_bytes"] <= 1 * MIB


def test_a_subscription_that_was_given_back_waits_for_room_for_its_message(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F40: with less room than that it would be opened and given back again and again."""
    records = numbered(1, 2, 1_000_000)
    kinesis = serve(Settings(event_bytes=MIB))
    kinesis.put("orders", *records)
    agent = start_agent(kinesis, buffer_bytes=2 * MIB, idle_timeout_s=5.0).assign()
    eventually(lambda: agent.state() == "parked", "given back")
    assert agent.held() == records[:1]
    later = kinesis.clock.monotonic() + 15
    eventually(lambda: kinesis.clock.monotonic() > later, "it could have been opened thrice")
    assert len(subscribe_calls(kinesis)) == 1

    agent.take_until(records)
    calls = subscribe_calls(kinesis)
    number = kinesis.records("orders")[0].sequence_number
    assert starts(calls) == ["TRIM_HORIZON", f"AFTER_SEQUENCE_NUMBER:{number}"]
    assert calls[1].at - calls[0].at >= 15


def test_an_event_larger_than_the_buffer_gets_through(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F40: a bound below the size of one event delays it, and does not stop its shard for ever."""
    small, large = numbered(1, 3, 10), numbered(4, 4, 3 * MIB)
    kinesis = serve()
    kinesis.put("orders", *small[:2], *large, *small[2:])
    agent = start_agent(kinesis, buffer_bytes=1 * MIB).assign()

    agent.take_until([*small[:2], *large, *small[2:]])
    assert len(subscribe_calls(kinesis)) == 1


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_the_bound_holds_for_small_rows_of_aggregates(
    serve: Serve, start_agent: StartAgent, mode: str
) -> None:
    """F40: decoded, they take several times what came over the network (issue 19, 6)."""
    rows = numbered(1, 32_000, 10)
    aggregates = [
        aggregate(*(User("key", row) for row in rows[first : first + 1000]))
        for first in range(0, len(rows), 1000)
    ]
    kinesis = serve(Settings(event_bytes=100_000))
    kinesis.put(STREAM, *aggregates)
    agent = start_agent(kinesis, mode=mode, buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.pool()["waiting"], "no room")
    assert len(agent.held()) > 1000

    agent.take_until(rows)
    assert agent.pool()["peak_bytes"] <= 1 * MIB
    wire = agent.shard()["bytes"]
    assert wire < 1 * MIB, "it is the decoded rows that fill the buffer"
