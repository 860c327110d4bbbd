"""A shard without records still has a position that moves with time (F24)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import After, Position
from kinesis_ds.testing import KinesisServer, ManualClock, Settings
from tests.support.agents import FIRST, STREAM, numbered, subscribe_calls
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault

HOUR_S = 3600.0


def logged(query: MicroBatches) -> Position:
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    return next(iter(offset.streams.values())).shards[FIRST]


def position(query: MicroBatches) -> After:
    found = logged(query)
    assert isinstance(found, After)
    return found


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_more_than_a_day_of_silence_leaves_a_position_to_resume(tmp_path: Path, mode: str) -> None:
    """F24: after 30 hours the last record has expired, and the checkpoint has not; no batch was
    written for heartbeats alone more than once in ten minutes.
    """
    clock = ManualClock()
    with KinesisServer(Settings(consumer_ready_s=0), clock=clock) as kinesis:
        kinesis.create_stream(STREAM)
        options = {**kinesis.options(STREAM), "consumerMode": mode}
        query = MicroBatches(options, tmp_path, clock)
        try:
            query.step()
            kinesis.put(STREAM, *numbered(1, 3))
            query.read_until(3)
            at_record_3 = position(query)
            assert at_record_3.number == kinesis.records(STREAM)[-1].sequence_number
            moved = {str(at_record_3)}

            def moves() -> bool:
                clock.advance(1)  # some time passes in any case, or no pause would ever end
                return str(position(query)) not in moved

            for _ in range(15):
                clock.advance(2 * HOUR_S)
                query.run_until(moves, "the position moves")
                moved.add(str(position(query)))
            assert kinesis.records(STREAM) == []
            assert query.data == numbered(1, 3)
            batches = len(list((tmp_path / "offsets").iterdir()))
            assert batches <= 2 + 30 * 6
        finally:
            query.close()
        kinesis.put(STREAM, *numbered(4, 4))
        clock.advance(20 * HOUR_S)  # down, but for less than records are kept

        query = MicroBatches(options, tmp_path, clock)
        try:
            kinesis.put(STREAM, *numbered(5, 5))
            assert query.read_until(5) == numbered(1, 5)
        finally:
            query.close()
        outcomes = {call.outcome for call in subscribe_calls(kinesis)}
        assert "InvalidArgumentException" not in outcomes


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_a_query_that_waits_for_its_first_record_does_not_grow_old(
    tmp_path: Path, mode: str
) -> None:
    """F24: started at ``latest``, 30 hours of silence, restarted: nothing is missing, and the first
    record is read.
    """
    clock = ManualClock()
    with KinesisServer(Settings(consumer_ready_s=0), clock=clock) as kinesis:
        kinesis.create_stream(STREAM)
        options = {
            **kinesis.options(STREAM),
            "consumerMode": mode,
            "initialPosition": "latest",
        }
        query = MicroBatches(options, tmp_path, clock)
        try:
            query.step()
            moved = {str(logged(query))}

            def moves() -> bool:
                clock.advance(1)
                return str(logged(query)) not in moved

            for _ in range(15):
                clock.advance(2 * HOUR_S)
                query.run_until(moves, "the position moves")
                moved.add(str(logged(query)))
        finally:
            query.close()
        clock.advance(20 * HOUR_S)

        query = MicroBatches(options, tmp_path, clock)
        try:
            kinesis.put(STREAM, *numbered(1, 1))
            assert query.read_until(1) == numbered(1, 1)
        finally:
            query.close()
