"""PutRecords answers with more or fewer results than it was sent records (F53)."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import ProtocolError
from kinesis_ds.testing import FailRecords, MiscountResults
from tests.support.sinks import Sink, put_fault

pytestmark = pytest.mark.fault

IDS = range(100)


@pytest.mark.parametrize("by", [-100, -99, -1, 1, 2])
def test_no_record_counts_when_results_do_not_pair(by: int) -> None:
    """F53: the task fails without a guess; all were stored, so its rerun stores all again."""
    with Sink(put_fault(MiscountResults(by))) as sink:
        said = sink.write(IDS).said(ProtocolError)

        assert f"was sent 100 records and answered with {100 + by} results" in said
        assert len(sink.calls()) == 1
        assert sink.counters()["delivered_records"] == 0
        assert sink.write(IDS).records == 100
        assert sink.stored_more_than_once() == list(IDS)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_retry_that_is_answered_wrongly_fails_too(by: int) -> None:
    """F53: half is refused, and the answer to the second call does not pair."""
    half = FailRecords("InternalFailure", every=2)
    faults = [put_fault(half, call=1), put_fault(MiscountResults(by), call=2)]
    with Sink(*faults, shards=1) as sink:
        said = sink.write(IDS).said(ProtocolError)

        assert f"was sent 50 records and answered with {50 + by} results" in said
        assert sink.times_stored() == dict.fromkeys(IDS, 1)
        assert sink.counters()["delivered_records"] == 50


@pytest.mark.parametrize("by", [-1, 1])
def test_refused_and_miscounted_at_once(by: int) -> None:
    """F53: were results taken by their place, a refused record would count as stored."""
    faults = [put_fault(FailRecords(first=50)), put_fault(MiscountResults(by))]
    with Sink(*faults, shards=1) as sink:
        sink.write(IDS).said(ProtocolError)
        assert sink.lost(IDS) == list(range(50, 100))

        assert sink.write(IDS).records == 100
        assert sink.lost(IDS) == []
        assert sink.stored_more_than_once() == list(range(50))


def test_other_requests_of_the_task_are_not_committed_either() -> None:
    """F53: one of ten answers does not pair; nothing of the task is committed, nothing is lost."""
    with Sink(put_fault(MiscountResults(-1), call=4)) as sink:
        sink.write(range(1000), batchMaxRecords="100").said(ProtocolError)
        outcome = sink.write(range(1000))

        assert outcome.records == 1000
        assert sink.lost(range(1000)) == []
        assert sum(sink.times_stored().values()) <= 2000
