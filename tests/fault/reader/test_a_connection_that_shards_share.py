"""A connection that carries several shards is told to leave, lost or dead (F1, F3, F45)."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S
from kinesis_ds.testing import CloseStream, Cut, Disconnect, Fault, Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, Agent, numbered, put_to, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

# Over HTTP/1.1 no two share one.
TRANSPORTS = ("http2",)
SHARDS = (FIRST, SECOND)
THIRD = "shardId-000000000002"


@pytest.fixture
def agent(serve: Serve, start_agent: StartAgent) -> Agent:
    """An agent that reads two of three shards over one connection, and has read what was there."""
    kinesis = serve(Settings(subscription_life_s=3000), shards=3)
    agent = start_agent(kinesis).assign(*SHARDS)
    for shard in SHARDS:
        put_to(kinesis, shard, *numbered(1, 3))
        agent.take_until(numbered(1, 3), shard)
    assert kinesis.connections() == 1
    return agent


def read_on(agent: Agent, shards: tuple[str, ...] = SHARDS) -> None:
    """What is put now comes behind what was taken, each record once."""
    for shard in shards:
        before = len(agent.take(shard))
        expected = numbered(1, before + 3)
        put_to(agent.kinesis, shard, *expected[before:])
        agent.take_until(expected, shard)


def test_told_to_leave_it_is_left_without_an_error(agent: Agent) -> None:
    """F45: GOAWAY: what is under way goes on there, what is new goes to another connection."""
    kinesis = agent.kinesis
    kinesis.go_away()
    agent.assign(THIRD)

    read_on(agent, (*SHARDS, THIRD))
    assert kinesis.connections() == 2
    assert [agent.shard(shard)["generation"] for shard in (*SHARDS, THIRD)] == [1, 1, 1]
    assert [agent.errors(shard) for shard in (*SHARDS, THIRD)] == [{}, {}, {}]


def test_a_call_that_met_the_order_to_leave_is_made_again(agent: Agent) -> None:
    """F45: GOAWAY for a call under way that the server has not looked at: no failure, no pause."""
    kinesis = agent.kinesis
    kinesis.go_away(at_next_call=True)
    agent.assign(THIRD)

    read_on(agent, (*SHARDS, THIRD))
    assert kinesis.connections() == 2
    (call,) = subscribe_calls(kinesis, THIRD)
    assert call.outcome == "ok"
    assert [agent.errors(shard) for shard in (*SHARDS, THIRD)] == [{}, {}, {}]


def test_lost_all_its_shards_go_on_over_another(agent: Agent) -> None:
    """F45: each behind what it had read, and together on one connection again."""
    kinesis = agent.kinesis
    with kinesis.down():
        for shard in SHARDS:
            eventually(lambda s=shard: agent.errors(s), "it is noticed")  # type: ignore[misc]

    read_on(agent)
    assert kinesis.connections() == 1
    for shard in SHARDS:
        assert set(agent.errors(shard)) == {"TransientError"}
        assert [call.outcome for call in subscribe_calls(kinesis, shard)] == ["ok", "ok"]


def test_dead_it_is_given_up_by_all_its_shards(agent: Agent) -> None:
    """F1: it stays open and carries nothing: the silence is noticed, and nothing is missing."""
    kinesis = agent.kinesis
    kinesis.freeze_connections()
    for shard in SHARDS:
        put_to(kinesis, shard, b"4")

    for shard in SHARDS:
        agent.take_until(numbered(1, 4), shard)
        first, second = subscribe_calls(kinesis, shard)
        assert second.at - first.at >= SUBSCRIPTION_SILENCE_S
        assert agent.errors(shard) == {"TransientError": 1}
    read_on(agent)


def test_dead_it_holds_up_no_shard_that_comes_later(agent: Agent) -> None:
    """F1: a call into it is never answered; the next one goes to another connection."""
    kinesis = agent.kinesis
    kinesis.freeze_connections()
    agent.assign(THIRD)

    read_on(agent, (*SHARDS, THIRD))
    for shard in (*SHARDS, THIRD):
        assert agent.errors(shard) == {"TransientError": 1}


@pytest.mark.parametrize("trouble", [Cut(20), Disconnect(), CloseStream()], ids=repr)
def test_a_stream_that_is_reset_is_its_own_affair(
    serve: Serve, start_agent: StartAgent, trouble: Cut | Disconnect | CloseStream
) -> None:
    """F3: one shard fails and is read on; the other has heard nothing of it."""
    kinesis = serve(Settings(event_bytes=1), Fault(trouble, shard=FIRST, event=2), shards=2)
    for shard in SHARDS:
        put_to(kinesis, shard, *numbered(1, 3))
    agent = start_agent(kinesis).assign(*SHARDS)

    for shard in SHARDS:
        agent.take_until(numbered(1, 3), shard)
    read_on(agent)
    assert len(subscribe_calls(kinesis, FIRST)) == 2
    assert len(subscribe_calls(kinesis, SECOND)) == 1
    assert agent.errors(SECOND) == {}
    assert kinesis.connections() == 1
