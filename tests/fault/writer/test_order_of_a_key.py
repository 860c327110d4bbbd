"""``ordering=key``: rows of a partition key are stored in row order, whatever fails (F50).

The order of a key is that of the sequence numbers, through reshards, too. A row that is stored a
second time, because an answer was lost, counts where it was stored first.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_ds.testing import (
    Delay,
    Disconnect,
    FailRecords,
    Fault,
    NoAnswer,
    Refuse,
    ServiceError,
    Settings,
)
from tests.support.polling import eventually
from tests.support.sink_tasks import run_task
from tests.support.sinks import UNLIMITED, Sink, put_fault, rows
from tests.support.stored_rows import out_of_order, stored_rows, times

pytestmark = pytest.mark.fault

IDS = range(3000)
KEYS = 400
SMALL = {"batchMaxRecords": "40", "maxInFlightRecords": "800", "linger": "20ms"}
AGGREGATES = {"aggregation": "true", "aggregationMaxRecords": "15", "batchMaxRecords": "4"}
LONG = pytest.mark.long
CODES = ("ProvisionedThroughputExceededException", "InternalFailure", "ServiceUnavailable")


def drawn_faults(seed: int) -> list[Fault]:
    """Partial failures, throttling, lost answers and late ones, about every third call."""
    rng = random.Random(f"order {seed}")
    faults = []
    for call in range(1, 300):
        kind = rng.random()
        if kind < 0.2:
            code = rng.choice(CODES)
            some = FailRecords(code, first=rng.randrange(3), every=rng.randint(1, 5))
            faults.append(put_fault(some, call=call))
        elif kind < 0.24:
            faults.append(put_fault(Refuse(rng.choice(CODES)), call=call))
        elif kind < 0.30:
            faults.append(put_fault(Disconnect(performed=rng.random() < 0.7), call=call))
        elif kind < 0.36:
            late = Delay(rng.uniform(0.2, 4.0), performed=rng.random() < 0.5)
            faults.append(put_fault(late, call=call))
        elif kind < 0.365:
            faults.append(put_fault(NoAnswer(performed=rng.random() < 0.5), call=call))
    return faults


def reshard(sink: Sink, rng: random.Random) -> None:
    """Split or merge some shard, as far as it can be."""
    shards = sink.kinesis.open_shards(sink.stream)
    at = rng.randrange(len(shards) - 1)
    try:
        if rng.random() < 0.6:
            sink.kinesis.split(sink.stream, shards[at])
        else:
            sink.kinesis.merge(sink.stream, shards[at], shards[at + 1])
    except ServiceError:
        return  # those two are no neighbours


def write(
    seed: int, *, settings: Settings = UNLIMITED, **options: str
) -> list[tuple[str, int, int]]:
    """Write while all that goes wrong. Returns what is stored out of order; all of it is there."""
    rng = random.Random(f"reshards {seed}")
    with Sink(*drawn_faults(seed), settings=settings) as sink, ThreadPoolExecutor(1) as pool:
        items = rows(IDS, size=300, key=lambda item: f"key-{item * item % KEYS}")
        writing = pool.submit(run_task, sink, items, **SMALL | options, retryTimeout="600s")
        for calls in (10, 30, 60, 61, 100):
            eventually(lambda n=calls: len(sink.calls()) >= n or writing.done())
            reshard(sink, rng)
        outcome = writing.result(180)
        assert outcome.error is None, outcome.error
        found = stored_rows(sink.kinesis, sink.stream)
        assert set(times(found)) == set(IDS)
        return out_of_order(found)


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=LONG), pytest.param(3, marks=LONG)])
@pytest.mark.parametrize("aggregated", [False, True], ids=["plain", "aggregated"])
def test_rows_of_a_key_are_stored_in_their_order(aggregated: bool, seed: int) -> None:
    """F50: under partial failures, refused calls, lost and late answers, splits and merges."""
    assert write(seed, ordering="key", **(AGGREGATES if aggregated else {})) == []


@pytest.mark.parametrize("aggregated", [False, True], ids=["plain", "aggregated"])
def test_rows_of_a_key_are_stored_in_their_order_at_the_limits_of_shards(aggregated: bool) -> None:
    """F50: and when the shards themselves are too busy for most of what comes."""
    options = AGGREGATES if aggregated else {}
    assert write(17, settings=Settings(), ordering="key", **options) == []


def test_without_it_the_same_faults_change_the_order() -> None:
    """F50: so the tests above can fail."""
    assert write(0, ordering="none") != []
    assert write(0, ordering="none", **AGGREGATES) != []
