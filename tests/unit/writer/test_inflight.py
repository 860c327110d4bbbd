"""The bound on what is in flight: it blocks, it wakes, it fails, and it never lets more through."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from kinesis_ds.errors import InternalError, WriteError
from kinesis_ds.testing import ManualClock
from kinesis_ds.writer.inflight import InFlightWindow

SOON = 10.0  # patience that only a hang would exhaust


def in_thread(work: Callable[[], None]) -> Future[None]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)  # the future is what the test waits for
    return future


def window(records: int = 10, size: int = 100, requests: int = 3, **more: Any) -> InFlightWindow:
    return InFlightWindow(records, size, requests, label="stream s", **more)


def later() -> float:
    return time.monotonic() + SOON


def blocked(w: InFlightWindow) -> None:
    """Return when a thread waits in the window; that is seen in its counters."""
    give_up = later()
    while w.statistics().waits == 0:
        assert time.monotonic() < give_up
        threading.Event().wait(0.001)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [((10, 10), (1, 1)), ((1, 100), (1, 1)), ((6, 60), (5, 1)), ((6, 60), (1, 41))],
)
def test_a_full_window_blocks_until_something_is_released(
    held: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """Records and bytes are bounds each on its own, and a release wakes the waiting thread."""
    w = window()
    w.acquire(*held, SOON)
    waiting = in_thread(lambda: w.acquire(*wanted, SOON))
    blocked(w)
    assert not waiting.done()

    w.release(*held)

    waiting.result(SOON)
    assert (w.statistics().records, w.statistics().bytes) == wanted


def test_the_number_of_requests_is_a_bound_too() -> None:
    """Three requests under way: a fourth is told no, and rows wait for none of them."""
    w = window(requests=3)
    assert [w.try_acquire_request() for _ in range(4)] == [True, True, True, False]

    w.acquire(1, 1, 0.0)
    w.release(requests=1)
    assert w.try_acquire_request()


@pytest.mark.parametrize("step", [(1, 0), (0, 10)])
def test_a_full_window_is_entered_again_at_the_low_water_mark(step: tuple[int, int]) -> None:
    """Not at the first free place: nine tenths of the records, and of the bytes."""
    told: list[bool] = []
    w = window(30, 300, on_wait=told.append)
    w.acquire(30, 300, SOON)
    waiting = in_thread(lambda: w.acquire(1, 1, SOON))
    blocked(w)
    assert told == [True]

    w.release(3 - step[0], 30 - step[1])  # less than a tenth of one of them
    with pytest.raises(TimeoutError):
        waiting.result(0.05)
    w.release(*step)

    waiting.result(SOON)
    assert told == [True, False]


def test_a_wait_goes_on_for_as_long_as_something_is_acknowledged() -> None:
    """Patience is with a standstill: a stream that is slow but takes records is waited for."""
    clock = ManualClock()
    w = window(clock=clock)
    w.acquire(10, 10, 5.0)
    waiting = in_thread(lambda: w.acquire(5, 5, 5.0))
    blocked(w)
    for _ in range(5):
        clock.advance(4.0)
        w.release(1, 1)  # wakes the waiting thread, long after its patience began

    waiting.result(SOON)
    assert w.statistics().waited_s == 20.0


def test_more_than_the_bound_is_admitted_only_alone() -> None:
    """A single piece beyond the bound makes progress, and nothing travels beside it."""
    w = window(size=100)
    w.acquire(1, 1000, 0.0)

    with pytest.raises(WriteError):
        w.acquire(1, 1, 0.0)
    w.release(1, 1000)
    w.acquire(1, 1, 0.0)
    with pytest.raises(WriteError):
        w.acquire(1, 1000, 0.0)


def test_an_error_that_arrives_during_the_wait_ends_it_at_once() -> None:
    """The waiting thread raises it and has admitted nothing."""
    w = window()
    w.acquire(10, 10, SOON)
    waiting = in_thread(lambda: w.acquire(1, 1, SOON))
    blocked(w)

    w.fail(WriteError("refused"))

    with pytest.raises(WriteError, match="refused"):
        waiting.result(SOON)
    assert w.statistics().records == 10


def test_after_an_error_nothing_is_admitted_even_where_there_is_room() -> None:
    """The first error stays, for acquire, check and drain."""
    w = window()
    w.fail(WriteError("first"))
    w.fail(WriteError("second"))

    for refuse in (lambda: w.acquire(1, 1, SOON), w.check, lambda: w.drain(SOON)):
        with pytest.raises(WriteError, match="first"):
            refuse()


def test_drain_waits_for_the_last_record() -> None:
    """It returns when nothing is in flight, and not before."""
    w = window()
    w.acquire(2, 2, SOON)
    draining = in_thread(lambda: w.drain(SOON))
    w.release(1, 1)
    assert not draining.done()

    w.release(1, 1)

    draining.result(SOON)


def test_no_wait_outlives_its_patience() -> None:
    """With nobody left to release anything, acquire and drain say so."""
    w = window()
    w.acquire(10, 50, SOON)

    with pytest.raises(WriteError, match=r"stream s made no progress .* 10 records \(50 bytes\)"):
        w.acquire(1, 1, 0.02)
    with pytest.raises(WriteError, match="no progress"):
        w.drain(0.02)


def test_a_long_wait_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """One wait is one warning, however often the thread wakes during it."""
    w = window(slow_wait_s=0.01)
    w.acquire(10, 10, SOON)
    waiting = in_thread(lambda: w.acquire(5, 5, SOON))
    blocked(w)
    with caplog.at_level(logging.WARNING):
        give_up = later()
        while not caplog.records:
            assert time.monotonic() < give_up
            w.release()  # wakes the waiting thread without making room
        for _ in range(20):
            w.release()
        w.release(10, 10)
        waiting.result(SOON)

    (warning,) = caplog.records
    assert "in_flight_records=10" in warning.getMessage()
    assert "more shards" in warning.getMessage()


def test_statistics_show_limits_peaks_and_waits() -> None:
    """They are what an operator needs to size the bounds."""
    w = window()
    w.acquire(4, 40, SOON)
    w.acquire(3, 30, SOON)
    for _ in range(2):
        w.try_acquire_request()
    w.release(requests=1)
    w.release(4, 40)
    with pytest.raises(WriteError):
        w.acquire(8, 8, 0.01)

    seen = w.statistics()
    assert (seen.records, seen.bytes, seen.requests) == (3, 30, 1)
    assert (seen.peak_records, seen.peak_bytes, seen.peak_requests) == (7, 70, 2)
    assert (seen.limit_records, seen.limit_bytes, seen.limit_requests) == (10, 100, 3)
    assert seen.waits == 1
    assert seen.waited_s >= 0.01
    assert repr(w) == "<InFlightWindow stream s: 3/10 records, 30/100 bytes, 1/3 requests>"


def test_releasing_what_was_never_admitted_is_an_internal_error() -> None:
    """A wrong account must not pass for a bound."""
    with pytest.raises(InternalError, match="more was released than admitted"):
        window().release(records=1)


@pytest.mark.parametrize("bounds", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_bounds_are_positive(bounds: tuple[int, int, int]) -> None:
    """A window that admits nothing would block for ever."""
    with pytest.raises(ValueError, match=">= 1"):
        InFlightWindow(*bounds, label="")


def test_an_interrupt_leaves_no_lock_held() -> None:
    """Ctrl-C may come when a lock was taken and nobody is there yet to give it back."""
    w = window()

    def strike(frame: FrameType, event: str, _: Any) -> Any:
        entered = frame.f_code.co_name == "__enter__" and frame.f_code.co_filename.endswith(
            "threading.py"
        )
        if entered and event == "return":
            raise KeyboardInterrupt
        return strike

    before = sys.gettrace()
    sys.settrace(strike)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            w.acquire(1, 1, SOON)
            w.release(1, 1)
    finally:
        sys.settrace(before)

    in_thread(w.check).result(SOON)
