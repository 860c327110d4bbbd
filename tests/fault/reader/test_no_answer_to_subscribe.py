"""A SubscribeToShard that is never answered, or too late (F12)."""

from __future__ import annotations

import pytest

from kinesis_ds.testing import Delay, Fault, NoAnswer
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, numbered, put_to, starts, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

THIRD = "shardId-000000000002"


def test_it_is_given_up_and_a_late_success_with_it(serve: Serve, start_agent: StartAgent) -> None:
    """F12: the calls have a limit of their own, and leave neither connection nor subscription."""
    kinesis = serve(
        None,
        Fault(NoAnswer(), shard=FIRST),
        Fault(NoAnswer(performed=True), shard=SECOND),
        Fault(Delay(63, performed=True), shard=THIRD),
        shards=3,
    )
    shards = (FIRST, SECOND, THIRD)
    for shard in shards:
        put_to(kinesis, shard, *numbered(1, 3))
    began = kinesis.clock.wall()
    agent = start_agent(kinesis).assign(*shards)

    for shard in shards:
        agent.take_until(numbered(1, 3), shard)
        calls = subscribe_calls(kinesis, shard)
        assert starts(calls) == ["TRIM_HORIZON"] * 2
        # Not since the first came here: the limit holds for the connection that it needed, too.
        assert calls[1].at - began >= 60
        assert agent.errors(shard) == {"TransientError": 1}
    later = kinesis.clock.monotonic() + 10
    eventually(lambda: kinesis.clock.monotonic() > later, "the late answer would have come")
    assert len(kinesis.subscriptions()) == 3
    for shard in shards:
        put_to(kinesis, shard, b"4")
        agent.take_until(numbered(1, 4), shard)
        assert agent.shard(shard)["generation"] == 2
