"""Subscriptions that are accepted and closed again without an event or an error (F4)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.testing import CloseStream, Fault, KinesisServer
from tests.support.agents import Agent, numbered, starts, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def test_the_pauses_grow_until_an_event_comes(kinesis: KinesisServer, agent: Agent) -> None:
    """F4: five times in a row; after the fourth, pauses are longer than the rules ask for."""
    # Before the first message of all, and behind that one.
    kinesis.add_faults(
        Fault(CloseStream(), event=0, times=2), Fault(CloseStream(), event=1, times=3)
    )
    kinesis.put("orders", *numbered(1, 3))
    agent.assign()

    agent.take_until(numbered(1, 3))
    calls = subscribe_calls(kinesis)
    assert starts(calls) == ["TRIM_HORIZON"] * 6
    pauses = [later.at - sooner.at for sooner, later in itertools.pairwise(calls)]
    assert min(pauses) >= 5
    # Half of two to the power of the failures in a row, at most 30 s, is the least.
    assert pauses[3] >= 8
    assert pauses[4] >= 15
    assert agent.errors() == {}


def test_closed_once_the_shard_is_had_again_at_the_floor(
    kinesis: KinesisServer, agent: Agent
) -> None:
    """F4: with events between, however many closed subscriptions never count as failures."""
    kinesis.add_faults(Fault(CloseStream(), event=2, times=6))
    agent.assign()
    for n in range(1, 8):
        kinesis.put("orders", b"%d" % n)
        agent.take_until(numbered(1, n))

    eventually(lambda: len(subscribe_calls(kinesis)) == 7, "six renewals")
    calls = subscribe_calls(kinesis)
    pauses = [later.at - sooner.at for sooner, later in itertools.pairwise(calls)]
    assert min(pauses) >= 5
    # Escalation would make each of the last three longer than this.
    assert min(pauses[3:]) < 8 + 5
    assert agent.errors() == {}
