"""Executors: order within one, and no starvation between them."""

from __future__ import annotations

import logging
import threading

import pytest

from kinesis_ds.agent.executor import DecodingThreads
from tests.support.polling import eventually


def test_work_of_an_executor_runs_in_its_order() -> None:
    """Many threads, one order."""
    threads = DecodingThreads(4)
    executor, done = threads.executor(), []
    for n in range(500):
        executor.submit(lambda n=n: done.append(n))  # type: ignore[misc]
    eventually(lambda: len(done) == 500)
    threads.close()

    assert done == list(range(500))


def test_two_pieces_of_an_executor_never_run_at_once() -> None:
    """A piece sees no other piece of its executor under way, whatever thread it runs on."""
    threads = DecodingThreads(4)
    executor, running, seen = threads.executor(), threading.Lock(), []

    def piece() -> None:
        alone = running.acquire(blocking=False)
        seen.append((alone, threading.get_ident()))
        if alone:
            running.release()

    givers = [
        threading.Thread(
            target=lambda n=n: [executor.submit(piece, at_once=n == 0) for _ in range(200)]
        )
        for n in range(4)
    ]
    for thread in givers:
        thread.start()
    for thread in givers:
        thread.join(10)
    eventually(lambda: len(seen) == 800)
    threads.close()

    assert all(alone for alone, _ in seen)


def test_lanes_run_side_by_side() -> None:
    """An executor that is stuck holds its own thread only."""
    threads = DecodingThreads(2)
    stuck, free = threads.executor(), threads.executor()
    release, done = threading.Event(), threading.Event()
    stuck.submit(lambda: release.wait(20))  # type: ignore[arg-type, return-value]
    free.submit(done.set)

    assert done.wait(10)
    release.set()
    threads.close()


def test_a_busy_lane_gives_its_thread_back_after_each_piece() -> None:
    """With a single thread, another executor's piece runs before the rest of a long queue."""
    threads = DecodingThreads(1)
    busy, other = threads.executor(), threads.executor()
    gate, order = threading.Event(), []
    busy.submit(lambda: gate.wait(20))  # type: ignore[arg-type, return-value]
    for n in range(100):
        busy.submit(lambda n=n: order.append(n))  # type: ignore[misc]
    other.submit(lambda: order.append("other"))  # type: ignore[arg-type]
    gate.set()
    eventually(lambda: len(order) == 101)
    threads.close()

    assert order.index("other") <= 2


def test_a_small_piece_is_done_by_who_brings_it_where_nothing_is_before_it() -> None:
    """Behind another piece it waits its turn, and what comes while it is done waits for it."""
    threads = DecodingThreads(2)
    executor, gate, order = threads.executor(), threading.Event(), []
    executor.submit(lambda: order.append(threading.get_ident()), at_once=True)
    assert order == [threading.get_ident()]

    executor.submit(lambda: gate.wait(20))  # type: ignore[arg-type, return-value]
    executor.submit(lambda: order.append(1), at_once=True)
    assert len(order) == 1
    gate.set()
    eventually(lambda: len(order) == 2)

    def bring_another() -> None:
        executor.submit(lambda: order.append(3), at_once=True)
        order.append(2)

    eventually(lambda: not executor._scheduled)
    executor.submit(bring_another, at_once=True)
    eventually(lambda: len(order) == 4)
    threads.close()

    assert order[1:] == [1, 2, 3]


@pytest.mark.parametrize("at_once", [False, True])
def test_behind_a_piece_that_raises_nothing_more_is_done(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes behind it would leave a gap. The failure is told once, and logged for a report."""
    threads = DecodingThreads(1)
    executor, other = threads.executor(), threads.executor()
    failures: list[Exception] = []
    done, over = [], threading.Event()
    executor.failed = failures.append
    with caplog.at_level(logging.ERROR):
        executor.submit(lambda: 1 // 0, at_once=at_once)  # type: ignore[arg-type, return-value]
        for late in (False, True):
            executor.submit(lambda: done.append("late"), at_once=late)
        other.submit(over.set)
        assert over.wait(10)
    threads.close()

    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    assert done == []
    assert "please report this" in caplog.text


def test_submitting_after_close_is_without_effect() -> None:
    """A late message at shutdown is dropped, and close waits for what is under way."""
    threads = DecodingThreads(1)
    executor, order = threads.executor(), []
    started = threading.Event()

    def piece() -> None:
        started.set()
        order.append("done")

    executor.submit(piece)
    assert started.wait(10)
    threads.close()
    assert order == ["done"]
    executor.submit(lambda: order.append("late"))
    threads.executor().submit(lambda: order.append("late"))
    assert order == ["done"]
