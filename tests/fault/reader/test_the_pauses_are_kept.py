"""No call sooner than the service allows, whatever ends a subscription (F8)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.limits import SUBSCRIBE_AFTER_SUCCESS_S, SUBSCRIBE_MIN_INTERVAL_S
from kinesis_ds.testing import (
    Call,
    CloseStream,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    Fault,
    Raise,
    Refuse,
    Settings,
)
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import numbered, put_to, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

_BUSY = Refuse("InternalFailureException", status=500)
TROUBLE = [
    Fault(Delay(4), call=1),
    Fault(Cut(byte=30), call=2, event=2),
    Fault(_BUSY, call=4),
    Fault(Delay(3), call=5),
    Fault(_BUSY, call=5),
    Fault(CloseStream(), call=6, event=1),
    Fault(Corrupt(), call=8, event=2),
    Fault(Disconnect(), call=9),
    Fault(Raise("InternalFailureException"), call=11, event=1),
    Fault(Raise("KMSThrottlingException"), call=12, event=1),
]
SHARDS = [f"shardId-{n:012d}" for n in range(3)]


def kept(calls: list[Call]) -> None:
    """Nothing was refused for its time, and nothing could have been."""
    asked = {call.outcome for call in calls}
    assert not asked & {"LimitExceededException", "ResourceInUseException"}
    for sooner, later in itertools.pairwise(calls):
        least = SUBSCRIBE_AFTER_SUCCESS_S if sooner.outcome == "ok" else SUBSCRIBE_MIN_INTERVAL_S
        assert later.at - sooner.at >= least, (sooner, later)


def test_a_long_run_of_renewals_and_failures_is_never_refused(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F8: three shards, some fifteen calls each, one life of six seconds after the other."""
    faults = [Fault(**{**vars(f), "shard": shard}) for shard in SHARDS for f in TROUBLE]
    kinesis = serve(Settings(subscription_life_s=6), *faults, shards=3)
    agent = start_agent(kinesis).assign(*SHARDS)
    put = 0
    while any(len(subscribe_calls(kinesis, shard)) < 15 for shard in SHARDS):
        put += 1
        for shard in SHARDS:
            put_to(kinesis, shard, b"%d" % put)
        for shard in SHARDS:
            agent.take_until(numbered(1, put), shard)

    agent.close()
    struck = {type(fault.action) for fault, _ in kinesis.struck()}
    assert struck == {type(fault.action) for fault in TROUBLE}
    for shard in SHARDS:
        kept(subscribe_calls(kinesis, shard))


def test_a_call_that_got_there_late_counts_from_then(serve: Serve, start_agent: StartAgent) -> None:
    """F8: refused after three seconds under way, the next call is a second later at the soonest."""
    kinesis = serve(Settings(resubscribe_s=3000))
    holder, agent = start_agent(kinesis).assign(), start_agent(kinesis)
    eventually(lambda: holder.state() == "streaming", "somebody else has the shard")
    kinesis.add_faults(*[Fault(Delay(3), call=n) for n in (1, 3, 5)])

    agent.assign()
    eventually(lambda: sum(agent.errors().values()) >= 6, "six refusals")
    kinesis.put("orders", *numbered(1, 3))
    holder.take_until(numbered(1, 3))
    agent.close()
    assert set(agent.errors()) == {"ResourceInUseException"}
