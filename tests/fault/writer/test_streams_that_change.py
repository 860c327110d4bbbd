"""Streams are resharded under the writer, or distribute records themselves (F31, F50, F52)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.testing import Delay, FailRecords
from tests.support.polling import eventually
from tests.support.sinks import STREAM, Sink, put_fault, rows

pytestmark = pytest.mark.fault


def test_records_go_to_the_children_of_a_shard_that_was_split() -> None:
    """Split, merge and scaling in the middle of a task: each record once, counted where it is."""
    ids = range(3000)
    with Sink(shards=2) as sink:

        def items() -> Iterator[Any]:
            yield from rows(range(500))
            eventually(lambda: len(sink.kinesis.records(STREAM)) == 500, "the first are stored")
            sink.kinesis.split(STREAM, sink.kinesis.open_shards(STREAM)[0])
            yield from rows(range(500, 1000))
            eventually(lambda: len(sink.kinesis.records(STREAM)) == 1000, "so are these")
            sink.kinesis.merge(STREAM, *sink.kinesis.open_shards(STREAM)[-2:])
            yield from rows(range(1000, 2000))
            eventually(lambda: len(sink.kinesis.records(STREAM)) == 2000, "and these")
            sink.kinesis.scale(STREAM, 4)
            yield from rows(range(2000, 3000))

        outcome = sink.write(items(), batchMaxRecords="100")

        sink.assert_each_once(ids, outcome)
        assert outcome.message is not None
        assert len(outcome.message.shards) > 6


def test_a_retry_meets_the_children() -> None:
    """Refused by the parent, split meanwhile, stored by the children; and a call across it."""
    faults = [put_fault(FailRecords(every=2), times=4), put_fault(Delay(2.0), times=None)]
    ids = range(1000)
    with Sink(*faults, shards=1) as sink:

        def items() -> Iterator[Any]:
            yield from rows(ids)
            eventually(lambda: len(sink.calls()) >= 2, "some was refused")
            sink.kinesis.split(STREAM, "shardId-000000000000")

        outcome = sink.write(items(), batchMaxRecords="100", maxInFlightRequests="4")

        sink.assert_each_once(ids, outcome)
        assert outcome.message is not None
        assert len(outcome.message.shards) == 3


@pytest.mark.parametrize("keyed", [True, False])
def test_a_stream_that_distributes_records_itself(keyed: bool) -> None:
    """With or without keys: all shards get their part, and the message says which (F31)."""
    with Sink() as sink:
        sink.stream = "auto"
        sink.kinesis.call(
            "CreateStream",
            StreamName="auto",
            StreamModeDetails={"StreamMode": "ON_DEMAND"},
            RecordDistributionStrategy="AUTO",
        )
        items = rows(range(1000), key=lambda _: "one key for all" if keyed else None)
        outcome = sink.write(items)

        sink.assert_each_once(range(1000), outcome)
        shards = Counter(record.shard_id for record in sink.kinesis.records("auto"))
        assert len(shards) == 4
        assert set(shards.values()) == {250}
