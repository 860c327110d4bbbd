"""A connection that is kept and carries nothing, not even a heartbeat (F1)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.testing import Fault, KinesisServer, Stall
from tests.support.agents import Agent, numbered, starts, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_silence_ends_the_subscription_and_reading_goes_on_behind_it(
    kinesis: KinesisServer, agent: Agent
) -> None:
    """F1: half-open twice, at other places; what is put meanwhile is read by the next one."""
    kinesis.add_faults(Fault(Stall(), call=1, event=2), Fault(Stall(), call=2, event=1))
    kinesis.put("orders", *numbered(1, 3))
    agent.assign()
    agent.take_until(numbered(1, 3))
    eventually(lambda: len(kinesis.struck()) == 1, "the first connection is half-open")
    kinesis.put("orders", *numbered(4, 5))

    agent.take_until(numbered(1, 5))
    agent.close()
    calls = subscribe_calls(kinesis)
    assert [call.outcome for call in calls] == ["ok"] * 3
    numbers = [r.sequence_number for r in kinesis.records("orders")]
    assert starts(calls) == ["TRIM_HORIZON", *[f"AFTER_SEQUENCE_NUMBER:{numbers[2]}"] * 2]
    assert all(later.at - sooner.at >= 40 for sooner, later in itertools.pairwise(calls))
    assert agent.errors() == {"TransientError": 2}
