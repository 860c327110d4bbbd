"""Thousands of hand-overs between a task's thread and the network thread (F57)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_ds.testing import FailRecords
from tests.support.sinks import Outcome, Sink, put_fault

pytestmark = pytest.mark.fault


@pytest.mark.parametrize(
    "options",
    [
        {"maxInFlightRecords": "1"},
        {"maxInFlightRequests": "1", "maxInFlightRecords": "4", "batchMaxRecords": "1"},
        {"maxInFlightRequests": "2", "maxInFlightRecords": "3", "batchMaxRecords": "2"},
    ],
    ids=str,
)
def test_no_wake_up_is_lost(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """F57: rows wait for those before them; a lost wake-up would be a wait of 10 s."""
    ids = range(300)
    with Sink() as sink:
        outcome = sink.write(ids, **options)

        sink.assert_each_once(ids, outcome)
        assert sink.counters(**options)["waits"] > 50
    assert "the writer has waited" not in caplog.text


def test_no_wake_up_is_lost_between_tasks_and_retries(caplog: pytest.LogCaptureFixture) -> None:
    """F57: six tasks share the network thread, and every third call is answered with a retry."""
    some = FailRecords("InternalFailure", every=2)
    faults = [put_fault(some, call=call) for call in range(1, 600, 3)]
    options = {"maxInFlightRequests": "1", "maxInFlightRecords": "8", "batchMaxRecords": "2"}
    parts = [range(start, start + 100) for start in range(0, 600, 100)]
    with Sink(*faults) as sink:

        def task(part: range) -> Outcome:
            return sink.write(part, **options)

        with ThreadPoolExecutor(len(parts)) as pool:
            outcomes = list(pool.map(task, parts))

        assert [outcome.records for outcome in outcomes] == [100] * 6
        assert sink.counters(**options)["waits"] > 50
        assert sink.times_stored() == dict.fromkeys(range(600), 1)
        assert len(sink.loops) == 1
    assert "the writer has waited" not in caplog.text


def test_rows_are_sent_when_the_task_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    """F57: those that wait for company are the ones that room is waited for."""
    ids = range(200)
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        outcome = sink.write(ids, maxInFlightRecords="40", linger="15s")

        sink.assert_each_once(ids, outcome)
    assert "the writer has waited" not in caplog.text
