"""A task that is broken off in the middle commits nothing and leaves nothing under way (F56)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.testing import Fault, NoAnswer
from tests.support.interrupts import heeding_interrupts, interrupt_when
from tests.support.polling import eventually
from tests.support.sinks import Sink, put_fault, rows

pytestmark = pytest.mark.fault

IDS = range(1000)
OPTIONS = {"batchMaxRecords": "100", "maxInFlightRequests": "4"}


class Upstream(Exception):  # noqa: N818
    """What a generator of rows may raise."""


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with heeding_interrupts():
        yield


def quiet(sink: Sink) -> None:
    """Wait until every connection is closed, and what had got through is worked off."""
    eventually(lambda: sink.relay.connections == 0, "its connections are closed")
    eventually(lambda: sink.kinesis.connections() == 0, "the double has read them to their end")


def assert_nothing_is_under_way(sink: Sink) -> None:
    """No connection, no thread; and no call after that."""
    quiet(sink)
    assert sink.threads() == []
    assert sink.relay.under_way == 0
    calls = len(sink.calls())
    sink.write(range(5000, 5001))
    assert len(sink.calls()) == calls + 1


@pytest.mark.parametrize(
    ("error", "performed"),
    [
        (KeyboardInterrupt, False),
        (KeyboardInterrupt, True),
        (SystemExit, False),
        (GeneratorExit, True),
        (Upstream, False),
    ],
)
def test_rows_that_break_off_cancel_what_is_under_way(
    error: type[BaseException],
    performed: bool,
) -> None:
    """F56: requests are with a silent server; the error itself comes out, and no message."""
    with Sink(put_fault(NoAnswer(performed), times=2), relayed=True) as sink:

        def broken() -> Iterator[Any]:
            yield from rows(range(500))
            eventually(lambda: len(sink.calls()) >= 2, "two calls are not answered")
            raise error

        with pytest.raises(error):
            sink.write(broken(), **OPTIONS)

        quiet(sink)
        stored = sum(sink.times_stored().values())
        assert_nothing_is_under_way(sink)
        assert sum(sink.times_stored().values()) == stored + 1
        assert sink.counters(**OPTIONS)["tasks"] == 0
        # Spark runs the task again: nothing is lost.
        assert sink.write(IDS, **OPTIONS).records == 1000
        assert sink.lost(IDS) == []


@pytest.mark.parametrize(
    "count", [1000, 300], ids=["while it waits for room", "while it waits for the last answers"]
)
def test_an_interrupt_while_the_writer_waits(count: int) -> None:
    """F56: it does not end the wait as if everything had been acknowledged."""
    with Sink(put_fault(NoAnswer(), times=3), relayed=True) as sink:
        options = {**OPTIONS, "maxInFlightRequests": "3", "maxInFlightRecords": "300"}
        interrupting = interrupt_when(lambda: sink.relay.under_way == 3)
        with pytest.raises(KeyboardInterrupt):
            sink.write(range(count), **options)
        interrupting.join()

        assert_nothing_is_under_way(sink)
        assert sink.lost(range(count)) == list(range(count))
        assert sink.write(range(count), **options).records == count


def test_an_interrupt_at_first_contact() -> None:
    """F56: the stream is being looked at; no row is taken and nothing stays open."""
    silent = Fault(NoAnswer(), operation="DescribeStreamSummary")
    with Sink(silent, relayed=True) as sink:
        interrupting = interrupt_when(lambda: sink.relay.under_way == 1)
        with pytest.raises(KeyboardInterrupt):
            sink.write(_never())
        interrupting.join()

        assert_nothing_is_under_way(sink)


def _never() -> Iterator[Any]:
    pytest.fail("a row was taken")
    yield
