"""Records and requests at the limit exactly, and one byte above it (F54)."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_ds.errors import InvalidRequestError, WriteError
from kinesis_ds.limits import MIB
from tests.support.sinks import STREAM, Sink, rows

# botocore hands aiohttp a body as bytes, however large. Outside tests the warning is silent.
pytestmark = [
    pytest.mark.fault,
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

KEYS = ["k", "k" * 256, "\u00e9" * 256, "\U0001f600" * 256]


def set_record_limit(sink: Sink, kib: int) -> None:
    summary = sink.kinesis.call("DescribeStreamSummary", StreamName=STREAM)
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    sink.kinesis.call("UpdateMaxRecordSize", StreamARN=arn, MaxRecordSizeInKiB=kib)
    wait_until_active(sink)


def wait_until_active(sink: Sink) -> None:
    def active() -> bool:
        summary = sink.kinesis.call("DescribeStreamSummary", StreamName=STREAM)
        return bool(summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE")

    sink.kinesis.wait_for(active)


def test_the_key_counts_in_bytes() -> None:
    """F54: data and key of 1 MiB together are taken, one byte more is refused, by row."""
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        for at, key in enumerate(KEYS):
            size = MIB - len(key.encode())
            assert sink.write(rows([at], size=size, key=lambda _, k=key: k)).records == 1
        assert sink.times_stored() == dict.fromkeys(range(len(KEYS)), 1)
        calls = len(sink.calls())

        for key in KEYS:
            size = MIB - len(key.encode()) + 1
            items = [*rows(range(10, 13)), *rows([13], size=size, key=lambda _, k=key: k)]
            said = sink.write(items).said(WriteError)
            assert "Row 3 of partition 0 cannot be written: it has 1048577 bytes" in said
            assert "takes 1048576 a record" in said
        assert len(sink.calls()) == calls, "the request that was being packed was not sent"


def test_a_stream_of_10_mib_records_takes_them() -> None:
    """F54: 10 MiB exactly travels alone in a request of 10 MiB; one byte more is refused."""
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        set_record_limit(sink, 10 * 1024)
        outcome = sink.write([*rows(range(2)), *rows([2], size=10 * MIB - 2), *rows(range(3, 5))])

        sink.assert_each_once(range(5), outcome)
        assert sorted(call.records for call in sink.calls()) == [1, 2, 2]
        said = sink.write(rows([5], size=10 * MIB - 1)).said(WriteError)
        assert f"it has {10 * MIB + 1} bytes" in said
        assert "UpdateMaxRecordSize" in said


def test_requests_of_10_mib_and_of_500_records() -> None:
    """F54: ten records of 1 MiB with their keys are one request; so are 500 small ones."""
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        items = rows(range(11), size=MIB - 1, key=lambda _: "k", each=1)
        outcome = sink.write(items, batchMaxBytes="10mb", maxInFlightRequests="1")
        assert [call.records for call in sink.calls()] == [10, 1]
        sink.assert_each_once(range(11), outcome)

        assert sink.write(range(100, 601), maxInFlightRequests="1").records == 501
        assert [call.records for call in sink.calls()[2:]] == [500, 1]
        assert sink.stored_more_than_once() == []


def test_a_limit_raised_while_the_client_is_warm_is_seen() -> None:
    """F54: a worker process may be older than the stream's limit."""
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        sink.write(range(3))
        set_record_limit(sink, 2 * 1024)
        outcome = sink.write(rows(range(3, 6), size=2 * MIB - 2, each=1))

        assert outcome.records == 3
        assert sink.times_stored() == dict.fromkeys(range(6), 1)
        assert len(sink.loops) == 1
        assert len(sink.calls("DescribeStreamSummary")) == 2


def test_a_limit_that_became_smaller_fails_the_task_and_then_names_the_row() -> None:
    """F54: Kinesis refuses the whole request; the task that Spark starts again knows the limit."""
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        set_record_limit(sink, 2 * 1024)
        sink.write(range(3))
        set_record_limit(sink, 1024)
        items = [*rows(range(3, 6)), *rows([6], size=2 * MIB - 2)]

        assert "takes records of up to 1048576" in sink.write(items).said(InvalidRequestError)
        assert "Row 3 of partition 0 cannot be written" in sink.write(items).said(WriteError)
        assert len(sink.calls()) == 2, "it was sent again"
