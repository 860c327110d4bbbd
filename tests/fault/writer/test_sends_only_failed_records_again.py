"""PutRecords takes some records and refuses others (F50)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from kinesis_ds.testing import FailRecords
from tests.support.sinks import Sink, put_fault, rows

pytestmark = pytest.mark.fault

IDS = range(500)
LONG = pytest.mark.long

PATTERNS = [
    (FailRecords(), 1, [500, 500]),
    (FailRecords(), 3, [500] * 4),
    (FailRecords(every=2), 1, [500, 250]),
    (FailRecords(every=2), 4, [500, 250, 125, 63, 32]),
    (FailRecords(first=499), 1, [500, 1]),
    (FailRecords(first=1), 2, [500, 499, 498]),
    (FailRecords(count=1), 5, [500, 1, 1, 1, 1, 1]),
    (FailRecords(first=100, every=7, count=3), 1, [500, 3]),
    (FailRecords(every=3), 2, [500, 167, 56]),
]


@pytest.mark.parametrize(("pattern", "times", "sent"), PATTERNS, ids=str)
def test_each_record_is_stored_once(pattern: FailRecords, times: int, sent: list[int]) -> None:
    """F50: each call brings just those that the one before did not take."""
    failure = replace(pattern, code="InternalFailure")
    with Sink(put_fault(failure, times=times), shards=1) as sink:
        outcome = sink.write(rows(IDS, each=500))

        left = list(IDS)
        for ids in sink.sent:
            assert ids == left
            left = [ids[at] for at in pattern.strikes(len(ids))]
        assert [call.records for call in sink.calls()] == sent
        sink.assert_each_once(IDS, outcome)
        assert sink.counters()["retried_records"] == sum(sent[1:])
        assert sink.counters()["throttled"] == 0


@pytest.mark.parametrize(("pattern", "times"), [each[:2] for each in PATTERNS], ids=str)
def test_throttled_records_are_sent_again_and_no_others(pattern: FailRecords, times: int) -> None:
    """F50: at the pace of their shards, so in any number of calls; each as often as it failed."""
    with Sink(put_fault(pattern, times=times)) as sink:
        outcome = sink.write(rows(IDS, each=500), maxInFlightRequests="1")

        refused = Counter(ids[at] for ids in sink.sent[:times] for at in pattern.strikes(len(ids)))
        assert sink.times_sent() == Counter(IDS) + refused
        sink.assert_each_once(IDS, outcome)
        again = sum(refused.values())
        assert sink.counters()["retried_records"] == sink.counters()["throttled"] == again


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=LONG), pytest.param(2, marks=LONG)])
def test_any_pattern_in_any_call_loses_and_repeats_nothing(seed: int) -> None:
    """F50: 40 calls of a task with many requests under way refuse a part of their records."""
    draw = random.Random(seed)
    codes = ["ProvisionedThroughputExceededException", "InternalFailure"]
    faults = [
        put_fault(
            FailRecords(
                draw.choice(codes),
                first=draw.randrange(50),
                every=draw.randint(1, 9),
                count=draw.choice([None, 1, 10]),
            ),
            call=call,
        )
        for call in draw.sample(range(1, 81), 40)
    ]
    ids = range(3000)
    with Sink(*faults) as sink:
        outcome = sink.write(ids, batchMaxRecords="50", maxInFlightRecords="1000")

        assert len(sink.kinesis.struck()) >= 30
        sink.assert_each_once(ids, outcome)
