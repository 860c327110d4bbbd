"""What an old subscription, or its end, says after it should be silent (F9, F10, F11, F14)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kinesis_ds.agent.efo import runner
from kinesis_ds.limits import MIB
from kinesis_ds.testing import Corrupt, Cut, Delay, Fault, KinesisServer, OutliveTakeover, Settings
from kinesis_ds.wire.decode import decode_event
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, SECOND, Agent, numbered, put_to, starts, subscribe_calls
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

ONE_AN_EVENT = Settings(event_bytes=1)


def test_events_that_still_come_after_a_take_over_count_once(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F9: the service told it late; what came until then is not lost, nor read again."""
    kinesis.add_faults(Fault(OutliveTakeover(events=3), call=1, event=1))
    one = start_agent(kinesis).assign()
    eventually(lambda: one.shard()["events"] >= 1, "the first event")
    other = start_agent(kinesis).assign()
    eventually(lambda: other.state() == "streaming", "taken over")
    for n in (1, 2):
        kinesis.put("orders", b"%d" % n)
        # Its own connection does not know yet.
        one.take_until(numbered(1, n))
    assert one.shard()["generation"] == 1

    kinesis.put("orders", b"3", b"4")
    for agent in (one, other):
        agent.take_until(numbered(1, 4))
        eventually(lambda a=agent: a.shard()["generation"] >= 2, "taken back")  # type: ignore[misc]
    kinesis.put("orders", b"5")
    one.take_until(numbered(1, 5))
    other.take_until(numbered(1, 5))


def test_behind_a_damaged_event_nothing_is_taken_from_its_connection(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F9: the good events behind it belong to a subscription given up, and are read again."""
    kinesis = serve(ONE_AN_EVENT, Fault(Corrupt(), event=2))
    kinesis.put("orders", *numbered(1, 6))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 6))
    first = kinesis.records("orders")[0].sequence_number
    calls = subscribe_calls(kinesis)
    assert starts(calls) == ["TRIM_HORIZON", f"AFTER_SEQUENCE_NUMBER:{first}"]
    assert agent.errors() == {"ProtocolError": 1}
    eventually(lambda: len(kinesis.subscriptions()) == 1, "the damaged connection is closed")


@pytest.mark.parametrize("byte", [0, 40])
def test_two_reports_of_one_failure_make_one_new_subscription(
    serve: Serve, start_agent: StartAgent, byte: int
) -> None:
    """F10: a damaged event and the connection torn right behind it; the first to come wins."""
    faults = [Fault(Corrupt(), event=2), Fault(Cut(byte=byte), event=3)]
    kinesis = serve(ONE_AN_EVENT, *faults)
    kinesis.put("orders", *numbered(1, 6))
    agent = start_agent(kinesis).assign()
    agent.take_until(numbered(1, 6))

    events = agent.shard()["events"]
    eventually(lambda: agent.shard()["events"] >= events + 3, "three heartbeats")
    assert len(subscribe_calls(kinesis)) == 2
    assert len(kinesis.subscriptions()) == 1
    assert agent.shard()["generation"] == 2


def test_what_was_being_decoded_when_it_was_replaced_counts_once(
    kinesis: KinesisServer, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9: decoding stands still while the subscription is given back and a new one is opened."""
    records = numbered(1, 100, 30_000)
    kinesis.put("orders", *records[:4])
    go_on, stuck = threading.Event(), threading.Event()

    def decode(payload: Any, received: Any, decoding: Any) -> Any:
        event = decode_event(payload, received, decoding)
        if event.records and records[4] in event.records.batch.column("data").to_pylist():
            stuck.set()
            go_on.wait(30)
        return event

    monkeypatch.setattr(runner, "decode_event", decode)
    agent = start_agent(kinesis, buffer_bytes=MIB // 2, idle_timeout_s=5.0).assign()
    eventually(lambda: agent.held() == records[:4], "the first records")
    kinesis.put("orders", *records[4:5])
    eventually(stuck.is_set, "the fifth record is being decoded")
    # Each put alone: one event a record.
    for record in records[5:]:
        kinesis.put("orders", record)
    eventually(lambda: agent.state() == "parked", "given back for want of room")
    agent.take_until(records[:4])
    eventually(lambda: agent.shard()["generation"] == 2, "a new subscription")
    eventually(lambda: agent.state() == "streaming", "which is open")
    go_on.set()

    agent.take_until(records)
    assert agent.shard()["stale"] >= 1
    assert starts(subscribe_calls(kinesis))[0] == "TRIM_HORIZON"
    assert agent.errors() == {}


def test_a_shard_whose_call_is_pending_is_not_called_for_again(
    serve: Serve, start_query: StartQuery
) -> None:
    """F11: discovery is poked again and again meanwhile, by failures and by a reshard."""
    kinesis = serve(
        None,
        Fault(Delay(40), shard=FIRST),
        Fault(Cut(byte=20), shard=SECOND, event=2, times=2),
        shards=2,
    )
    query = start_query(kinesis, shardFetchInterval="1s")
    put_to(kinesis, FIRST, *numbered(1, 3))
    put_to(kinesis, SECOND, *numbered(4, 6))
    query.run_until(lambda: len(subscribe_calls(kinesis, SECOND)) == 3, "two failures")
    for child in kinesis.split("orders", SECOND):
        put_to(kinesis, child, b"7")

    query.read_until(8)
    assert sorted(query.data) == sorted([*numbered(1, 6), b"7", b"7"])
    # The one call is noted when it gets there, and none got there before it.
    (call,) = subscribe_calls(kinesis, FIRST)
    assert call.outcome == "ok"
    assert call.at >= subscribe_calls(kinesis, SECOND)[0].at + 30


def test_closing_it_ourselves_opens_no_other(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F14: given back for want of room, and later stopped: neither end asks for a subscription."""
    records = numbered(1, 100, 30_000)
    kinesis.put("orders", *records)
    agent: Agent = start_agent(kinesis, buffer_bytes=1 * MIB, idle_timeout_s=5.0).assign()
    eventually(lambda: agent.state() == "parked", "given back")
    eventually(lambda: not kinesis.subscriptions(), "its connection is closed")
    later = kinesis.clock.monotonic() + 15
    eventually(lambda: kinesis.clock.monotonic() > later, "three times the pause")
    assert len(subscribe_calls(kinesis)) == 1
    assert agent.state() == "parked"

    agent.take_until(records)
    made = len(subscribe_calls(kinesis))
    agent.close()
    eventually(lambda: not kinesis.subscriptions(), "its connection is closed")
    later = kinesis.clock.monotonic() + 10
    eventually(lambda: kinesis.clock.monotonic() > later, "twice the pause")
    assert len(subscribe_calls(kinesis)) == made
