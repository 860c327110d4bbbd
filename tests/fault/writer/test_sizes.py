"""Records and requests at the limit exactly, and one byte above it (F54)."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_ds.errors import InvalidRequestError, WriteError
from kinesis_ds.limits import MIB
from tests.support.sinks import STREAM, Sink, rows
from tests.support.stored_rows import stored_rows, times

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
            said = sink.write(items, linger="30s").said(WriteError)
            assert "Row 3 of partition 0 cannot be written: it has 1048577 bytes" in said
            assert "takes 1048576 a record" in said
        assert len(sink.calls()) == calls, "what waited for others was sent"


def test_a_stream_of_10_mib_records_takes_them() -> None:
    """F54: 10 MiB exactly travels alone in a request of 10 MiB; one byte more is refused."""
    with Sink(shards=1, new_loop=asyncio.new_event_loop) as sink:
        set_record_limit(sink, 10 * 1024)
        items = [*rows(range(2)), *rows([2], size=10 * MIB - 2), *rows(range(3, 5))]
        outcome = sink.write(items, linger="30s")

        sink.assert_each_once(range(5), outcome)
        assert sorted(sink.sent) == [[0, 1], [2], [3, 4]]
        said = sink.write(rows([5], size=10 * MIB - 1)).said(WriteError)
        assert f"it has {10 * MIB + 1} bytes" in said
        assert "UpdateMaxRecordSize" in said


def test_requests_of_10_mib_and_of_500_records() -> None:
    """F54: ten records of 1 MiB with their keys are one request; so are 500 small ones."""
    options = {"batchMaxBytes": "10mb", "maxInFlightRequests": "1", "linger": "30s"}
    with Sink(shards=1, new_loop=asyncio.new_event_loop) as sink:
        # So much is under way to a shard only when it has shown that it takes that.
        sink.write(rows(range(1000, 1010), size=MIB - 1, key=lambda _: "k", each=1), **options)
        calls = len(sink.calls())
        items = rows(range(11), size=MIB - 1, key=lambda _: "k", each=1)
        sink.write(items, **options)
        assert [call.records for call in sink.calls()[calls:]] == [10, 1]

        assert sink.write(range(100, 601), **options).records == 501
        assert [call.records for call in sink.calls()[calls + 2 :]] == [500, 1]
        ids = [*range(11), *range(100, 601), *range(1000, 1010)]
        assert sink.times_stored() == dict.fromkeys(ids, 1)


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


def test_rows_that_are_too_large_are_left_out_if_so_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F54: they, and only they; counted in the message and the counters, and said once a task."""
    options = {"onOversizedRecord": "skip"}
    with Sink(new_loop=asyncio.new_event_loop) as sink:
        items = [*rows(range(100)), *rows(range(100, 103), size=MIB), *rows(range(103, 200))]
        outcome = sink.write(items, **options)

        assert outcome.message is not None
        assert outcome.message.skipped == sink.counters(**options)["skipped_records"] == 3
        sink.assert_each_once([*range(100), *range(103, 200)], outcome)
        [said] = [text for text in caplog.messages if "too large" in text]
        assert "rows=3" in said
        assert len(sink.calls("DescribeStreamSummary")) == 2, "the limit is asked for each row"
        assert f"stream {STREAM}" in said

        assert sink.write(range(200, 210), **options).message.skipped == 0  # type: ignore[union-attr]
        assert sink.write(rows([210], size=MIB), **options).records == 0
        assert sink.counters(**options)["skipped_records"] == 4
    assert sum("too large" in text for text in caplog.messages) == 2


def test_an_aggregate_is_never_larger_than_a_record_may_be() -> None:
    """F54: rows at the limit exactly travel alone; one byte more is refused, or left out."""
    options = {"aggregation": "true", "aggregationMaxBytes": "1mb"}
    with Sink(shards=1, new_loop=asyncio.new_event_loop) as sink:
        limit = rows([2], size=MIB - 1, key=lambda _: "k")
        outcome = sink.write([*rows(range(2)), *limit, *rows(range(3, 5))], **options)

        assert outcome.records == 5
        assert times(stored_rows(sink.kinesis, STREAM)) == dict.fromkeys(range(5), 1)
        items = [*rows(range(5, 7)), *rows([7], size=MIB, key=lambda _: "k")]
        assert "Row 2 of" in sink.write(items, linger="30s", **options).said(WriteError)
        assert sink.write(items, onOversizedRecord="skip", **options).records == 2
        assert times(stored_rows(sink.kinesis, STREAM)) == dict.fromkeys(range(7), 1)
