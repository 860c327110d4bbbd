"""A server that answers slowly or never, and far more rows than fit (F48, FLINK-9374)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW
from kinesis_ds.errors import WriteError
from kinesis_ds.limits import MIB
from kinesis_ds.testing import Delay, NoAnswer
from tests.support.sinks import STREAM, Sink, put_fault, rows

pytestmark = pytest.mark.fault

# What is taken beyond the bound: a request that is being packed, and one slice being opened.
SLICE_ROWS = 500


class Watched:
    """Rows, with a look after each one taken at how many are neither stored nor waiting."""

    def __init__(self, items: Iterator[Any], look: Any) -> None:
        self._items = items
        self._look = look
        self.taken = 0
        self.seen: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.taken += len(item) if STREAM_WRITER_GETS_ARROW else 1
            self.seen.append(self._look(self.taken))
            yield item


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def batches(ids: Iterable[int], size: int) -> Iterator[Any]:
    return rows(ids, size=size, each=20)


def test_slow_answers_hold_the_rows_back() -> None:
    """F48: every answer takes a second; what is taken and not stored stays within the bound."""
    ids = range(2000)
    with Sink(put_fault(Delay(1.0), times=None), relayed=True) as sink:
        watched = Watched(rows(ids), lambda taken: taken - len(sink.kinesis.records(STREAM)))
        outcome = sink.write(
            watched,
            batchMaxRecords="50",
            maxInFlightRecords="400",
            maxInFlightRequests="4",
        )
        assert sink.relay.most_under_way == 4
        # Four requests of 50, one being packed, one slice.
        assert max(watched.seen) <= 4 * 50 + 50 + SLICE_ROWS
        sink.assert_each_once(ids, outcome)
        counters = sink.counters()
        assert counters["waits"] > 0
        assert counters["in_flight_records"] == counters["in_flight_requests"] == 0


@pytest.mark.parametrize(
    ("options", "requests", "records"),
    [
        ({"maxInFlightRecords": "300", "batchMaxRecords": "100"}, 3, 300),
        ({"maxInFlightRequests": "2", "batchMaxRecords": "100"}, 2, 10_000),
        ({"maxInFlightBytes": "1mb", "batchMaxBytes": "256kb"}, 4, None),
    ],
    ids=["records", "requests", "bytes"],
)
def test_no_answer_at_all_stops_the_rows_and_then_fails(
    options: dict[str, str], requests: int, records: int | None
) -> None:
    """F48: rows and bytes stop a writer whose server is silent, requests what is sent to it."""
    with Sink(put_fault(NoAnswer(), times=None), relayed=True) as sink:
        size = 8 if records else 4000
        watched = Watched(rows(range(20_000), size=size), lambda _: sink.counters(**options))
        # Requests are full, however long the rows take: they wait for each other until none fits.
        outcome = sink.write(watched, retryTimeout="12s", linger="60s", **options)

        assert "got no answer" in outcome.said(WriteError)
        assert sink.relay.most_under_way == requests
        peak = {name: max(seen[name] for seen in watched.seen) for name in watched.seen[0]
                if name.startswith("in_flight")}  # fmt: skip
        assert peak["in_flight_requests"] <= requests
        if records:
            assert peak["in_flight_records"] <= records
            assert watched.taken <= records + 100 + SLICE_ROWS
        else:
            assert peak["in_flight_bytes"] <= MIB
            assert watched.taken * size <= MIB + MIB // 4 + 5 * MIB
        assert sink.times_stored() == {}


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
def test_a_record_larger_than_the_bound_travels_alone() -> None:
    """F48: it could never be admitted otherwise, and nothing is admitted beside it."""
    slowly = put_fault(Delay(1.0), times=None)
    with Sink(slowly, relayed=True, new_loop=asyncio.new_event_loop) as sink:
        sink.kinesis.call("UpdateMaxRecordSize", StreamARN=_arn(sink), MaxRecordSizeInKiB=10240)
        sink.kinesis.wait_for(lambda: _status(sink) == "ACTIVE")
        outcome = sink.write(
            rows(range(3), size=2 * MIB, each=1), maxInFlightBytes="1mb", maxInFlightRequests="4"
        )
        assert sink.relay.most_under_way == 1
        sink.assert_each_once(range(3), outcome)


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
def test_the_memory_of_the_process_is_bounded() -> None:
    """F48: 2 GiB of rows are offered to a sink of 8 MiB whose server never answers."""
    with Sink(put_fault(NoAnswer(), times=None)) as sink:
        watched = Watched(batches(range(40_000), 50_000), lambda _: resident_bytes())
        before = resident_bytes()
        outcome = sink.write(
            watched, retryTimeout="12s", maxInFlightBytes="8mb", batchMaxBytes="1mb"
        )
        outcome.said(WriteError)
        # The bodies exist as rows, as JSON, in sockets, and once more in the double.
        assert max([*watched.seen, resident_bytes()]) - before < 200 * MIB
        assert watched.taken < 40_000


def _summary(sink: Sink) -> dict[str, Any]:
    answer = sink.kinesis.call("DescribeStreamSummary", StreamName=STREAM)
    return dict(answer["StreamDescriptionSummary"])


def _arn(sink: Sink) -> str:
    return str(_summary(sink)["StreamARN"])


def _status(sink: Sink) -> str:
    return str(_summary(sink)["StreamStatus"])
