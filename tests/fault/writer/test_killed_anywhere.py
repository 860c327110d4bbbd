"""A task is broken off at each of its calls, and Spark runs it again with the same rows (F55, F56).

Without ids, exactly what the first attempt had stored is there twice. With ids, whoever keeps the
first row of each id has every row exactly once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kinesis_ds.testing import Delay, Disconnect, NoAnswer, Refuse
from tests.support.interrupts import heeding_interrupts, interrupt_when
from tests.support.polling import eventually
from tests.support.sink_tasks import run_task
from tests.support.sinks import Sink, put_fault, rows
from tests.support.stored_rows import stored_rows, times, without_repeats

pytestmark = pytest.mark.fault

IDS = range(300)
# Small requests and a small window, so that there are many calls, several at once, and the task
# waits for room as well as for the last answers.
PLAIN = {"batchMaxRecords": "30", "maxInFlightRecords": "120", "maxInFlightRequests": "3"}
WITH_IDS = {
    **PLAIN,
    "recordIds": "true",
    "batchMaxRecords": "3",
    "aggregationMaxRecords": "10",
}
MOST_CALLS = 100


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with heeding_interrupts():
        yield


def items() -> Iterator[Any]:
    """The rows of the task: five of each key."""
    return rows(IDS, size=60, key=lambda item: f"k{item % 60}", each=50)


def at_each_call(story: Callable[[int], bool]) -> None:
    """Tell the story of the first call, of the second, and so on until there is none."""
    calls = 1
    while story(calls):
        calls += 1
        assert calls < MOST_CALLS
    assert calls > 8, "too few calls to prove anything"


def check_what_is_stored(sink: Sink, before: Counter[int], options: dict[str, str]) -> None:
    """After the second attempt: each row once more than before, and once by its id."""
    found = stored_rows(sink.kinesis, sink.stream)
    assert times(found) == before + Counter(IDS)
    if options is WITH_IDS:
        assert times(without_repeats(found)) == Counter(IDS)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("options", [PLAIN, WITH_IDS], ids=["plain", "record ids"])
@pytest.mark.parametrize("performed", [True, False], ids=["stored", "not stored"])
def test_cancelled_while_a_call_is_under_way(performed: bool, options: dict[str, str]) -> None:
    """F56: wherever it is, the second attempt writes each row once more, and nothing else."""

    def story(call: int) -> bool:
        with Sink(put_fault(NoAnswer(performed), call=call)) as sink:
            done = threading.Event()
            waiting = interrupt_when(lambda: sink.kinesis.struck() or done.is_set())
            try:
                run_task(sink, items(), **options)
                done.set()
                waiting.join()
            except KeyboardInterrupt:
                done.set()
            if not sink.kinesis.struck():
                return False
            eventually(lambda: sink.kinesis.connections() == 0, "what had got through is done")
            before = times(stored_rows(sink.kinesis, sink.stream))
            assert max(before.values(), default=1) == 1

            assert run_task(sink, items(), **options).records == len(IDS)

            check_what_is_stored(sink, before, options)
            return True

    at_each_call(story)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("options", [PLAIN, WITH_IDS], ids=["plain", "record ids"])
def test_a_call_that_ends_the_task(options: dict[str, str]) -> None:
    """F45: the service refuses a call for good while others are under way."""

    def story(call: int) -> bool:
        with Sink(put_fault(Refuse("AccessDeniedException"), call=call)) as sink:
            if run_task(sink, items(), **options).error is None:
                return False
            eventually(lambda: sink.kinesis.connections() == 0, "what had got through is done")
            before = times(stored_rows(sink.kinesis, sink.stream))

            assert run_task(sink, items(), **options).records == len(IDS)

            check_what_is_stored(sink, before, options)
            return True

    at_each_call(story)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("options", [PLAIN, WITH_IDS], ids=["plain", "record ids"])
@pytest.mark.parametrize("performed", [True, False], ids=["stored", "not stored"])
def test_an_answer_that_is_lost(performed: bool, options: dict[str, str]) -> None:
    """F55: the task goes on, and repeats that one call's records if they were stored."""

    def story(call: int) -> bool:
        with Sink(put_fault(Disconnect(performed), call=call)) as sink:
            assert run_task(sink, items(), **options).records == len(IDS)

            lost = [c for c in sink.calls() if c.outcome == "Disconnect"]
            found = stored_rows(sink.kinesis, sink.stream)
            assert set(times(found)) == set(IDS)
            stored = Counter(record.data for record in sink.kinesis.records(sink.stream))
            repeats = [data for data, n in stored.items() for _ in range(n - 1)]
            assert len(repeats) == sum(c.records for c in lost if performed)
            assert times(without_repeats(found)) == Counter(IDS) or options is PLAIN
            return bool(lost)

    at_each_call(story)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ids", ["true", "false"], ids=["record ids", "aggregates"])
@pytest.mark.parametrize("merging", [False, True], ids=["split", "merge"])
def test_a_reshard_that_misplaces_what_is_under_way(merging: bool, ids: str) -> None:
    """F54: made for the shards as they were and stored in those that came, each row is where
    readers look for it exactly once; nothing was broken off, so nothing is there twice.
    """
    options = {**WITH_IDS, "recordIds": ids, "aggregation": "true"}
    misplaced = 0

    def story(call: int) -> bool:
        nonlocal misplaced
        late = Delay(25.0)
        with Sink(put_fault(late, call=call)) as sink, ThreadPoolExecutor(1) as pool:
            if merging:
                sink.kinesis.scale(sink.stream, 8)
            writing = pool.submit(run_task, sink, items(), **options)
            eventually(lambda: sink.kinesis.struck() or writing.done())
            if not sink.kinesis.struck():
                return False
            # The call has been made, and is performed when time has gone on.
            sink.kinesis.scale(sink.stream, 4 if merging else 8)
            sink.kinesis.clock.advance(late.seconds)
            outcome = writing.result(60)

            assert times(stored_rows(sink.kinesis, sink.stream)) == Counter(IDS)
            again = sink.counters(**options)["misplaced_records"]
            # They are stored twice, and count where readers see them.
            assert outcome.records == len(IDS)
            misplaced += again
            return True

    at_each_call(story)
    assert (misplaced > 0) != merging
