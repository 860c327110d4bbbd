"""Subscriptions that reach the end of their life while records come (F13)."""

from __future__ import annotations

import logging

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import numbered, starts, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_expiry_is_no_error_and_leaves_no_gap(
    serve: Serve, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F13: five lives under constant load, each resumed where the one before ended."""
    kinesis = serve(Settings(subscription_life_s=8))
    with caplog.at_level(logging.WARNING):
        agent = start_agent(kinesis).assign()
        put = 0
        while len(subscribe_calls(kinesis)) < 6:
            put += 25
            kinesis.put("orders", *numbered(put - 24, put, 1000))
            agent.take()
        agent.take_until(numbered(1, put, 1000))

    calls = subscribe_calls(kinesis)
    assert {call.outcome for call in calls} == {"ok"}
    first, *resumed = starts(calls)
    assert first == "TRIM_HORIZON"
    assert all(s.startswith("AFTER_SEQUENCE_NUMBER:") for s in resumed)
    assert agent.errors() == {}
    assert agent.diagnosed == []
    assert caplog.records == []


def test_expiry_while_the_consumer_stands_still(serve: Serve, start_agent: StartAgent) -> None:
    """F13: the end is found behind the data that waits, and reading goes on by itself."""
    kinesis = serve(Settings(subscription_life_s=10))
    records = numbered(1, 700, 20_000)
    kinesis.put("orders", *records)
    agent = start_agent(kinesis, buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.pool()["waiting"] == 1, "no room")
    until = kinesis.clock.monotonic() + 20
    eventually(lambda: kinesis.clock.monotonic() > until, "its life is over")

    agent.take_until(records)
    assert len(subscribe_calls(kinesis)) >= 2
    assert agent.errors() == {}
