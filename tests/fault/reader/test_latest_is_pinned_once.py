"""``latest`` is looked up once, and what arrives from then on is read, whatever happens (F20)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import AtTimestamp
from kinesis_ds.testing import CloseStream, Disconnect, Fault, KinesisServer, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, STREAM, numbered, starts, subscribe_calls
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


def pinned_ms(query: MicroBatches) -> int:
    """The moment that ``latest`` became."""
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    position = next(iter(offset.streams.values())).shards[FIRST]
    assert isinstance(position, AtTimestamp)
    return position.ms


def test_records_between_the_pin_and_the_first_read_are_read(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F20: the query is killed as soon as its start is in the log, and started again and again."""
    kinesis.put(STREAM, b"too early")
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    pinned = pinned_ms(query)
    for n in (1, 2, 3):
        query.close()
        kinesis.put(STREAM, *numbered(n, n))
        query = start_query(kinesis, initialPosition="latest")
        assert pinned_ms(query) == pinned
    kinesis.put(STREAM, b"4")

    assert query.read_until(4) == numbered(1, 4)


def test_killed_before_the_pin_is_logged_the_next_start_decides(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F20: what was not written down does not bind; no record is half-way in."""
    query = start_query(kinesis, initialPosition="latest")
    query.coordinator.latest(query.last_offset())
    query.close()
    kinesis.put(STREAM, b"too early")
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    kinesis.put(STREAM, *numbered(1, 2))

    assert query.read_until(2) == numbered(1, 2)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Refuse("InternalFailure", status=500), times=2),
        Fault(Disconnect(), times=2),
        Fault(CloseStream(), event=0, times=2),
        Fault(CloseStream(), event=1, times=2),
    ],
    ids=["refused", "torn", "closed at once", "closed before the first event"],
)
def test_a_first_subscription_that_fails_moves_nothing(
    kinesis: KinesisServer, start_query: StartQuery, fault: Fault
) -> None:
    """F20: every attempt asks for the same moment; records put between the attempts are read."""
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    pinned = pinned_ms(query)
    kinesis.add_faults(fault)
    for n in (1, 2):
        query.run_until(lambda n=n: len(kinesis.struck()) >= n, f"attempt {n}")  # type: ignore[misc]
        kinesis.put(STREAM, *numbered(n, n))

    assert query.read_until(2) == numbered(1, 2)
    asked = starts(subscribe_calls(kinesis))
    assert asked == [f"AT_TIMESTAMP:{pinned / 1000}"] * 3


class WrongClock:
    """The double's clock, seen by a host whose own is wrong."""

    def __init__(self, kinesis: KinesisServer, ahead_s: float) -> None:
        self._clock = kinesis.clock
        self._ahead_s = ahead_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall(self) -> float:
        return self._clock.wall() + self._ahead_s


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_a_host_whose_clock_is_wrong_misses_nothing(
    kinesis: KinesisServer, tmp_path: Path, ahead_s: float
) -> None:
    """F20: a pin in the future would leave records out, one in the past read old ones."""
    kinesis.put(STREAM, b"old")
    options = {**kinesis.options(STREAM), "initialPosition": "latest"}
    with contextlib.closing(MicroBatches(options, tmp_path, WrongClock(kinesis, ahead_s))) as query:
        before = kinesis.clock.wall()
        assert query.step()
        assert before - 1 <= pinned_ms(query) / 1000 <= kinesis.clock.wall()
        kinesis.put(STREAM, *numbered(1, 3))

        assert query.read_until(3)[-3:] == numbered(1, 3)
