"""What never gets better within retryTimeout fails the task, by name (F49)."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.errors import WriteError
from kinesis_ds.testing import AnswerWith, Disconnect, FailRecords, NoAnswer, Refuse
from tests.support.sinks import Sink, put_fault

pytestmark = pytest.mark.fault

IDS = range(300)


def test_one_record_that_is_never_taken_fails_the_task() -> None:
    """F49: 299 of 300 are stored; there is no commit message, and the error says how many."""
    with Sink(put_fault(FailRecords(count=1), times=None)) as sink:
        said = sink.write(IDS, retryTimeout="16s").said(WriteError)

        assert "1 records could not be written to stream orders within 16s" in said
        assert "ProvisionedThroughputExceededException: Rate exceeded" in said
        assert "add shards" in said
        assert sink.lost(IDS) == [0]
        assert sink.stored_more_than_once() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Refuse("ProvisionedThroughputExceededException"), "ProvisionedThroughputExceeded"),
        (Refuse("KMSThrottlingException"), "KMSThrottlingException"),
        (Refuse("InternalFailure", "", 500), "InternalFailure"),
        (AnswerWith(b"<html>", 503), "503"),
        (AnswerWith(b"<html>", 429), "HTTP 429 without a Kinesis error"),
        (FailRecords("InternalFailure", "Internal service failure."), "Internal service failure"),
        (Disconnect(), "ConnectionClosedError"),
        (NoAnswer(), "got no answer within"),
    ],
    ids=str,
)
def test_every_lasting_failure_is_named_in_the_end(fault: Any, reason: str) -> None:
    """F49: a record is tried for retryTimeout and no longer, and the last reason is told."""
    with Sink(put_fault(fault, times=None)) as sink:
        said = sink.write(IDS, retryTimeout="16s").said(WriteError)

        assert reason in said
        assert "300 records could not be written" in said
        assert len(sink.calls()) > (0 if isinstance(fault, NoAnswer) else 1)
        assert sink.times_stored() == {}


def test_what_failed_for_good_can_be_written_by_the_next_task() -> None:
    """F49: Spark runs the task again; everything arrives, and what had arrived is there twice."""
    faults = [put_fault(FailRecords(first=100), call=1)]
    faults += [put_fault(FailRecords(), call=call) for call in range(2, 100)]
    with Sink(*faults) as sink:
        sink.write(IDS, retryTimeout="5s").said(WriteError)
        sink.kinesis.clear_faults()
        outcome = sink.write(IDS)

        assert outcome.records == 300
        assert sink.stored_more_than_once() == list(range(100))
        assert sink.lost(IDS) == []
