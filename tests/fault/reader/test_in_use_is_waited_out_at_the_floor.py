"""A shard that another subscription holds, or held a moment ago (F5, F6)."""

from __future__ import annotations

import itertools
import logging
from collections import Counter

import pytest

from kinesis_ds.testing import Fault, KinesisServer, Refuse, Settings
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import Agent, numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


def test_a_restarted_reader_gets_in_when_the_former_one_has_lost_its_claim(
    serve: Serve, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F5, F6: refused at first, it neither fails nor backs off nor complains, and reads all."""
    claim_s = 20  # longer than on AWS, so that a slow machine is refused as well
    kinesis = serve(Settings(resubscribe_s=claim_s))
    kinesis.put("orders", *numbered(1, 5))
    before, agent = start_agent(kinesis).assign(), start_agent(kinesis)
    before.take_until(numbered(1, 5))

    with caplog.at_level(logging.INFO):
        agent.assign()
        before.close()
        agent.take_until(numbered(1, 5))
    first, *refused, last = subscribe_calls(kinesis)
    assert [first.outcome, last.outcome] == ["ok", "ok"]
    # The very first may come within a second of the holder's call, of which it cannot know.
    assert {call.outcome for call in refused[1:]} <= {"ResourceInUseException"}
    assert last.at - first.at >= claim_s
    assert [r for r in caplog.records if r.levelno > logging.INFO] == []
    assert agent.errors() == Counter(call.outcome for call in refused)


def test_long_refusal_is_told_once_and_never_escalates(
    kinesis: KinesisServer, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """F5, F6: after half a minute one warning names the remedy; the pauses stay what they were."""
    fault = Fault(Refuse("ResourceInUseException"), times=None)
    kinesis.add_faults(fault)
    kinesis.put("orders", *numbered(1, 5))
    with caplog.at_level(logging.INFO):
        agent.assign()
        eventually(lambda: agent.errors().get("ResourceInUseException", 0) >= 36, "36 refusals")
        kinesis.clear_faults()
        agent.take_until(numbered(1, 5))

    told = [r.getMessage() for r in caplog.records if r.levelno > logging.INFO]
    assert len(told) == 1
    assert "consumerName" in told[0]
    pauses = [b.at - a.at for a, b in itertools.pairwise(subscribe_calls(kinesis))]
    assert min(pauses) >= 1
    assert min(pauses[-10:]) < 8  # backing off, each of them would be at least 15 s
    assert agent.agent.failure() is None
    assert agent.diagnosed == []
