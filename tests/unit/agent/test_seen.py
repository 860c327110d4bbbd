"""Up to which moment a position has seen its shard: what its age is told by after a restart."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, parse_position
from tests.support.builders import ARRIVED_S, event_frame, record
from tests.support.runner_bench import Bench

ARRIVED_MS = int(ARRIVED_S * 1000)
BEHIND = record(5, arrived_s=ARRIVED_S - 7)


def seen(bench: Bench) -> int | None:
    position = bench.buffer.available
    assert isinstance(position, After)
    return position.seen_ms


def now_ms(bench: Bench) -> int:
    return int(bench.clock.wall() * 1000)


@pytest.mark.parametrize("continuation", [5, 9, "0", None])
def test_records_tell_their_arrival(continuation: int | str | None) -> None:
    """Whether the position is the record's or the event's."""
    bench = Bench().feed(event_frame([record(4), BEHIND], continuation))

    assert seen(bench) == ARRIVED_MS - 7000


def test_an_event_without_records_tells_the_time() -> None:
    """Less what it is behind the tip."""
    bench = Bench().feed(event_frame([], 9, behind_ms=60_000))
    assert seen(bench) == now_ms(bench) - 60_000

    bench.clock.advance(5)
    bench.feed(event_frame([], 11))
    assert seen(bench) == now_ms(bench)


@pytest.mark.parametrize("continuation", [5, "0"], ids=["the same again", "one of no use"])
def test_a_position_that_stays_is_seen_anew(continuation: int | str) -> None:
    """Some servers never move the continuation of an idle shard. Its checkpoint stays young."""
    bench = Bench().feed(event_frame([BEHIND], 5))
    bench.clock.advance(3600)
    bench.feed(event_frame([], continuation))

    assert bench.buffer.available == After("5")
    assert seen(bench) == now_ms(bench)


def test_records_that_come_again_tell_nothing() -> None:
    """They lie before the position; how far the shard was read is not known anew."""
    bench = Bench().feed(event_frame([BEHIND], 5))
    bench.clock.advance(3600)
    bench.feed(event_frame([BEHIND], "0"))

    assert seen(bench) == ARRIVED_MS - 7000


def test_it_never_steps_back() -> None:
    """What was known once stays known, however the clocks of host and service differ."""
    bench = Bench()
    bench.clock.advance(100_000)
    bench.feed(event_frame([], 4))
    at = seen(bench)
    bench.feed(event_frame([BEHIND], 5)).feed(event_frame([], 9, behind_ms=2**60))

    assert seen(bench) == at


def test_a_senseless_lag_gives_a_position_that_can_be_stored() -> None:
    """What is written into a checkpoint must be readable."""
    bench = Bench().feed(event_frame([], 9, behind_ms=2**60))

    assert parse_position(str(bench.buffer.available)) == After("9")


def test_positions_that_name_no_record_stay_as_they_are() -> None:
    """There is nothing to add to them."""
    for position in (TRIM_HORIZON, AtTimestamp(ARRIVED_MS)):
        bench = Bench(position).feed(event_frame([], "0"))
        assert str(bench.buffer.available) == str(position)
