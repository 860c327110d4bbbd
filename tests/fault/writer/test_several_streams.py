"""One task writes to several streams, and something is wrong with one of them (F45, F49, F52)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.errors import AccessError, StreamNotFoundError, WriteError
from kinesis_ds.testing import Delay, FailRecords, Refuse, Settings
from tests.support.sinks import STREAM, Outcome, Sink, put_fault, rows

pytestmark = pytest.mark.fault

# At most five streams may be CREATING at once; here none is for any time.
AT_ONCE = Settings(enforce_limits=False, stream_ready_s=0.0)
STREAMS = (STREAM, "second", "third")
IDS = range(900)


def items(ids: range = IDS) -> Iterator[Any]:
    """Rows for the three streams in turn; those of the query's own stream name none."""
    return rows(ids, stream=lambda item: [None, "second", "third"][item % 3])


def three(*faults: Any) -> Sink:
    """A sink that writes to all of them; the other two have two shards each."""
    return Sink(*faults, settings=AT_ONCE)


def write(sink: Sink, given: Iterator[Any] | None = None, **options: str) -> Outcome:
    for stream in STREAMS[1:]:
        sink.kinesis.create_stream(stream, 2)
    return sink.write(items() if given is None else given, **options)


def stored(sink: Sink, stream: str) -> Counter[int]:
    """How often each id is in a stream."""
    sink.stream = stream
    return sink.times_stored()


def test_each_row_goes_to_its_stream_and_is_counted_there() -> None:
    """F52: half of what one of them is sent is throttled; the message tells streams apart."""
    faults = [put_fault(FailRecords(every=2), stream="second", times=4)]
    with three(*faults) as sink:
        outcome = write(sink)

        assert outcome.message is not None, outcome.error
        said = {(w.stream, w.shard_id): w for w in outcome.message.shards}
        assert len(said) == len(outcome.message.shards)
        for at, stream in enumerate(STREAMS):
            assert stored(sink, stream) == Counter(IDS[at::3])
            there = sink.stored_by_shard()
            assert {shard: w for (name, shard), w in said.items() if name == stream} == there


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FailRecords(), "Rate exceeded"),
        (Refuse("ProvisionedThroughputExceededException"), "ProvisionedThroughputExceeded"),
        (Refuse("InternalFailure", "", 500), "InternalFailure"),
    ],
    ids=str,
)
def test_a_stream_that_takes_nothing_is_named_and_holds_up_no_other(
    failure: FailRecords | Refuse, reason: str
) -> None:
    """F49: with one request at a time, too; there is no message, and the others have theirs."""
    with three(put_fault(failure, stream="second", times=None)) as sink:
        said = write(sink, retryTimeout="20s", maxInFlightRequests="1").said(WriteError)

        assert "records could not be written to stream second within 20s" in said
        assert reason in said
        assert "orders" not in said
        assert "third" not in said
        assert stored(sink, "second") == {}
        assert stored(sink, STREAM) == Counter(IDS[0::3])
        assert stored(sink, "third") == Counter(IDS[2::3])


def test_a_stream_that_may_not_be_written_to_is_named() -> None:
    """F45: at once, and nothing is sent a second time."""
    with three() as sink:
        sink.kinesis.deny("PutRecords", "second")
        said = write(sink).said(AccessError)

        assert "stream second" in said
        assert "kinesis:PutRecords" in said
        assert stored(sink, "second") == {}
        assert max(sink.times_sent().values()) == 1


def test_a_stream_that_is_not_there_is_named() -> None:
    """F45: when its first row comes; what came before may have been stored."""
    with three() as sink:
        more = rows(range(900, 1000), stream=lambda item: "nowhere" if item == 950 else None)
        given = (each for part in (items(), more) for each in part)
        said = write(sink, given).said(StreamNotFoundError)

        assert "nowhere" in said
        assert "orders" not in said
        assert max(sink.times_sent().values(), default=1) == 1
        assert all(not stored(sink, stream)[950] for stream in STREAMS)


def test_streams_take_turns() -> None:
    """F52: with one request at a time, no stream waits until another has everything."""
    ids = range(2000)
    with three(put_fault(Delay(20.0), call=1)) as sink:
        given = rows(ids, stream=lambda item: [STREAM, "second"][item % 2], each=500)
        outcome = write(sink, given, maxInFlightRequests="1", batchMaxRecords="50")

        assert outcome.records == 2000
        brought = {STREAM: 0, "second": 0}
        for call in sink.calls()[1:]:
            brought[str(call.request["StreamName"])] += call.records
            if min(brought.values()) < 800:
                assert abs(brought[STREAM] - brought["second"]) <= 200
