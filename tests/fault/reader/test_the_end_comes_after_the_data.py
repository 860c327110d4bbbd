"""What ends a subscription for good, behind records that nobody takes (F16, F17)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kinesis_ds.agent.efo import runner
from kinesis_ds.errors import AccessError
from kinesis_ds.limits import MIB
from kinesis_ds.testing import Fault, Raise, Settings
from kinesis_ds.wire.decode import decode_event
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

RECORDS = numbered(1, 150, 20_000)
FIVE_AN_EVENT = Settings(event_bytes=110_000)


@pytest.mark.parametrize("given_back", [False, True], ids=["held back", "given back"])
def test_the_end_of_a_shard_waits_behind_its_records(
    serve: Serve, start_agent: StartAgent, *, given_back: bool
) -> None:
    """F16, F17: the end is neither lost in a full buffer nor told before the last record."""
    kinesis = serve(FIVE_AN_EVENT)
    kinesis.put("orders", *RECORDS)
    idle_timeout_s = 5.0 if given_back else 300.0
    agent = start_agent(kinesis, buffer_bytes=1 * MIB, idle_timeout_s=idle_timeout_s).assign()
    state = "parked" if given_back else "streaming"
    eventually(lambda: agent.pool()["waiting"] == 1 and agent.state() == state, "no room")
    kinesis.split("orders", FIRST)

    assert not agent.ended()
    agent.take_to_the_end(RECORDS)
    assert agent.state() == "ended"
    assert agent.changes >= 1
    assert kinesis.calls.calls("GetRecords") == []
    assert given_back or len(subscribe_calls(kinesis)) == 1


def test_an_error_for_good_waits_behind_the_events_before_it(
    serve: Serve, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F16, F17: with no room it is not told yet, and then not before the last record is there."""

    def slowly(payload: Any, received: Any, decoding: Any) -> Any:
        time.sleep(0.01)  # so that what overtakes decoding would be seen to
        return decode_event(payload, received, decoding)

    monkeypatch.setattr(runner, "decode_event", slowly)
    kinesis = serve(FIVE_AN_EVENT, Fault(Raise("KMSAccessDeniedException", "no"), event=21))
    kinesis.put("orders", *RECORDS)
    agent = start_agent(kinesis, buffer_bytes=1 * MIB).assign()
    eventually(lambda: agent.pool()["waiting"] == 1, "no room")
    assert agent.agent.failure() is None

    eventually(lambda: agent.take() and agent.agent.failure(), "it is told")
    assert agent.take() == RECORDS[:100]
    failure = agent.failure()
    assert isinstance(failure, AccessError)
    assert failure.code == "KMSAccessDeniedException"
