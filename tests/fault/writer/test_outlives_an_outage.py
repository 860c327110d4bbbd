"""The endpoint is gone for a while: connections torn, new ones refused (F45, F49)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.errors import WriteError
from tests.support.polling import eventually
from tests.support.sinks import STREAM, Sink, rows

pytestmark = pytest.mark.fault

OPTIONS = {"batchMaxRecords": "100", "maxInFlightRequests": "4"}


def test_an_outage_in_the_middle_of_a_task_is_waited_out() -> None:
    """F45: what is sent meanwhile fails again and again, and is stored once when it is over."""
    ids = range(2000)
    with Sink() as sink:

        def items() -> Iterator[Any]:
            yield from rows(range(500))
            eventually(lambda: len(sink.kinesis.records(STREAM)) == 500, "the first are stored")
            with sink.kinesis.down():
                yield from rows(range(500, 1000))
                eventually(lambda: sink.counters(**OPTIONS)["retried_records"] >= 900, "retries")
            yield from rows(range(1000, 2000))

        outcome = sink.write(items(), retryTimeout="1000s", **OPTIONS)
        sink.assert_each_once(ids, outcome)


def test_an_endpoint_that_comes_up_late_is_waited_for() -> None:
    """F45: the first contact of a worker process falls into the outage."""
    with Sink(relayed=True) as sink:
        up = threading.Event()

        def outage() -> None:
            with sink.kinesis.down():
                up.set()
                eventually(lambda: sink.relay.accepted >= 2, "it was tried twice")

        thread = threading.Thread(target=outage)
        thread.start()
        up.wait()
        outcome = sink.write(range(100))
        thread.join()

        sink.assert_each_once(range(100), outcome)


def test_an_outage_that_does_not_end_fails_the_task() -> None:
    """F49: a warm client, and nobody listens any more for longer than retryTimeout."""
    with Sink(shards=1) as sink:
        sink.write(range(10), retryTimeout="5s")
        with sink.kinesis.down():
            said = sink.write(range(10, 20), retryTimeout="5s").said(WriteError)
        assert "10 records could not be written to stream orders within 5s" in said
        assert "Cannot connect to host 127.0.0.1" in said or "ServerDisconnectedError" in said
        assert sink.write(range(10, 20)).records == 10
