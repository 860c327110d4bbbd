"""The clocks of the double: time that passes faster, and time that jumps."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kinesis_ds.testing import KinesisServer, ManualClock, ScaledClock
from kinesis_ds.testing.clock import Changes

DAY_S = 86_400.0
CLOCKS = pytest.mark.parametrize(
    "clock", [ScaledClock(20), ManualClock()], ids=["scaled", "manual"]
)


@CLOCKS
def test_both_readings_jump_together(clock: ScaledClock | ManualClock) -> None:
    """A deadline and a timestamp see the same time pass."""
    ahead = clock.wall() - clock.monotonic()
    before = clock.monotonic()
    clock.advance(DAY_S)

    assert clock.monotonic() - before >= DAY_S
    assert clock.wall() - clock.monotonic() == pytest.approx(ahead, abs=1e-3)


@CLOCKS
def test_time_does_not_go_back(clock: ScaledClock | ManualClock) -> None:
    """The model of the service relies on it."""
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


@CLOCKS
def test_a_jump_wakes_what_waits_for_the_time(clock: ScaledClock | ManualClock) -> None:
    """From another thread; what waits for longer goes on waiting."""

    async def main() -> None:
        changes = Changes(clock)
        short = asyncio.ensure_future(changes.sleep(DAY_S))
        long = asyncio.ensure_future(changes.sleep(3 * DAY_S))
        await asyncio.sleep(0)
        jump = threading.Thread(target=clock.advance, args=(DAY_S,))
        jump.start()
        await asyncio.wait_for(short, 60)
        jump.join()
        assert not long.done()
        long.cancel()
        changes.close()
        clock.advance(DAY_S)  # nobody is told any more

    asyncio.run(main())


def test_records_expire_when_their_time_is_jumped_over() -> None:
    """Retention is in the clock's time."""
    with KinesisServer(clock=ScaledClock(20)) as kinesis:
        kinesis.create_stream("orders")
        kinesis.put("orders", b"old")
        kinesis.clock.advance(DAY_S - 3600)  # type: ignore[attr-defined]
        kinesis.put("orders", b"new")
        kinesis.clock.advance(2 * 3600)  # type: ignore[attr-defined]
        (shard,) = kinesis.open_shards("orders")
        first = {"ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.call("GetShardIterator", StreamName="orders", **first)["ShardIterator"]
        kinesis.call("GetRecords", ShardIterator=iterator)

        assert [record.data for record in kinesis.records("orders")] == [b"new"]
