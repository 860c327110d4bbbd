"""Going on at the oldest record is one more call to Kinesis, in its turn (F23)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.testing import Fault, KinesisServer, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to, subscribe_calls

pytestmark = pytest.mark.fault


def test_every_shard_falls_back_in_its_turn(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F23: a second call at once would be one too many for the second it is made in, and fail; the
    fallback itself may be throttled, and is made again then.
    """
    kinesis.scale(STREAM, 2)
    left, right = kinesis.open_shards(STREAM)
    for shard in (left, right):
        put_to(kinesis, shard, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(6)
    query.close()
    # The next query knows nothing of the last call of this one, which was not a second ago where
    # the machine was busy.
    kinesis.clock.advance(10)
    for shard in (left, right):
        put_to(kinesis, shard, *numbered(4, 6))
        records = [r for r in kinesis.records(STREAM) if r.shard_id == shard]
        kinesis.trim(STREAM, shard, records[3].sequence_number)
    before = {shard: len(subscribe_calls(kinesis, shard)) for shard in (left, right)}
    kinesis.add_faults(Fault(Refuse("LimitExceededException"), shard=right, call=2))

    query = start_query(kinesis, failOnDataLoss="false")
    query.read_until(10)
    for shard in (left, right):
        rows = [row.data for row in query.rows if row.shard == shard]
        assert rows == [*numbered(1, 3), *numbered(5, 6)]
        calls = subscribe_calls(kinesis, shard)[before[shard] :]
        assert all(b.at - a.at >= 1 for a, b in itertools.pairwise(calls))
        assert calls[-1].outcome == "ok"
        assert "InvalidArgumentException" in [call.outcome for call in calls]
    # None but the one that was made up.
    limits = [c for c in kinesis.calls.calls() if c.outcome == "LimitExceededException"]
    assert len(limits) <= 1
    assert {FIRST, SECOND} & {left, right}
