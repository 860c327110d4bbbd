"""Clients, threads and loops end with what they were for (F58)."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.limits import MIB
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.testing import AnswerWith, Fault, NoAnswer, Refuse
from tests.support.fast import fast_network
from tests.support.polling import eventually
from tests.support.sinks import STREAM, Sink, put_fault, rows

pytestmark = pytest.mark.fault


def sockets() -> int:
    """Those that this process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except OSError:  # it was closed meanwhile
            continue
    return found


def broken() -> Iterator[Any]:
    yield from rows(range(500))
    raise RuntimeError("upstream failed")


FAILURES: dict[str, tuple[Fault | None, Callable[[], Any]]] = {
    "refused": (put_fault(Refuse("AccessDeniedException")), lambda: range(500)),
    "senseless": (put_fault(AnswerWith(b"[]")), lambda: range(500)),
    "exhausted": (put_fault(NoAnswer(), times=None), lambda: range(500)),
    "first contact": (
        Fault(Refuse("AccessDeniedException"), operation="DescribeStreamSummary"),
        lambda: range(500),
    ),
    "bad row": (None, lambda: rows([1, 2], size=MIB + 1)),
    "iterator": (None, broken),
}


def test_a_failed_task_leaves_nothing_open() -> None:
    """F58: whatever it failed of, its client, thread, loop and sockets are gone."""
    with Sink(relayed=True) as sink:
        before = sockets()
        for number, (fault, items) in enumerate(FAILURES.values(), 1):
            sink.kinesis.clear_faults()
            if fault is not None:
                sink.kinesis.add_faults(fault)
            with pytest.raises((KinesisConnectorError, RuntimeError)):
                outcome = sink.write(items(), retryTimeout="3s")
                raise outcome.error or AssertionError("it did not fail")

            assert len(sink.loops) == number
            assert sink.loops[-1].is_closed()
            assert sink.threads() == []
            eventually(lambda: sink.relay.connections == 0, "its connections are closed")
        eventually(lambda: sockets() <= before, "its sockets are closed")


def test_a_failed_task_lets_go_of_its_rows_at_once() -> None:
    """F58: rows may come from what has connections of its own, as this source's tasks have. They
    end with the task, not with the next garbage collection (chaos seed 70029).
    """
    ended = []

    def source() -> Iterator[Any]:
        try:
            yield from rows(range(5000))
        finally:
            ended.append(True)

    with Sink(put_fault(Refuse("AccessDeniedException"))) as sink:
        gc.collect()
        gc.disable()
        try:
            failed = sink.write(source(), maxInFlightRecords="500").error is not None
            assert failed
            assert ended == [True]
        finally:
            gc.enable()


def test_tasks_that_succeed_share_one_client() -> None:
    """F58: ten tasks, one look at the stream; the end of the process closes the connections."""
    with Sink(relayed=True) as sink:
        for at in range(10):
            assert sink.write(range(at * 10, at * 10 + 10)).records == 10

        assert len(sink.loops) == len(sink.threads()) == 1
        # Of control calls one, and of PutRecords one, as those come one after the other.
        assert sink.relay.accepted == sink.relay.connections == 2
        assert len(sink.calls("DescribeStreamSummary")) == 1
        sink.close_services()
        eventually(lambda: sink.relay.connections == 0, "its connections are closed")
        assert sink.threads() == []


def test_a_stream_made_anew_is_written_to_by_a_warm_client() -> None:
    """F58: what the client keeps is no handle that could outlive the stream."""
    with Sink() as sink:
        assert sink.write(range(10)).records == 10
        sink.kinesis.call("DeleteStream", StreamName=STREAM)
        sink.kinesis.wait_for(lambda: not sink.kinesis.call("ListStreams")["StreamNames"])
        sink.kinesis.create_stream(STREAM, 2)

        outcome = sink.write(range(10, 20))
        sink.assert_each_once(range(10, 20), outcome)
        assert len(sink.loops) == 1


def test_source_and_sink_do_not_wait_for_each_other() -> None:
    """F58: each has a loop of its own; while one is stuck, the other goes on, and both close."""
    with Sink() as sink:
        options = sink.writer()._options
        network = fast_network(options.aws)
        try:
            sink.write(range(10))

            def look() -> str:
                work = describe_stream(network.connection, StreamId(STREAM))
                return network.run(work, 20.0, "looking").status

            with _stuck(sink.loops[0].call_soon_threadsafe):
                assert look() == "ACTIVE"
            with _stuck(network.post):
                assert sink.write(range(10, 20)).records == 10
            sink.close_services()
            assert look() == "ACTIVE"
        finally:
            network.close()


class _stuck:  # noqa: N801
    """Inside the block, the loop does nothing."""

    def __init__(self, post: Callable[..., Any]) -> None:
        self._post = post
        self._go_on = threading.Event()

    def __enter__(self) -> None:
        begun = threading.Event()
        self._post(begun.set)
        self._post(self._go_on.wait, 60.0)
        assert begun.wait(20.0)

    def __exit__(self, *exc_info: object) -> None:
        self._go_on.set()
