"""A connection that is kept and carries nothing, not even a heartbeat (F1)."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S
from kinesis_ds.testing import Fault, KinesisServer, Stall
from tests.support.agents import Agent, numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def test_silence_ends_the_subscription_and_reading_goes_on_behind_it(
    kinesis: KinesisServer, agent: Agent
) -> None:
    """F1: what is put meanwhile is read by the next one, and no heartbeat is missed by mistake."""
    kinesis.add_faults(Fault(Stall(), event=3))
    kinesis.put("orders", *numbered(1, 3))
    agent.assign()
    agent.take_until(numbered(1, 3))
    eventually(lambda: len(kinesis.struck()) == 1, "the first connection is half-open")
    kinesis.put("orders", *numbered(4, 5))

    agent.take_until(numbered(1, 5))
    agent.close()
    first, second = subscribe_calls(kinesis)
    numbers = [r.sequence_number for r in kinesis.records("orders")]
    resumed = int(second.request["StartingPosition"]["SequenceNumber"])
    assert numbers[2] <= resumed < numbers[3]
    assert second.at - first.at >= SUBSCRIPTION_SILENCE_S
    assert agent.errors() == {"TransientError": 1}
    eventually(lambda: not kinesis.subscriptions(), "neither connection is kept")
