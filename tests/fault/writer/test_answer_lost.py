"""Kinesis stored the records, and the answer did not arrive (F55)."""

from __future__ import annotations

from collections import Counter

import pytest

from kinesis_ds.testing import Delay, Disconnect, NoAnswer
from tests.support.sinks import Sink, put_fault

pytestmark = pytest.mark.fault

IDS = range(1000)
# One request at a time, to one shard, so that the fourth call brings the fourth hundred.
IN_TURN = {"batchMaxRecords": "100", "maxInFlightRequests": "1"}
FOURTH = list(range(300, 400))


@pytest.mark.parametrize(
    "lost",
    [Disconnect(performed=True), NoAnswer(performed=True), Delay(45.0, performed=True)],
    ids=str,
)
def test_only_the_records_of_that_call_are_there_twice(
    lost: Disconnect | NoAnswer | Delay,
) -> None:
    """F55: at least once, and no more often than must be; each counts once in the message."""
    with Sink(put_fault(lost, call=4), shards=1) as sink:
        outcome = sink.write(IDS, **IN_TURN)

        assert outcome.records == 1000
        assert sink.lost(IDS) == []
        assert sink.stored_more_than_once() == FOURTH
        assert sink.counters(**IN_TURN)["requests"] == 11


@pytest.mark.parametrize("lost", [Disconnect(), Delay(10.0), Delay(10.0, performed=True)], ids=str)
def test_a_call_that_did_nothing_or_is_only_late_repeats_nothing(lost: Disconnect | Delay) -> None:
    """F55: an answer that comes before the call's 30 s are over is still taken."""
    with Sink(put_fault(lost, call=4), shards=1) as sink:
        outcome = sink.write(IDS, **IN_TURN)

        assert len(sink.calls()) == 10 + isinstance(lost, Disconnect)
        sink.assert_each_once(IDS, outcome)


@pytest.mark.parametrize("reset", [True, False], ids=["RST", "FIN"])
@pytest.mark.parametrize("after", [0, 80, 700])
def test_an_answer_cut_in_its_middle_is_no_answer(after: int, reset: bool) -> None:
    """F55: before, in the status line, in the headers, in the body; with RST and with FIN."""
    with Sink(shards=1, relayed=True) as sink:
        sink.relay.cut_answer(4, after, reset=reset)
        outcome = sink.write(IDS, **IN_TURN)

        assert outcome.records == 1000
        assert sink.lost(IDS) == []
        assert sink.stored_more_than_once() == FOURTH
        assert len(sink.calls()) == 11


def test_with_many_under_way_whole_requests_are_repeated_and_nothing_else() -> None:
    """F55: four of forty calls lose their answers; what is there twice are four requests."""
    faults = [put_fault(Disconnect(performed=True), call=call) for call in (3, 9, 17, 30)]
    ids = range(2000)
    with Sink(*faults, shards=1) as sink:
        outcome = sink.write(ids, batchMaxRecords="50")

        assert outcome.records == 2000
        assert sink.lost(ids) == []
        more = {item: n - 1 for item, n in sink.times_stored().items() if n > 1}
        assert sum(more.values()) == 4 * 50
        for item, times in more.items():
            first = item // 50 * 50
            assert {more.get(other) for other in range(first, first + 50)} == {times}


def test_calls_for_several_shards_repeat_what_they_brought() -> None:
    """F55: what a call combined for four shards is sent again apart, each record of it once."""
    lost = [2, 3, 5, 8]
    faults = [put_fault(Disconnect(performed=True), call=call) for call in lost]
    with Sink(*faults) as sink:
        outcome = sink.write(IDS, batchMaxRecords="60", maxInFlightRequests="1")

        assert outcome.records == 1000
        repeated = Counter(item for call in lost for item in sink.sent[call - 1])
        assert sink.times_stored() == sink.times_sent() == Counter(IDS) + repeated
