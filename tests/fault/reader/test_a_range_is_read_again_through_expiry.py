"""A range read with GetRecords goes on behind the last record read (F26, F27).

The source does not poll, but a task reads its range this way where no agent holds it.
"""

from __future__ import annotations

import pytest

from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, Position
from kinesis_ds.testing import Delay, Fault, KinesisServer, Refuse, ScaledClock, Settings
from tests.fault.conftest import Serve
from tests.support.agents import FIRST, STREAM, numbered
from tests.support.micro_batches import read_rows

pytestmark = pytest.mark.fault

# Of one megabyte each, so that a page of GetRecords holds ten.
BIG = 1_000_000


def read(kinesis: KinesisServer, start: Position, end: Position) -> list[bytes]:
    """What a task returns for a range that no agent holds; the number each record tells."""
    arn = kinesis.call("DescribeStreamSummary", StreamName=STREAM)["StreamDescriptionSummary"]
    planned = PlannedRange(STREAM, arn["StreamARN"], FIRST, start, end, None, None)
    rows = read_rows(planned, parse_read_options(kinesis.options(STREAM)))
    return [row.data.rstrip(b".") for row in rows]


def asked(kinesis: KinesisServer) -> list[str]:
    """Where the iterators started."""
    calls = kinesis.calls.calls("GetShardIterator", FIRST)
    return [
        ":".join(
            [
                c.request["ShardIteratorType"],
                *filter(None, [c.request.get("StartingSequenceNumber")]),
            ]
        )
        for c in calls
    ]


@pytest.mark.parametrize("closed", [False, True], ids=["open shard", "to the shard's end"])
def test_an_expired_iterator_is_renewed_behind_the_last_record_read(
    serve: Serve, closed: bool
) -> None:
    """F26: on the second and the third page, twice in a row; each record comes once."""
    expired = Refuse("ExpiredIteratorException")
    faults = [Fault(expired, "GetRecords", call=n) for n in (2, 3, 5)]
    kinesis = serve(Settings(enforce_limits=False), *faults)
    kinesis.put(STREAM, *numbered(1, 25, BIG))
    numbers = [r.sequence_number for r in kinesis.records(STREAM)]
    if closed:
        kinesis.split(STREAM, FIRST)

    end = SHARD_END if closed else After(str(numbers[23]))
    assert read(kinesis, TRIM_HORIZON, end) == numbered(1, 25 if closed else 24)
    assert len(kinesis.struck()) == 3
    after = [f"AFTER_SEQUENCE_NUMBER:{number}" for number in numbers]
    assert asked(kinesis) == ["TRIM_HORIZON", after[9], after[9], after[19]]


def test_a_renewed_iterator_is_used_at_once() -> None:
    """F27: a minute old, iterators expire here, and the first answer takes longer than that. The
    next one would expire as well if it were kept for the pause after the failure.
    """
    slow = Fault(Delay(90, performed=True), "GetRecords", call=1)
    settings = Settings(iterator_life_s=60)
    with KinesisServer(settings, clock=ScaledClock(100), faults=[slow]) as kinesis:
        kinesis.create_stream(STREAM)
        kinesis.put(STREAM, *numbered(1, 25, BIG))
        last = kinesis.records(STREAM)[-1].sequence_number

        assert read(kinesis, TRIM_HORIZON, After(str(last))) == numbered(1, 25)
        assert len(kinesis.calls.calls("GetShardIterator")) >= 2
        outcomes = [call.outcome for call in kinesis.calls.calls("GetRecords")]
        assert "ExpiredIteratorException" in outcomes


def test_what_passes_is_waited_out_on_the_same_page(serve: Serve) -> None:
    """F26: without another iterator, and without asking faster than five times a second."""
    throttled = Refuse("ProvisionedThroughputExceededException")
    kinesis = serve(
        None,
        Fault(throttled, "GetShardIterator", call=1),
        Fault(throttled, "GetRecords", call=1),
        Fault(Refuse("KMSThrottlingException"), "GetRecords", call=3),
        Fault(Refuse("InternalFailure", status=500), "GetRecords", call=5),
    )
    kinesis.put(STREAM, *numbered(1, 25, BIG))
    last = kinesis.records(STREAM)[-1].sequence_number

    assert read(kinesis, TRIM_HORIZON, After(str(last))) == numbered(1, 25)
    assert len(kinesis.struck()) == 4
    assert asked(kinesis) == ["TRIM_HORIZON"] * 2
