"""Sending: what is sent again, when, how often, and what the task is told in the end.

PutRecords is a scripted function; time is virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from kinesis_ds.errors import AccessError, InternalError, ThrottledError, TransientError, WriteError
from kinesis_ds.writer.batching import Record, Request
from kinesis_ds.writer.counters import SinkCounters
from kinesis_ds.writer.inflight import InFlightWindow
from kinesis_ds.writer.results import ShardWrites
from kinesis_ds.writer.sender import Sender
from tests.support.virtual_time import run_in_virtual_time

THROTTLED = {
    "ErrorCode": "ProvisionedThroughputExceededException",
    "ErrorMessage": "Rate exceeded for shard shardId-3",
}
FAR = 1e9


def stored(number: int, shard: str = "shardId-0") -> dict[str, str]:
    return {"ShardId": shard, "SequenceNumber": str(number)}


class Kinesis:
    """Answers PutRecords by a function of the names sent and of how many calls came before."""

    def __init__(self, answer: Callable[[list[str], int], Any]) -> None:
        self.answer = answer
        self.calls: list[tuple[float, list[str]]] = []
        self.under_way = self.most_under_way = 0

    async def put(self, entries: list[dict[str, Any]]) -> Any:
        names = [entry["Data"].decode() for entry in entries]
        self.calls.append((asyncio.get_running_loop().time(), names))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = self.answer(names, len(self.calls))
            if isinstance(answer, Coroutine):
                answer = await answer
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            raise answer
        return {"Records": answer}


def request(*names: str) -> Request:
    records = [
        Record({"Data": n.encode(), "PartitionKey": "k"}, 10, i) for i, n in enumerate(names)
    ]
    return Request(records, 10 * len(records))


class Outcome:
    """What a run left behind: the window, the counters, what was written, the error if any."""

    def __init__(
        self, kinesis: Kinesis, *, requests: int = 8, retry_timeout_s: float = 120
    ) -> None:
        self.kinesis = kinesis
        self.window = InFlightWindow(1000, 100_000, requests, label="stream s")
        self.counters = SinkCounters("s", 1000, 100_000)
        self.counters.opened(self.window)
        self.retry_timeout_s = retry_timeout_s
        self.written: tuple[ShardWrites, ...] = ()
        self.error: Exception | None = None
        self.ended_at = 0.0

    def send(self, *batches: Request) -> Outcome:
        async def run() -> None:
            sender = Sender(
                self.kinesis.put,
                self.window,
                label="stream s",
                retry_timeout_s=self.retry_timeout_s,
                counters=self.counters,
                uniform=lambda low, high: high,
            )
            for batch in batches:
                self.window.acquire(len(batch.records), batch.size, FAR)
                sender.send(batch)
            while sender.busy and self.error is None:
                await asyncio.sleep(0.01)
                try:
                    self.window.check()
                except Exception as exc:
                    self.error = exc
            self.ended_at = asyncio.get_running_loop().time()
            await sender.aclose()
            self.written = sender.written()

        run_in_virtual_time(run())
        return self


def test_only_what_failed_is_sent_again() -> None:
    """A record that is stored once is never sent a second time (F50)."""
    kinesis = Kinesis(
        lambda names, call: [THROTTLED if call == 1 and n in "bd" else stored(call) for n in names]
    )
    outcome = Outcome(kinesis).send(request("a", "b", "c", "d"))

    assert [names for _, names in kinesis.calls] == [["a", "b", "c", "d"], ["b", "d"]]
    assert outcome.written == (ShardWrites("shardId-0", "1", "2", 4, 40),)
    assert outcome.window.statistics().records == outcome.window.statistics().requests == 0


def test_retries_back_off_up_to_a_cap() -> None:
    """The longest pause doubles from 100 ms and stops at 5 s (F51)."""
    kinesis = Kinesis(lambda names, call: [THROTTLED if call < 9 else stored(1)])
    Outcome(kinesis).send(request("a"))

    times = [at for at, _ in kinesis.calls]
    pauses = [round(b - a, 3) for a, b in pairwise(times)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_fresh_records_pass_those_that_wait_for_a_retry() -> None:
    """With one request at a time, a request that is backing off does not hold up the next."""
    kinesis = Kinesis(lambda names, call: [THROTTLED if call == 1 else stored(call)])
    window_of_one = Outcome(kinesis, requests=1)

    async def run() -> None:
        sender = Sender(
            kinesis.put,
            window_of_one.window,
            label="s",
            retry_timeout_s=60,
            counters=window_of_one.counters,
            uniform=lambda low, high: high,
        )
        window_of_one.window.acquire(1, 10, FAR)
        sender.send(request("slow"))
        await asyncio.sleep(0.01)
        window_of_one.window.acquire(1, 10, 0.0)  # would raise if the slot were still held
        sender.send(request("fresh"))
        await asyncio.sleep(10)  # of virtual time
        assert not sender.busy

    run_in_virtual_time(run())
    assert [names for _, names in kinesis.calls] == [["slow"], ["fresh"], ["slow"]]


def test_a_retry_waits_for_a_slot_and_gets_the_next_one() -> None:
    """Retries keep the bound on requests, and are not starved."""

    async def slowly(names: list[str]) -> list[dict[str, str]]:
        await asyncio.sleep(1.0)
        return [stored(1) for _ in names]

    kinesis = Kinesis(lambda names, call: [THROTTLED] if call == 1 else slowly(names))
    outcome = Outcome(kinesis, requests=1)

    async def run() -> None:
        sender = Sender(
            kinesis.put,
            outcome.window,
            label="s",
            retry_timeout_s=60,
            counters=outcome.counters,
            uniform=lambda low, high: high,
        )
        for name in ("a", "b"):
            outcome.window.acquire(1, 10, 0.0)
            sender.send(request(name))
            await asyncio.sleep(0.05)
        await asyncio.sleep(10)  # of virtual time
        assert not sender.busy

    run_in_virtual_time(run())
    assert [(round(at, 2), names) for at, names in kinesis.calls] == [
        (0.0, ["a"]),
        (0.05, ["b"]),
        (1.05, ["a"]),  # due at 0.1, when b had the only slot
    ]
    assert kinesis.most_under_way == outcome.window.statistics().peak_requests == 1


def test_exhausted_retries_fail_the_task_and_say_why() -> None:
    """How many records, how long, the last reason with its shard, and what to do (F49)."""
    kinesis = Kinesis(lambda names, call: [stored(1) if n == "a" else THROTTLED for n in names])
    outcome = Outcome(kinesis, retry_timeout_s=30).send(request("a", "b", "c"))

    assert isinstance(outcome.error, WriteError)
    said = str(outcome.error)
    assert "2 records could not be written to stream s within 30s" in said
    assert "ProvisionedThroughputExceededException: Rate exceeded for shard shardId-3" in said
    assert "add shards" in said
    assert 20 < outcome.ended_at <= 30
    assert outcome.written == (ShardWrites("shardId-0", "1", "1", 1, 10),)


def test_a_slot_that_comes_too_late_leaves_the_reason_as_it_was() -> None:
    """The task is told of the throttling, not of a call that was never made."""

    async def slowly(names: list[str]) -> list[dict[str, str]]:
        await asyncio.sleep(12.0)
        return [stored(1) for _ in names]

    kinesis = Kinesis(lambda names, call: [THROTTLED] if names == ["a"] else slowly(names))
    outcome = Outcome(kinesis, requests=1, retry_timeout_s=20)

    async def run() -> None:
        sender = Sender(
            kinesis.put,
            outcome.window,
            label="s",
            retry_timeout_s=20,
            counters=outcome.counters,
            uniform=lambda low, high: high,
        )
        outcome.window.acquire(1, 10, 0.0)
        sender.send(request("a"))  # tried at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3; due again at 11.3
        await asyncio.sleep(10)
        outcome.window.acquire(1, 10, 0.0)
        sender.send(request("b"))  # has the only slot until 22
        with pytest.raises(WriteError, match=r"\(7 tries\).*Rate exceeded for shard shardId-3"):
            while sender.busy:
                await asyncio.sleep(1.0)
                outcome.window.check()
        await sender.aclose()

    run_in_virtual_time(run())
    assert [names for _, names in kinesis.calls] == [["a"]] * 7 + [["b"]]


def test_a_call_that_the_deadline_cuts_short_leaves_the_reason_as_it_was() -> None:
    """Two minutes of throttling are not told as 'no answer within 1s'."""

    async def slowly() -> list[dict[str, str]]:
        await asyncio.sleep(5.0)
        return [stored(1)]

    kinesis = Kinesis(lambda names, call: [THROTTLED] if call < 6 else slowly())
    outcome = Outcome(kinesis, retry_timeout_s=4).send(request("a"))

    assert isinstance(outcome.error, WriteError)
    assert "(6 tries). The last reason: Provisioned" in str(outcome.error)


def test_nothing_is_sent_again_after_closing() -> None:
    """Before Python 3.12, wait_for swallows a cancellation that comes together with the answer."""
    outcome = Outcome(Kinesis(lambda names, call: [THROTTLED]))

    async def run() -> None:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def put(entries: list[dict[str, Any]]) -> Any:
            outcome.kinesis.calls.append((0.0, []))
            return await answered

        sender = Sender(
            put, outcome.window, label="s", retry_timeout_s=60, counters=outcome.counters
        )
        outcome.window.acquire(1, 10, 0.0)
        sender.send(request("a"))
        await asyncio.sleep(0.01)
        answered.set_result({"Records": [THROTTLED]})
        await asyncio.sleep(0)  # the answer is there, and nobody has looked at it yet
        await sender.aclose()
        assert asyncio.get_running_loop().time() < 0.1
        assert not sender.busy

    run_in_virtual_time(run())
    assert len(outcome.kinesis.calls) == 1


def test_a_server_that_never_answers_fails_the_task_by_the_deadline() -> None:
    """Each call has a time-out, and all of them together the record's deadline."""

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    kinesis = Kinesis(lambda names, call: never())
    # The loop of virtual time finds nothing to wait for but the time-outs.
    outcome = Outcome(kinesis, retry_timeout_s=100).send(request("a"), request("b"))

    assert isinstance(outcome.error, WriteError)
    assert "got no answer" in str(outcome.error)
    assert outcome.ended_at <= 100.02
    assert kinesis.under_way == 0


def test_a_refused_record_fails_the_task_at_once() -> None:
    """Sending it again would be a poison loop (F54)."""
    refused = {"ErrorCode": "InvalidArgumentException", "ErrorMessage": "too big"}
    kinesis = Kinesis(lambda names, call: [refused if n == "b" else stored(1) for n in names])
    outcome = Outcome(kinesis).send(request("a", "b"))

    assert isinstance(outcome.error, WriteError)
    assert "refused 1 of 2 records" in str(outcome.error)
    assert "row 1 of the task: InvalidArgumentException: too big" in str(outcome.error)
    assert len(kinesis.calls) == 1


@pytest.mark.parametrize("error", [ThrottledError("busy"), TransientError("reset")])
def test_a_failed_call_that_may_pass_is_made_again_with_all_records(error: Exception) -> None:
    """Nothing is known of any record of it; the sink delivers at least once (F55)."""
    kinesis = Kinesis(lambda names, call: error if call == 1 else [stored(1)] * len(names))
    outcome = Outcome(kinesis).send(request("a", "b"))

    assert outcome.error is None
    assert [names for _, names in kinesis.calls] == [["a", "b"], ["a", "b"]]
    assert outcome.counters.snapshot()["retried_records"] == 2
    assert outcome.counters.snapshot()["throttled"] == (2 if error.args[0] == "busy" else 0)


def test_a_call_that_will_never_pass_fails_the_task_with_its_own_error() -> None:
    """A missing permission is not retried, and reaches the user as it is."""
    kinesis = Kinesis(lambda names, call: AccessError("no kinesis:PutRecords"))
    outcome = Outcome(kinesis).send(request("a"))

    assert isinstance(outcome.error, AccessError)
    assert len(kinesis.calls) == 1


def test_an_answer_of_another_length_fails_the_task() -> None:
    """Which record was stored is unknown, so none is counted (F53)."""
    kinesis = Kinesis(lambda names, call: [stored(1)])
    outcome = Outcome(kinesis).send(request("a", "b"))

    assert "sent 2 records and answered with 1 results" in str(outcome.error)
    assert outcome.written == ()


def test_a_bug_is_reported_as_one() -> None:
    """An exception nobody foresaw ends the task too; it never leaves records in flight for ever."""
    kinesis = Kinesis(lambda names, call: ValueError("oops"))
    outcome = Outcome(kinesis).send(request("a"))

    assert isinstance(outcome.error, InternalError)
    assert "ValueError: oops" in str(outcome.error)


def test_closing_cancels_what_is_under_way() -> None:
    """A task that was given up leaves no request behind, and sends no more (F58)."""

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    kinesis = Kinesis(lambda names, call: never())
    outcome = Outcome(kinesis)

    async def run() -> None:
        sender = Sender(
            kinesis.put, outcome.window, label="s", retry_timeout_s=60, counters=outcome.counters
        )
        sender.send(request("a"))
        await asyncio.sleep(0.01)
        assert kinesis.under_way == 1
        await sender.aclose()
        await sender.aclose()
        sender.send(request("b"))
        await asyncio.sleep(0)
        assert not sender.busy

    run_in_virtual_time(run())
    assert kinesis.under_way == 0
    assert len(kinesis.calls) == 1


def test_counters_add_up() -> None:
    """What the statistics file shows."""
    kinesis = Kinesis(lambda names, call: [THROTTLED] if call == 1 else [stored(1)])
    outcome = Outcome(kinesis).send(request("a"), request("b"))
    outcome.counters.closed(outcome.window)

    seen = outcome.counters.snapshot()
    assert seen["requests"] == 3
    assert seen["delivered_records"] == 2
    assert seen["delivered_bytes"] == 20
    assert seen["retried_records"] == seen["throttled"] == 1
    assert seen["in_flight_records"] == seen["in_flight_requests"] == seen["tasks"] == 0
    assert (seen["limit_records"], seen["limit_bytes"]) == (1000, 100_000)
