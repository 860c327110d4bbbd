"""Half of all rows are for one of four shards, which takes 1,000 a second (F52)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from kinesis_ds.testing import ManualClock, Settings
from tests.support.polling import eventually
from tests.support.sinks import Outcome, Sink, rows

pytestmark = pytest.mark.fault

IDS = range(6000)
HOT = IDS[::2]
OTHERS = IDS[1::2]


def hash_key(item: int) -> str:
    """Every second row for the first shard, the others in turn for the other three."""
    return str(2**126 * (1 + item // 2 % 3)) if item % 2 else "0"


def write(
    sink: Sink, clock: ManualClock, *, vain_calls: int = 0, **options: str
) -> tuple[Outcome, int]:
    """Write all while time stands still, so that each shard takes 1,000 records and is full.

    Time goes on when the others have theirs and the full shard was sent to so often more. Returns
    the outcome, and how many records were sent in vain with those calls.
    """
    with ThreadPoolExecutor(1) as pool:
        items = rows(IDS, hash_key=hash_key)
        writing = pool.submit(sink.write, items, retryTimeout="1000s", **options)
        eventually(lambda: not sink.lost(OTHERS), "the others' records are stored")
        eventually(lambda: len(sink.lost(HOT)) == 2000, "the hot shard is full")
        full = len(sink.sent)
        eventually(lambda: len(sink.sent) >= full + vain_calls, "it is tried now and then")
        in_vain = sum(len(ids) for ids in sink.sent[full : full + vain_calls])
        while not writing.done():
            clock.advance(1.0)
            wait([writing], timeout=0.1)
        return writing.result(), in_vain


@pytest.mark.parametrize("window", ["10000", "4000"])
def test_other_shards_get_their_records_while_one_is_full(window: str) -> None:
    """F52: of what comes in, half is hot; the other half is stored and done with; none is lost."""
    clock = ManualClock()
    with Sink(settings=Settings(), clock=clock) as sink:
        outcome, _ = write(sink, clock, maxInFlightRecords=window)

        sink.assert_each_once(IDS, outcome)


def test_a_hot_shard_is_not_sent_far_more_than_it_takes() -> None:
    """F52: 2000 records wait for a full shard, and it is asked with a few of them at a time."""
    clock = ManualClock()
    with Sink(settings=Settings(), clock=clock) as sink:
        outcome, in_vain = write(sink, clock, vain_calls=12, maxInFlightRequests="1")

        sink.assert_each_once(IDS, outcome)
        assert 0 < in_vain < 12 * 500 / 2
