"""Throttled records are sent again with growing, jittered pauses (F51)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import pytest

from kinesis_ds.errors import WriteError
from kinesis_ds.testing import FailRecords, ManualClock, Settings
from tests.support.polling import eventually
from tests.support.sinks import Sink, put_fault, rows

pytestmark = pytest.mark.fault


def pauses(sink: Sink) -> list[float]:
    """Between the calls of a task with one request, in the double's time."""
    return [later.at - sooner.at for sooner, later in pairwise(sink.calls())]


def test_pauses_grow_and_are_drawn() -> None:
    """F51: 40 s of throttling are some twenty calls, not thousands, and no two pauses alike."""
    with Sink(put_fault(FailRecords(), times=None), shards=1) as sink:
        sink.write(range(10), retryTimeout="40s", maxInFlightRequests="1").said(WriteError)
        found = pauses(sink)

    # Seven pauses up to the cap of 5 s, then 2.5 s each on average. A pause is never shorter than
    # it was drawn, and longer only as far as the machine is late.
    assert 8 <= len(found) <= 50
    longest = [min(5.0, 0.1 * 2**n) for n in range(len(found))]
    assert sum(found) >= 0.25 * sum(longest)
    # Full jitter: some pause in the second half is less than half of what it may be.
    assert any(pause < most / 2 for pause, most in list(zip(found, longest, strict=True))[4:])


def test_shards_that_failed_together_do_not_come_back_together() -> None:
    """F51: eight shards, full at the same time for ever, spread over the time there is."""
    with Sink(put_fault(FailRecords(), times=None), shards=8) as sink:
        items = rows(range(80), hash_key=lambda item: str(2**125 * (item % 8)))
        sink.write(items, retryTimeout="30s").said(WriteError)
        assert len(sink.sent[0]) == 80, "they fail together"
        times = sorted(call.at for call in sink.calls())
    # In step, they would all be silent for 5 s, again and again.
    capped = [at for at in times if at > times[0] + 10.0]
    assert len(capped) > 20
    assert max(later - sooner for sooner, later in pairwise(capped)) < 4.0


def test_fresh_records_of_other_shards_pass_those_that_wait() -> None:
    """F51: what is for a full shard comes first, and does not keep the one slot there is."""
    clock, hot, ids = ManualClock(), range(3000), range(3500)

    def hash_key(item: int) -> str:
        return "0" if item in hot else str(2**128 - 1)

    with Sink(shards=2, settings=Settings(), clock=clock) as sink, ThreadPoolExecutor(1) as pool:
        items = rows(ids, hash_key=hash_key)
        options = {"maxInFlightRequests": "1", "retryTimeout": "1000s"}
        writing = pool.submit(sink.write, items, **options)
        # A second's allowance of the hot shard, and then it is full for as long as time stands.
        eventually(lambda: not sink.lost(ids[3000:]), "the others' records are stored")
        assert len(sink.lost(hot)) == 2000
        while not writing.done():
            clock.advance(1.0)
            wait([writing], timeout=0.1)
        sink.assert_each_once(ids, writing.result())
