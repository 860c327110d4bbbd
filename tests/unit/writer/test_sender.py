"""Sending: what is sent again, when, how often, and what the task is told in the end.

PutRecords is a scripted function; time is virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from typing import Any

import pytest

from kinesis_ds.errors import AccessError, InternalError, ThrottledError, TransientError, WriteError
from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.plan.shards import Shard
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.writer.aggregating import user_records
from kinesis_ds.writer.counters import SinkCounters
from kinesis_ds.writer.inflight import InFlightWindow
from kinesis_ds.writer.prediction import Prediction
from kinesis_ds.writer.records import Block, Record, Request, plain
from kinesis_ds.writer.results import ShardWrites
from kinesis_ds.writer.rows import Piece
from kinesis_ds.writer.sender import Sender
from kinesis_ds.writer.target_streams import TargetStream
from tests.support.virtual_time import run_in_virtual_time

THROTTLED = {
    "ErrorCode": "ProvisionedThroughputExceededException",
    "ErrorMessage": "Rate exceeded for shard shardId-3",
}
STREAM = StreamId("s")
HALF = (MAX_HASH_KEY + 1) // 2
ONE = {"shardId-0": Shard("shardId-0")}
TWO = {
    "shardId-1": Shard("shardId-1", hash_range=(0, HALF - 1)),
    "shardId-2": Shard("shardId-2", hash_range=(HALF, MAX_HASH_KEY)),
}


def stored(number: int, shard: str = "shardId-0") -> dict[str, str]:
    return {"ShardId": shard, "SequenceNumber": str(number)}


class Kinesis:
    """Answers PutRecords by a function of the names sent and of how many calls came before."""

    def __init__(
        self,
        answer: Callable[[list[str], int], Any],
        shards: Mapping[str, Shard] = ONE,
        then: Mapping[str, Shard] | Exception | None = None,
    ) -> None:
        self.answer = answer
        target = TargetStream(MIB, distributes=False, prediction=Prediction(shards))
        self.opened = {STREAM: target}
        self.then = then
        self.looks = 0
        self.calls: list[tuple[float, list[str]]] = []
        self.sent: list[Record] = []
        self.under_way = self.most_under_way = 0

    async def update_prediction(self, stream: StreamId) -> Prediction:
        self.looks += 1
        if isinstance(self.then, Exception):
            raise self.then
        return Prediction(self.then)

    async def put(self, stream: StreamId, request: Request) -> Any:
        records = request.records
        self.sent += records
        names = [record.data.decode(errors="replace") for record in records]
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


def piece(*names: str, first: int = 0, hash_keys: tuple[str, ...] = ()) -> Piece:
    """Rows of ten bytes each, whose data is their name."""
    records = [
        plain(name.encode(), "k", hash_keys[i] if hash_keys else None, 10, first + i)
        for i, name in enumerate(names)
    ]
    return Piece(STREAM, Block.of(records))


class Outcome:
    """All that a run left behind: the window, the counters, what was written, the error if any."""

    def __init__(self, kinesis: Kinesis, *, requests: int = 8, **options: str) -> None:
        self.kinesis = kinesis
        self.window = InFlightWindow(1000, 100_000, requests, label="stream s")
        self.counters = SinkCounters("s", 1000, 100_000)
        self.counters.opened(self.window)
        self.options = parse_write_options({"streamName": "s", "linger": "0s", **options})
        self.written: tuple[ShardWrites, ...] = ()
        self.error: Exception | None = None
        self.ended_at = 0.0

    def sender(self) -> Sender:
        return Sender(
            self.kinesis,
            self.window,
            self.options,
            self.counters,
            uniform=lambda low, high: high,
        )

    def add(self, sender: Sender, rows: Piece) -> None:
        self.window.acquire(len(rows.block), rows.block.size, 0.0)
        sender.add(rows)

    async def delivered(self) -> None:
        """Return when nothing is in flight, or raise what ended the task."""
        while self.window.statistics().records:
            await asyncio.sleep(0.01)
            self.window.check()

    def send(self, *pieces: Piece) -> Outcome:
        """One request for each piece, and then no more rows."""

        async def run() -> None:
            sender = self.sender()
            for rows in pieces:
                self.add(sender, rows)
            sender.flush()
            try:
                await self.delivered()
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
    outcome = Outcome(kinesis).send(piece("a", "b", "c", "d"))

    assert [names for _, names in kinesis.calls] == [["a", "b", "c", "d"], ["b", "d"]]
    assert outcome.written == (ShardWrites("s", "shardId-0", "1", "2", 4, 40),)
    assert outcome.window.statistics().records == outcome.window.statistics().requests == 0


def test_retries_back_off_up_to_a_cap() -> None:
    """The longest pause doubles from 100 ms and stops at 5 s (F51)."""
    kinesis = Kinesis(lambda names, call: [THROTTLED if call < 9 else stored(1)])
    Outcome(kinesis).send(piece("a"))

    times = [at for at, _ in kinesis.calls]
    pauses = [round(b - a, 2) for a, b in pairwise(times)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_fresh_records_of_other_shards_pass_those_that_wait_for_a_retry() -> None:
    """With one request at a time, a shard that is paused does not hold up the other."""
    kinesis = Kinesis(lambda names, call: [THROTTLED if call == 1 else stored(call)], TWO)
    outcome = Outcome(kinesis, requests=1)

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("slow", hash_keys=("0",)))
        await asyncio.sleep(0.01)
        outcome.add(sender, piece("fresh", hash_keys=(str(HALF),)))
        await outcome.delivered()
        await sender.aclose()

    run_in_virtual_time(run())
    assert [names for _, names in kinesis.calls] == [["slow"], ["fresh"], ["slow"]]
    assert kinesis.most_under_way == outcome.window.statistics().peak_requests == 1


def test_exhausted_retries_fail_the_task_and_say_why() -> None:
    """How many records, how long, the last reason with its shard, and what to do (F49)."""
    kinesis = Kinesis(lambda names, call: [stored(1) if n == "a" else THROTTLED for n in names])
    outcome = Outcome(kinesis, retryTimeout="30s").send(piece("a", "b", "c"))

    assert isinstance(outcome.error, WriteError)
    said = str(outcome.error)
    assert "2 records could not be written to stream s within 30s" in said
    assert "ProvisionedThroughputExceededException: Rate exceeded for shard shardId-3" in said
    assert "add shards" in said
    assert 20 < outcome.ended_at <= 35  # told when they would be sent again
    assert outcome.written == (ShardWrites("s", "shardId-0", "1", "1", 1, 10),)


def test_a_call_that_the_deadline_cuts_short_leaves_the_reason_as_it_was() -> None:
    """Two minutes of throttling are not told as 'no answer within 1s'."""

    async def slowly() -> list[dict[str, str]]:
        await asyncio.sleep(5.0)
        return [stored(1)]

    kinesis = Kinesis(lambda names, call: [THROTTLED] if call < 6 else slowly())
    outcome = Outcome(kinesis, retryTimeout="4s").send(piece("a"))

    assert isinstance(outcome.error, WriteError)
    assert "(6 tries). The last reason: Provisioned" in str(outcome.error)


def test_nothing_is_sent_again_after_closing() -> None:
    """Before Python 3.12, wait_for swallows a cancellation that comes together with the answer."""

    async def run() -> None:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def wait(names: list[str]) -> Any:
            return await answered

        outcome = Outcome(Kinesis(lambda names, call: wait(names)))
        sender = outcome.sender()
        outcome.add(sender, piece("a"))
        await asyncio.sleep(0.01)
        answered.set_result([THROTTLED])
        await asyncio.sleep(0)  # the answer is there, and nobody has looked at it yet
        await sender.aclose()
        await asyncio.sleep(60)
        assert len(outcome.kinesis.calls) == 1

    run_in_virtual_time(run())


def test_a_server_that_never_answers_fails_the_task_by_the_deadline() -> None:
    """Each call has a time-out, and all of them together the record's deadline."""

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    kinesis = Kinesis(lambda names, call: never())
    # The loop of virtual time finds nothing to wait for but the time-outs.
    outcome = Outcome(kinesis, retryTimeout="100s").send(piece("a"), piece("b"))

    assert isinstance(outcome.error, WriteError)
    assert "got no answer" in str(outcome.error)
    assert outcome.ended_at <= 105
    assert kinesis.under_way == 0


def test_a_refused_record_fails_the_task_at_once() -> None:
    """Sending it again would be a poison loop (F54)."""
    refused = {"ErrorCode": "InvalidArgumentException", "ErrorMessage": "too big"}
    kinesis = Kinesis(lambda names, call: [refused if n == "b" else stored(1) for n in names])
    outcome = Outcome(kinesis).send(piece("a", "b"))

    assert isinstance(outcome.error, WriteError)
    assert "refused 1 of 2 records" in str(outcome.error)
    assert "row 1 of the task: InvalidArgumentException: too big" in str(outcome.error)
    assert len(kinesis.calls) == 1


@pytest.mark.parametrize("error", [ThrottledError("busy"), TransientError("reset")])
def test_a_failed_call_that_may_pass_is_made_again_with_all_records(error: Exception) -> None:
    """Nothing is known of any record of it; the sink delivers at least once (F55)."""
    kinesis = Kinesis(lambda names, call: error if call == 1 else [stored(1)] * len(names))
    outcome = Outcome(kinesis).send(piece("a", "b"))

    assert outcome.error is None
    assert [names for _, names in kinesis.calls] == [["a", "b"], ["a", "b"]]
    assert outcome.counters.snapshot()["retried_records"] == 2
    assert outcome.counters.snapshot()["throttled"] == (2 if error.args[0] == "busy" else 0)


def test_a_call_that_will_never_pass_fails_the_task_with_its_own_error() -> None:
    """A missing permission is not retried, and reaches the user as it is."""
    kinesis = Kinesis(lambda names, call: AccessError("no kinesis:PutRecords"))
    outcome = Outcome(kinesis).send(piece("a"))

    assert isinstance(outcome.error, AccessError)
    assert len(kinesis.calls) == 1


def test_nothing_more_is_sent_after_a_failure() -> None:
    """The task may hand over more rows before it learns of it (F45)."""
    kinesis = Kinesis(lambda names, call: AccessError("no kinesis:PutRecords"))
    outcome = Outcome(kinesis)

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("a"))
        await asyncio.sleep(1)
        sender.add(piece("b", first=1))
        sender.flush()
        await asyncio.sleep(60)
        await sender.aclose()

    run_in_virtual_time(run())
    assert [names for _, names in kinesis.calls] == [["a"]]


def test_an_answer_of_another_length_fails_the_task() -> None:
    """Which record was stored is unknown, so none is counted (F53)."""
    kinesis = Kinesis(lambda names, call: [stored(1)])
    outcome = Outcome(kinesis).send(piece("a", "b"))

    assert "sent 2 records and answered with 1 results" in str(outcome.error)
    assert outcome.written == ()


def test_a_bug_is_reported_as_one() -> None:
    """An exception nobody foresaw ends the task too; it never leaves records in flight for ever."""
    kinesis = Kinesis(lambda names, call: ValueError("oops"))
    outcome = Outcome(kinesis).send(piece("a"))

    assert isinstance(outcome.error, InternalError)
    assert "ValueError: oops" in str(outcome.error)


def test_closing_cancels_what_is_under_way() -> None:
    """A task that was given up leaves no request behind, and sends no more (F58)."""

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    kinesis = Kinesis(lambda names, call: never())
    outcome = Outcome(kinesis)

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("a"))
        await asyncio.sleep(0.01)
        assert kinesis.under_way == 1
        await sender.aclose()
        await sender.aclose()
        outcome.add(sender, piece("b"))
        await asyncio.sleep(60)

    run_in_virtual_time(run())
    assert kinesis.under_way == 0
    assert len(kinesis.calls) == 1


def test_rows_wait_for_others_of_their_shard_and_no_longer_than_linger() -> None:
    """Pieces of one shard travel together; the end of the wait sends what there is."""
    kinesis = Kinesis(lambda names, call: [stored(call)] * len(names))
    outcome = Outcome(kinesis, linger="200ms", batchMaxRecords="3")

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("a", "b"))
        await asyncio.sleep(0.1)
        outcome.add(sender, piece("c", "d", first=2))  # fills a request; d is left
        await asyncio.sleep(0.15)
        outcome.add(sender, piece("e", first=4))
        await outcome.delivered()
        await sender.aclose()

    run_in_virtual_time(run())
    assert [(round(at, 2), names) for at, names in kinesis.calls] == [
        (0.1, ["a", "b", "c"]),
        (0.3, ["d", "e"]),
    ]


def test_nothing_lingers_while_the_task_waits_for_room() -> None:
    """A full window waits for answers, so there must be something to be answered."""
    kinesis = Kinesis(lambda names, call: [stored(call)] * len(names))
    outcome = Outcome(kinesis, linger="10s")

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("a"))
        await asyncio.sleep(0.1)
        sender.hurry(True)
        await outcome.delivered()
        sender.hurry(False)
        outcome.add(sender, piece("b", first=1))
        await outcome.delivered()
        await sender.aclose()

    run_in_virtual_time(run())
    assert [(round(at, 1), names) for at, names in kinesis.calls] == [(0.1, ["a"]), (10.1, ["b"])]


def test_each_shard_gets_requests_of_its_own() -> None:
    """Full ones; what is left over travels together."""
    kinesis = Kinesis(lambda names, call: [stored(call, f"shardId-{n[0]}") for n in names], TWO)
    outcome = Outcome(kinesis, batchMaxRecords="2").send(
        piece("1a", "2a", "1b", "2b", "1c", "2c", hash_keys=("0", str(HALF)) * 3)
    )

    assert sorted(names for _, names in kinesis.calls) == [["1a", "1b"], ["1c", "2c"], ["2a", "2b"]]
    assert outcome.written == (
        ShardWrites("s", "shardId-1", "1", "3", 3, 30),
        ShardWrites("s", "shardId-2", "2", "3", 3, 30),
    )


def test_a_surprise_makes_the_sender_look_at_the_shards() -> None:
    """Once a second at most, also while they cannot be listed."""
    kinesis = Kinesis(
        lambda names, call: [stored(call, "shardId-1")] * len(names), then=TransientError("busy")
    )
    outcome = Outcome(kinesis)

    async def run() -> None:
        sender = outcome.sender()
        for i in range(30):
            outcome.add(sender, piece(str(i), first=i))
            await asyncio.sleep(0.1)
            if i == 20:
                kinesis.then = TWO
        await outcome.delivered()
        await sender.aclose()

    run_in_virtual_time(run())
    assert 2 <= kinesis.looks <= 4
    assert outcome.error is None


def test_shards_that_may_no_longer_be_listed_end_the_task() -> None:
    """It would never learn where its records go."""
    kinesis = Kinesis(
        lambda names, call: [stored(call, "shardId-1")] * len(names), then=AccessError("no")
    )
    outcome = Outcome(kinesis)

    async def run() -> None:
        sender = outcome.sender()
        outcome.add(sender, piece("a"))
        await asyncio.sleep(1)
        with pytest.raises(AccessError):
            outcome.window.check()
        await sender.aclose()

    run_in_virtual_time(run())


def test_rows_of_an_aggregate_that_landed_elsewhere_are_sent_again() -> None:
    """Those, and only those, which do not belong to the shard it landed on (F59)."""
    kinesis = Kinesis(
        lambda names, call: [stored(call, f"shardId-{call}") for _ in names], then=TWO
    )
    outcome = Outcome(kinesis, aggregation="true").send(
        # Nine bytes, and one of the key.
        piece("a" * 9, "b" * 9, "c" * 9, "d" * 9, hash_keys=("0", str(HALF)) * 2)
    )

    assert outcome.error is None
    assert [[u.data for u in user_records(record)] for record in kinesis.sent] == [
        [b"a" * 9, b"b" * 9, b"c" * 9, b"d" * 9],
        [b"b" * 9, b"d" * 9],
    ]
    assert outcome.written == (
        ShardWrites("s", "shardId-1", "1", "1", 2, 20),
        ShardWrites("s", "shardId-2", "2", "2", 2, 20),
    )
    counters = outcome.counters.snapshot()
    assert (counters["misplaced_records"], counters["delivered_records"]) == (2, 4)
    assert (counters["stored_records"], counters["delivered_bytes"]) == (2, 40)
    assert outcome.window.statistics().records == outcome.window.statistics().bytes == 0


def test_counters_add_up() -> None:
    """The statistics file shows these."""
    kinesis = Kinesis(lambda names, call: [THROTTLED] if call == 1 else [stored(1)])
    outcome = Outcome(kinesis).send(piece("a"), piece("b"))
    outcome.counters.closed(outcome.window)

    seen = outcome.counters.snapshot()
    assert seen["requests"] == 3
    assert seen["delivered_records"] == 2
    assert seen["delivered_bytes"] == 20
    assert seen["retried_records"] == seen["throttled"] == 1
    assert seen["in_flight_records"] == seen["in_flight_requests"] == seen["tasks"] == 0
    assert (seen["limit_records"], seen["limit_bytes"]) == (1000, 100_000)
