"""Closing, whatever a shard or the source waits for (F15)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.limits import MIB
from kinesis_ds.testing import Cut, Fault, NoAnswer, Refuse, Settings
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import numbered, subscribe_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

BUSY = Refuse("InternalFailureException", status=500)


def our_threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("kinesis-"))


@pytest.mark.each_transport
@pytest.mark.parametrize(
    ("fault", "records", "state", "calls"),
    [
        pytest.param(None, 100, "streaming", 1, id="waiting for room"),
        pytest.param(None, 200, "parked", 1, id="given back"),
        pytest.param(None, 1, "streaming", 1, id="waiting for events"),
        pytest.param(Fault(NoAnswer()), 1, "opening", 1, id="waiting for the answer"),
        pytest.param(Fault(NoAnswer(), call=2), 1, "opening", 2, id="renewing"),
        pytest.param(Fault(Cut(), event=2), 1, "waiting", 1, id="the five seconds"),
        pytest.param(Fault(BUSY, times=None), 1, "waiting", 4, id="backing off"),
    ],
)
def test_closing_an_agent_leaves_nothing(
    serve: Serve, start_agent: StartAgent, fault: Fault | None, records: int, state: str, calls: int
) -> None:
    """F15: no thread, no connection, no further call; and once more does no harm."""
    kinesis = serve(Settings(subscription_life_s=8 if calls == 2 else 3000), *filter(None, [fault]))
    kinesis.put("orders", *numbered(1, records, 30_000))
    before = our_threads()
    idle_timeout_s = 5.0 if state == "parked" else 3000.0
    agent = start_agent(kinesis, buffer_bytes=1 * MIB, idle_timeout_s=idle_timeout_s).assign()
    eventually(
        lambda: len(subscribe_calls(kinesis)) >= calls and agent.state() == state, f"{state}"
    )
    if records == 100:
        eventually(lambda: agent.pool()["waiting"] == 1, "waiting for room")

    agent.agent.close()
    eventually(lambda: not kinesis.subscriptions(), "no subscription is left")
    agent.close()
    assert our_threads() == before
    made = len(subscribe_calls(kinesis))
    later = kinesis.clock.monotonic() + 6
    eventually(lambda: kinesis.clock.monotonic() > later, "a call would be due")
    assert len(subscribe_calls(kinesis)) == made
    agent.close()


@pytest.mark.each_transport
def test_closing_an_agent_that_never_connected(serve: Serve, start_agent: StartAgent) -> None:
    """F15: the endpoint is down from the first call on."""
    kinesis = serve()
    agent = start_agent(kinesis)
    before = [name for name in our_threads() if name == "kinesis-double"]
    with kinesis.down():
        agent.assign()
        eventually(lambda: agent.errors().get("TransientError", 0) >= 2, "two refused connections")
        agent.close()
        assert our_threads() == before


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        pytest.param(None, Fault(NoAnswer(), operation="ListShards", call=1), id="looking up"),
        pytest.param(Settings(consumer_ready_s=1e6), None, id="registering the consumer"),
        pytest.param(None, Fault(NoAnswer(), operation="ListShards", call=3), id="discovery"),
    ],
)
def test_closing_a_source_that_waits_for_a_control_call(
    serve: Serve, start_query: StartQuery, settings: Settings | None, fault: Fault | None
) -> None:
    """F15: whoever waits in the source is told, and close does not wait for the answer."""
    kinesis = serve(settings, *filter(None, [fault]))
    kinesis.put("orders", *numbered(1, 3))
    before = our_threads()
    query = start_query(kinesis, shardFetchInterval="1s")
    with ThreadPoolExecutor(1) as spark:
        if fault is None or fault.call == 1:
            operation = "ListShards" if fault else "DescribeStreamConsumer"
            waiting = spark.submit(query.read_until, 3)
            eventually(lambda: kinesis.calls.calls(operation), "it waits")
            query.close()
            with pytest.raises(KinesisConnectorError):
                waiting.result(20)
        else:
            query.read_until(3)
            eventually(lambda: len(kinesis.calls.calls("ListShards")) == 3, "discovery waits")
            query.close()

    assert our_threads() == before
    eventually(lambda: not kinesis.subscriptions(), "no subscription is left")


def test_closing_a_source_that_was_never_used(serve: Serve, start_query: StartQuery) -> None:
    """F15: there is nothing to end, and nothing is asked."""
    kinesis = serve()
    query = start_query(kinesis)
    query.close()
    query.close()
    assert len(kinesis.calls) == 0
