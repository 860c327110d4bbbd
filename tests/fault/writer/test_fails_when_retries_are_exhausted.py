"""What never gets better within retryTimeout fails the task, by name (F49)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_ds.errors import WriteError
from kinesis_ds.testing import AnswerWith, Disconnect, FailRecords, NoAnswer, Refuse, Settings
from tests.support.sinks import Outcome, Sink, put_fault, rows

pytestmark = pytest.mark.fault

IDS = range(300)


def test_one_record_that_is_never_taken_fails_the_task() -> None:
    """F49: 299 of 300 are stored; there is no commit message, and the error says how many."""
    with Sink(put_fault(FailRecords(count=1), times=None), shards=1) as sink:
        said = sink.write(rows(IDS, each=300), retryTimeout="10s").said(WriteError)

        assert "1 records could not be written to stream orders within 10s" in said
        assert "ProvisionedThroughputExceededException: Rate exceeded" in said
        assert "add shards" in said
        assert sink.lost(IDS) == [0]
        assert sink.stored_more_than_once() == []
        assert sink.sent[0] == list(IDS)
        assert set(map(tuple, sink.sent[1:])) == {(0,)}


LASTING = [
    (Refuse("ProvisionedThroughputExceededException"), "ProvisionedThroughputExceeded"),
    (Refuse("KMSThrottlingException"), "KMSThrottlingException"),
    (Refuse("InternalFailure", "", 500), "InternalFailure"),
    (AnswerWith(b"<html>", 503), "503"),
    (AnswerWith(b"<html>", 429), "HTTP 429 without a Kinesis error"),
    (FailRecords("InternalFailure", "Internal service failure."), "Internal service failure"),
    (Disconnect(), "ServerDisconnectedError"),
    (NoAnswer(), "got no answer within 30s"),
]


def test_every_lasting_failure_is_named_in_the_end() -> None:
    """F49: a record is tried for retryTimeout and no longer, and the last reason is told."""
    # At most five streams may be CREATING at once; here none is for any time.
    settings = Settings(enforce_limits=False, stream_ready_s=0.0)
    with Sink(settings=settings) as sink, ThreadPoolExecutor(len(LASTING)) as pool:

        def write(number: int) -> Outcome:
            stream = f"stream-{number}"
            sink.kinesis.create_stream(stream)
            sink.kinesis.add_faults(put_fault(LASTING[number][0], stream=stream, times=None))
            return sink.write(range(30), retryTimeout="45s", streamName=stream)

        outcomes = list(pool.map(write, range(len(LASTING))))
        for number, (outcome, (_, reason)) in enumerate(zip(outcomes, LASTING, strict=True)):
            said = outcome.said(WriteError)
            assert reason in said
            label = f"stream stream-{number}"
            found = re.search(rf"(\d+) records could not be written to {label} within 45s", said)
            assert found is not None
            if sink.counters(streamName=f"stream-{number}")["throttled"]:
                assert 1 <= int(found[1]) <= 30, "at its pace a shard gets some of them at a time"
            else:
                assert int(found[1]) == 30
            assert sink.kinesis.records(f"stream-{number}") == []
            assert len(sink.kinesis.calls.calls("PutRecords", stream=f"stream-{number}")) > 1


def test_what_failed_for_good_can_be_written_by_the_next_task() -> None:
    """F49: Spark runs the task again; everything arrives, and what had arrived is there twice."""
    faults = [put_fault(FailRecords(first=100), call=1)]
    faults += [put_fault(FailRecords(), call=call) for call in range(2, 100)]
    with Sink(*faults, shards=1) as sink:
        sink.write(rows(IDS, each=300), retryTimeout="5s").said(WriteError)
        assert len(sink.calls()) < 100
        sink.kinesis.clear_faults()
        outcome = sink.write(IDS)

        assert outcome.records == 300
        assert sink.stored_more_than_once() == list(range(100))
        assert sink.lost(IDS) == []
