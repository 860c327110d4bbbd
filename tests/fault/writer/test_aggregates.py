"""Many rows in one Kinesis record, and streams that are resharded under them (F50, F59).

Rows are counted by the rule of those who read aggregates: what a shard holds for another shard is
left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.errors import WriteError
from kinesis_ds.testing import Disconnect, FailRecords
from tests.support.polling import eventually
from tests.support.sinks import STREAM, Outcome, Sink, put_fault, rows
from tests.support.stored_rows import stored_rows, times

pytestmark = pytest.mark.fault

IDS = range(4000)
OPTIONS = {"aggregation": "true", "aggregationMaxRecords": "50"}


def assert_each_once(sink: Sink, outcome: Outcome) -> None:
    """A reader gets each row once, and the counters say what it took."""
    assert outcome.error is None
    assert times(stored_rows(sink.kinesis, STREAM)) == Counter(IDS)
    seen = sink.counters(**OPTIONS)
    assert seen["in_flight_records"] == seen["in_flight_bytes"] == 0
    assert seen["stored_records"] == len(sink.kinesis.records(STREAM))
    everything = times(stored_rows(sink.kinesis, STREAM, misplaced=True))
    assert sum(everything.values()) == 4000 + seen["misplaced_records"]


def test_rows_travel_together() -> None:
    """F59: fifty of a shard in one record, none of them in a shard that is not its own."""
    with Sink() as sink:
        outcome = sink.write(IDS, **OPTIONS, linger="60s")

        assert_each_once(sink, outcome)
        assert outcome.records == 4000
        # Each of the four shards has one that is not full.
        assert 4000 / 50 <= len(sink.kinesis.records(STREAM)) <= 4000 / 50 + 4
        assert sink.counters(**OPTIONS)["misplaced_records"] == 0


def test_each_row_is_stored_once_whatever_fails() -> None:
    """F50: refused aggregates are sent again as they are, and nothing else is."""
    codes = ["ProvisionedThroughputExceededException", "InternalFailure"]
    faults = [
        put_fault(FailRecords(codes[call % 2], first=call % 3, every=1 + call % 4), call=call)
        for call in range(1, 60, 2)
    ]
    with Sink(*faults) as sink:
        outcome = sink.write(IDS, **OPTIONS, batchMaxRecords="5")

        assert len(sink.kinesis.struck()) >= 10
        assert_each_once(sink, outcome)
        assert outcome.records == 4000


def test_an_answer_that_is_lost_repeats_the_rows_of_that_call() -> None:
    """F55: all rows of its aggregates, and no others."""
    with Sink(put_fault(Disconnect(performed=True), call=3)) as sink:
        outcome = sink.write(IDS, **OPTIONS, batchMaxRecords="5", maxInFlightRequests="1")

        assert outcome.records == 4000
        found = times(stored_rows(sink.kinesis, STREAM))
        assert found == Counter(IDS) + Counter(sink.sent[2])


@pytest.mark.parametrize("shards", [1, 2])
def test_a_split_in_the_middle_of_a_task(shards: int) -> None:
    """F59: rows that landed in the wrong child are sent again, and only they."""
    with Sink(shards=shards) as sink:

        def items() -> Iterator[Any]:
            for start in range(0, 4000, 1000):
                yield from rows(range(start, start + 1000))
                eventually(
                    lambda end=start + 1000: len(times(stored_rows(sink.kinesis, STREAM))) == end,
                    "the rows so far can be read",
                )
                sink.kinesis.split(STREAM, sink.kinesis.open_shards(STREAM)[0])

        outcome = sink.write(items(), **OPTIONS)

        assert_each_once(sink, outcome)
        assert sink.counters(**OPTIONS)["misplaced_records"] > 0
        left_out = times(stored_rows(sink.kinesis, STREAM, misplaced=True)) - Counter(IDS)
        assert sink.times_sent() == Counter(IDS) + left_out


def test_merges_and_splits_while_calls_fail() -> None:
    """F59: whatever is under way, refused, or waits when the shards change."""
    faults = [put_fault(FailRecords("InternalFailure", every=2), call=c) for c in range(2, 200, 3)]
    with Sink(*faults) as sink:

        def items() -> Iterator[Any]:
            for start in range(0, 4000, 500):
                yield from rows(range(start, start + 500))
                eventually(
                    lambda most=start: len(times(stored_rows(sink.kinesis, STREAM))) >= most,
                    "most rows can be read",
                )
                shards = sink.kinesis.open_shards(STREAM)
                if start % 1000:
                    sink.kinesis.split(STREAM, shards[0])
                else:
                    sink.kinesis.merge(STREAM, *shards[-2:])

        outcome = sink.write(items(), **OPTIONS, batchMaxRecords="10", retryTimeout="600s")

        assert_each_once(sink, outcome)


def test_a_stream_that_distributes_records_itself_is_refused() -> None:
    """F59: a reader would leave out most of an aggregate there; nothing is sent."""
    with Sink() as sink:
        sink.stream = "auto"
        sink.kinesis.call(
            "CreateStream",
            StreamName="auto",
            StreamModeDetails={"StreamMode": "ON_DEMAND"},
            RecordDistributionStrategy="AUTO",
        )
        said = sink.write(range(10), **OPTIONS).said(WriteError)

        assert "Stream auto places records itself" in said
        assert "without aggregation and recordIds" in said
        assert sink.calls() == []
        assert sink.write(range(10)).records == 10
