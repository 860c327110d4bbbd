"""A consumer that takes nothing for longer than silence may last (F2)."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MIB, SUBSCRIPTION_SILENCE_S
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartAgent
from tests.support.agents import numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def test_time_held_back_by_the_own_buffer_is_no_silence(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F2: blocked for longer than the silence limit, the same subscription then goes on."""
    records = numbered(1, 400, 20_000)
    kinesis.put("orders", *records)
    agent = start_agent(kinesis, buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.pool()["waiting"] == 1, "the shard waits for room")
    until = kinesis.clock.monotonic() + SUBSCRIPTION_SILENCE_S + 10
    eventually(lambda: kinesis.clock.monotonic() > until, "the limit has passed")

    assert agent.pool()["waiting"] == 1
    agent.take_until(records)
    assert len(subscribe_calls(kinesis)) == 1
    assert agent.errors() == {}
    assert agent.shard()["back_pressure_s"] >= SUBSCRIPTION_SILENCE_S
