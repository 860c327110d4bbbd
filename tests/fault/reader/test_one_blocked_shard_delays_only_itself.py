"""A shard that is full, silent, refused or slow, and its neighbours on the same loop (F3)."""

from __future__ import annotations

import threading

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import CloseStream, Fault, NoAnswer, Refuse, Settings, Stall, Trickle
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, numbered, put_to, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def test_a_full_shard_stops_alone_and_loses_nothing(serve: Serve, start_agent: StartAgent) -> None:
    """F3: its neighbour gets each record and its heartbeats; room brings the rest of it."""
    kinesis = serve(shards=2)
    flood = numbered(1, 500, 20_000)
    put_to(kinesis, FIRST, *flood)
    agent = start_agent(kinesis, buffer_bytes=2 * MIB).assign(FIRST, SECOND)
    eventually(lambda: agent.pool()["waiting"] == 1, "the first shard waits for room")

    for n in range(1, 11):
        put_to(kinesis, SECOND, b"%d" % n)
        agent.take_until(numbered(1, n), SECOND)
    events = agent.shard(SECOND)["events"]
    eventually(lambda: agent.shard(SECOND)["events"] >= events + 2, "two heartbeats")
    stalled_at = len(agent.held(FIRST))
    assert agent.held(FIRST) == flood[:stalled_at]
    assert stalled_at < 100

    agent.take_until(flood, FIRST)
    assert agent.pool()["peak_bytes"] <= 2 * MIB
    assert len(kinesis.calls.calls("SubscribeToShard")) == 2


def test_a_shard_whose_decoder_hangs_is_read_no_further(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F3: of the pool it takes a little, however much is left; its neighbour goes on."""
    kinesis = serve(Settings(event_bytes=100_000), shards=2)
    flood = numbered(1, 500, 20_000)
    put_to(kinesis, FIRST, *flood)
    agent = start_agent(kinesis)
    go_on = threading.Event()
    try:
        agent.assign(FIRST)
        agent.agent._runners[FIRST]._executor.submit(lambda: go_on.wait(60) and None)
        agent.assign(SECOND)
        eventually(lambda: agent.shard(FIRST)["held_bytes"] > MIB // 2, "some of it came")

        for n in range(1, 11):
            put_to(kinesis, SECOND, b"%d" % n)
            agent.take_until(numbered(1, n), SECOND)
        # Half a megabyte and one message that wait for the decoder.
        assert agent.shard(FIRST)["held_bytes"] < MIB // 2 + 2 * 150_000
    finally:
        go_on.set()
    agent.take_until(flood, FIRST)
    assert len(kinesis.calls.calls("SubscribeToShard")) == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(Stall(), shard=FIRST, times=None), id="half-open"),
        pytest.param(Fault(NoAnswer(), shard=FIRST, times=None), id="no answer"),
        pytest.param(Fault(CloseStream(), shard=FIRST, times=None), id="closed again and again"),
        pytest.param(
            Fault(Refuse("InternalFailureException", status=500), shard=FIRST, times=None),
            id="refused",
        ),
        pytest.param(Fault(Trickle(1), shard=FIRST, event=0), id="byte by byte"),
    ],
)
def test_a_troubled_shard_does_not_delay_its_neighbour(
    serve: Serve, start_agent: StartAgent, fault: Fault
) -> None:
    """F3: whatever happens to one subscription, the other one's records come, with one call."""
    kinesis = serve(None, fault, shards=2)
    put_to(kinesis, FIRST, *numbered(1, 20, 200))
    agent = start_agent(kinesis).assign(FIRST, SECOND)
    eventually(kinesis.struck, "trouble")

    for n in range(1, 6):
        put_to(kinesis, SECOND, b"%d" % n)
        agent.take_until(numbered(1, n), SECOND)
    assert len(subscribe_calls(kinesis, SECOND)) == 1
    assert agent.errors(SECOND) == {}
    assert agent.agent.failure() is None
