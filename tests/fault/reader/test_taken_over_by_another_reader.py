"""Two readers that use one consumer name (F7, F39)."""

from __future__ import annotations

import itertools
import logging

import pytest

from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartAgent
from tests.support.agents import numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def test_both_read_everything_nobody_takes_back_at_once_and_it_is_told(
    kinesis: KinesisServer, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F7, F39: each take-over is waited out for five seconds; each reader warns once, by name."""

    def taken() -> int:
        return sum(call.outcome == "ok" for call in subscribe_calls(kinesis))

    with caplog.at_level(logging.WARNING):
        one = start_agent(kinesis).assign()
        eventually(lambda: one.state() == "streaming", "the first reader has the shard")
        other = start_agent(kinesis).assign()
        rounds = itertools.count(1)
        while len(caplog.records) < 2:
            put = next(rounds)
            kinesis.put("orders", b"%d" % put)
            eventually(lambda n=put + 1: taken() >= n, f"take-over {put}")  # type: ignore[misc]
        one.take_until(numbered(1, put))
        other.take_until(numbered(1, put))
        one.close()
        other.close()

    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 2
    assert all("was taken over 3 times" in t and "consumerName" in t for t in told)
    calls = subscribe_calls(kinesis)
    had = [call for call in calls if call.outcome == "ok"]
    assert len(had) >= 6
    assert all(b.at - a.at >= 5 for a, b in itertools.pairwise(had))
    # Only the newcomer, who cannot know when the last call was, may be refused: before its first.
    refused = [call for call in calls if call.outcome != "ok"]
    assert all(call.at < had[1].at for call in refused)
    assert set(one.errors()) == {"ResourceInUseException"}
    assert set(other.errors()) <= {"ResourceInUseException", "LimitExceededException"}
    assert one.agent.failure() is None
    assert other.agent.failure() is None
