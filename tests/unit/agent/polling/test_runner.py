"""The polling runner: calls, the room of their answers, and what the executor makes of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.context import AgentOptions, ShardContext
from kinesis_ds.agent.executor import ShardExecutor
from kinesis_ds.agent.machine import ShardClosed, Stop
from kinesis_ds.agent.polling import runner as poller_module
from kinesis_ds.agent.polling.machine import Polling
from kinesis_ds.agent.polling.runner import PollingRunner
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.aws.connection import Answer
from kinesis_ds.aws.errors import service_error
from kinesis_ds.errors import AccessError, InternalError, KinesisConnectorError
from kinesis_ds.limits import KIB, MIB
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.shards import Shard
from kinesis_ds.wire.decode import sequence_numbers
from tests.support.builders import ARRIVED_S, record
from tests.support.virtual_time import run_in_virtual_time

ARRIVED_MS = int(ARRIVED_S * 1000)
# What the service's clock shows, a while after the records arrived.
SERVED_MS = ARRIVED_MS + 50_000
EXPIRED = service_error("GetRecords", "s", "ExpiredIteratorException", "old")
THROTTLED = service_error("GetRecords", "s", "ProvisionedThroughputExceededException", "")
DENIED = service_error("GetRecords", "s", "AccessDeniedException", "")

Given = bytes | KinesisConnectorError


def page(
    *numbers: int | str,
    behind: int = 0,
    last: bool = False,
    children: bool = False,
    data: bytes = b"data",
    arrived_s: float = ARRIVED_S,
) -> bytes:
    """One answer of GetRecords."""
    raw: dict[str, Any] = {
        "Records": [record(n, data, arrived_s=arrived_s) for n in numbers],
        "MillisBehindLatest": behind,
    }
    if not last:
        raw["NextShardIterator"] = "next"
    if children:
        raw["ChildShards"] = [{"ShardId": "c", "ParentShards": [], "HashKeyRange": {}}]
    return orjson.dumps(raw)


class LoopClock:
    """The time of the running loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return SERVED_MS / 1000 + self.monotonic()


class Service:
    """Stands for a connection: gives the answers of a list, and keeps what was asked."""

    def __init__(self, *answers: Given, tells_length: bool = True, tells_time: bool = True) -> None:
        self.answers = list(answers)
        self.starts: list[str] = []
        self.iterators: list[str] = []
        self.limits: list[int] = []
        self.under_way = 0
        self.most_under_way = 0
        self.abandoned = 0
        self.hanging = 0  # calls that nothing was left to answer with
        self._tells_length = tells_length
        self._served_ms = SERVED_MS if tells_time else None

    async def call(self, operation: str, body: dict[str, Any], label: str) -> dict[str, Any]:
        assert operation == "GetShardIterator"
        self.starts.append(
            ":".join(
                [body["ShardIteratorType"], *filter(None, [body.get("StartingSequenceNumber")])]
            )
        )
        return {"ShardIterator": f"fresh {len(self.starts)}"}

    @contextlib.asynccontextmanager
    async def answer(
        self, operation: str, body: dict[str, Any], label: str
    ) -> AsyncIterator[Answer]:
        assert operation == "GetRecords"
        self.iterators.append(body["ShardIterator"])
        self.limits.append(body["Limit"])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if not self.answers:
                self.hanging += 1
                await asyncio.get_running_loop().create_future()
            given = self.answers.pop(0)
            await asyncio.sleep(0.01)
            if isinstance(given, KinesisConnectorError):
                raise given
            left = [given[i : i + 1000] for i in range(0, len(given), 1000)]

            async def chunks() -> AsyncIterator[bytes]:
                while left:
                    yield left.pop(0)

            length = len(given) if self._tells_length else None
            yield Answer(length, self._served_ms, chunks())
            self.abandoned += bool(left)
        finally:
            self.under_way -= 1


class Network:
    """A network loop that is the running one."""

    def __init__(self, connection: Service) -> None:
        self.connection = connection

    def post(self, callback: Callable[..., object], *args: object) -> None:
        asyncio.get_running_loop().call_soon(callback, *args)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=name)


class InlineExecutor(ShardExecutor):
    """Decodes at once, unless it is told to wait."""

    def __init__(self) -> None:
        super().__init__(ThreadPoolExecutor(1))
        self.waiting: list[Callable[[], None]] | None = None

    def submit(self, work: Callable[[], None], *, at_once: bool = True) -> None:
        if self.waiting is None:
            super().submit(work, at_once=at_once)
        else:
            self.waiting.append(work)


async def until(condition: Callable[[], object]) -> None:
    """Let time pass until it holds, at most a quarter of an hour of it."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within a quarter of an hour")


class Bench:
    """A shard that is polled in virtual time. Make it inside the loop."""

    def __init__(
        self, *answers: Given, position: Position = TRIM_HORIZON, room: int = 64 * MIB, **says: bool
    ) -> None:
        self.service = Service(*answers, **says)
        self.pool = BufferPool(room)
        self.buffer = ShardBuffer("s", position, self.pool)
        self.executor = InlineExecutor()
        self.changes = 0
        self.diagnosed = 0
        options = AgentOptions("orders", "arn", "", 30.0, True, "127.0.0.1", deaggregate=False)
        context = ShardContext(options, Shard("s"), self._nothing_found, self._changed)
        self.runner = PollingRunner(
            context,
            Polling(
                context.label,
                position,
                PollingOptions(),
                buffer_bytes=room,
                rng=random.Random(1),
            ),
            self.buffer,
            self.pool,
            self.executor,
            Network(self.service),  # type: ignore[arg-type]
            LoopClock(),
        )
        self.runner.start()

    async def until_nothing_is_left_to_answer(self) -> Bench:
        """Until the last answer was worked off, and one more call is under way."""
        over = ("ended", "failed", "stopped")
        await until(lambda: self.service.hanging or self.runner.state in over)
        return self

    def held(self, start: Position = TRIM_HORIZON) -> list[int]:
        return [
            n for b in self.buffer.read(start, self.buffer.available) for n in sequence_numbers(b)
        ]

    def room_lost(self) -> int:
        """Room that neither records nor the call under way have."""
        rows = self.buffer.read(self.buffer.start, self.buffer.available)
        return self.pool.used("s") - sum(batch.nbytes for batch in rows)

    async def _nothing_found(self, shard_id: str) -> None:
        self.diagnosed += 1

    def _changed(self) -> None:
        self.changes += 1


def run(*answers: Given, **options: Any) -> Bench:
    """What became of a shard that was answered so."""

    async def main() -> Bench:
        bench = await Bench(*answers, **options).until_nothing_is_left_to_answer()
        bench.runner.handle(Stop())
        await asyncio.sleep(1)
        return bench

    return run_in_virtual_time(main())


# --- what comes of answers ----------------------------------------------------------------------


def test_answers_come_into_the_buffer_one_after_the_other() -> None:
    """One call at a time, with the iterator that the one before gave."""
    bench = run(page(1, 2, behind=9), page(behind=5), page(3))

    assert bench.held() == [1, 2, 3]
    assert bench.service.starts == ["TRIM_HORIZON"]
    assert bench.service.iterators == ["fresh 1", "next", "next", "next"]
    assert bench.service.most_under_way == 1
    assert bench.buffer.available == After("3")


@pytest.mark.parametrize(
    ("position", "answer", "expected", "seen_ms"),
    [
        pytest.param(TRIM_HORIZON, page(5), After("5"), ARRIVED_MS, id="a record and its arrival"),
        pytest.param(TRIM_HORIZON, page(), TRIM_HORIZON, None, id="nothing at the oldest record"),
        pytest.param(
            AtTimestamp(7), page(), AtTimestamp(SERVED_MS - 60_000), None, id="nothing at a time"
        ),
        pytest.param(
            AtTimestamp(ARRIVED_MS + 1), page(5), AtTimestamp(ARRIVED_MS + 1), None, id="all older"
        ),
        pytest.param(After("5"), page(), After("5"), SERVED_MS, id="nothing up to now"),
        pytest.param(
            After("5"), page(behind=9000), After("5"), SERVED_MS - 9000, id="nothing up to a moment"
        ),
        pytest.param(
            After("5", SERVED_MS + 5), page(), After("5"), SERVED_MS + 5, id="never back in time"
        ),
        pytest.param(After("5"), page(4, 5), After("5"), SERVED_MS, id="all repeated"),
        pytest.param(TRIM_HORIZON, page("0005"), After("0005"), ARRIVED_MS, id="padded as it came"),
    ],
)
def test_where_the_shard_is_read_to(
    position: Position, answer: bytes, expected: Position, seen_ms: int | None
) -> None:
    """Silence moves no number, but the moment up to which there was silence (F24)."""
    bench = run(answer, position=position)
    found = bench.buffer.available

    assert found == expected == bench.runner.machine.position
    assert (found.seen_ms if isinstance(found, After) else None) == seen_ms


def test_a_server_that_does_not_tell_its_time_is_not_guessed_at() -> None:
    """Our clock may be ahead of the one by which records arrive."""
    bench = run(page(), position=After("5"), tells_time=False)
    found = bench.buffer.available

    assert isinstance(found, After)
    assert found.seen_ms is None


def test_what_is_sent_twice_counts_once() -> None:
    """A fresh iterator, or a careless server, may begin too early."""
    bench = run(page(1, 2), page(2, 3), page(1, 2, 3), page(4))

    assert bench.held() == [1, 2, 3, 4]
    assert bench.runner.counters.records == 4


def test_the_end_of_the_shard_reaches_the_buffer_behind_its_records() -> None:
    """The tail is there when the end is (F17, F30)."""
    bench = run(page(1), page(2, last=True, children=True))

    assert bench.buffer.available == SHARD_END
    assert bench.held() == [1, 2]
    assert bench.runner.state == "ended"
    assert bench.changes == 1


def test_an_end_that_nothing_else_tells_of_is_asked_for_again() -> None:
    """Behind the last record, with a fresh iterator; it was none."""
    bench = run(page(1, last=True), page(2))

    assert bench.service.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]
    assert bench.held() == [1, 2]
    assert bench.runner.state == "stopped"


def test_a_listed_closed_shard_ends_where_its_iterators_do() -> None:
    """Not every server names the children."""

    async def main() -> Bench:
        bench = Bench(page(1), page(last=True))
        bench.runner.handle(ShardClosed())
        return await bench.until_nothing_is_left_to_answer()

    bench = run_in_virtual_time(main())
    assert bench.buffer.available == SHARD_END
    assert bench.service.starts == ["TRIM_HORIZON"]


def test_counters_tell_calls_answers_and_the_distance_from_the_tip() -> None:
    """What people look at when a query is slow."""
    first, second = page(1, 2, behind=70), page(behind=60)
    counters = run(first, second).runner.counters

    assert (counters.events, counters.empty, counters.records) == (2, 1, 2)
    assert counters.bytes == len(first) + len(second)
    assert counters.millis_behind == 60
    # One iterator, two answers, and a call that was not answered.
    assert counters.calls == 4


# --- what does not become an answer -------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        pytest.param(b"<html>", "ProtocolError", id="no JSON"),
        pytest.param(b"[]", "ProtocolError", id="no object"),
        pytest.param(b"{}", "ProtocolError", id="no records"),
        pytest.param(b'{"Records":[{}]}', "ProtocolError", id="a record of nothing"),
        pytest.param(page(9, 8), "ProtocolError", id="out of order"),
        pytest.param(THROTTLED, "ProvisionedThroughputExceededException", id="throttled"),
    ],
)
def test_a_bad_answer_leaves_the_position_and_is_asked_for_again(bad: Given, kind: str) -> None:
    """Nothing behind it is taken without it; its room is given back (F18)."""
    bench = run(page(1), bad, page(2))

    assert bench.held() == [1, 2]
    assert bench.runner.counters.errors == {kind: 1}
    assert bench.room_lost() == 0


def test_an_expired_iterator_is_no_error() -> None:
    """It is replaced behind the last record read (F26)."""
    bench = run(page(1, 2), EXPIRED, page(3))

    assert bench.held() == [1, 2, 3]
    assert bench.service.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:2"]
    assert bench.runner.counters.errors == {}


def test_what_will_not_pass_fails_the_shard() -> None:
    """The agent can tell why nothing more comes (F45)."""
    bench = run(page(1), DENIED)

    assert bench.runner.state == "failed"
    assert isinstance(bench.runner.failure, AccessError)
    assert bench.room_lost() == 0


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), RecursionError()])
def test_an_unforeseen_error_stops_the_shard_instead_of_leaving_a_gap(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody thought of is told as our fault, and no later answer is taken."""

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(poller_module, "decode_records", fail)
    bench = run(page(1), page(2))

    assert isinstance(bench.runner.failure, InternalError)
    assert type(error).__name__ in str(bench.runner.failure)
    assert bench.buffer.available == TRIM_HORIZON
    assert bench.pool.used("s") == 0


def test_a_buffer_that_takes_no_records_fails_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are lost, so nothing that came behind them may be taken (issue 19, 4)."""

    def fail(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ShardBuffer, "append", fail)
    bench = run(page(1), page(2))

    assert bench.runner.state == "failed"
    assert isinstance(bench.runner.failure, InternalError)
    assert "MemoryError" in str(bench.runner.failure)
    assert bench.buffer.available == TRIM_HORIZON
    assert len(bench.service.limits) == 1


# --- room ---------------------------------------------------------------------------------------


def test_the_room_of_every_answer_is_given_back_but_for_its_records() -> None:
    """What is held afterwards is what the records use, exactly (F44)."""
    bench = run(page(1), page(), page(2, data=b"." * 200 * KIB), THROTTLED, EXPIRED, b"{}", page(3))

    assert bench.held() == [1, 2, 3]
    assert bench.room_lost() == 0


@pytest.mark.parametrize("tells_length", [True, False])
def test_an_answer_is_given_the_room_it_turns_out_to_need(*, tells_length: bool) -> None:
    """As long as the pool has it, there and then."""
    large = page(*range(1, 101), data=b"." * 10 * KIB)
    bench = run(large, tells_length=tells_length)

    assert len(large) > 1 * MIB
    assert bench.held() == list(range(1, 101))
    assert bench.service.iterators == ["fresh 1", "next"]
    assert bench.pool.statistics().peak_bytes >= len(large)


@pytest.mark.parametrize("tells_length", [True, False])
def test_the_bound_is_not_overshot_by_an_answer_that_is_larger_than_expected(
    *, tells_length: bool
) -> None:
    """It is dropped, asked for with fewer and fewer records, and waited for when it is only one."""
    large = page(2, data=b"." * 300 * KIB)

    async def main() -> None:
        bench = Bench(page(1), *[large] * 8, room=1 * MIB, tells_length=tells_length)
        bench.pool.open("other")
        assert bench.pool.request("other", 700 * KIB, lambda: None)
        await until(lambda: bench.service.abandoned > 0)
        await asyncio.sleep(60)
        assert bench.runner.state == "parked"
        assert bench.service.under_way == 0
        assert bench.held() == [1]
        assert bench.service.limits[-1] == 1
        assert bench.service.abandoned < 8

        bench.pool.change("other", -700 * KIB, 0)
        await bench.until_nothing_is_left_to_answer()
        assert bench.held() == [1, 2]
        assert set(bench.service.iterators) == {"fresh 1", "next"}
        assert bench.pool.statistics().peak_bytes <= 1 * MIB
        assert bench.runner.counters.back_pressure_s > 50
        bench.runner.handle(Stop())
        await asyncio.sleep(1)
        assert bench.room_lost() == 0

    run_in_virtual_time(main())


def test_what_room_there_is_is_used() -> None:
    """Others hold all that is lent, and a shard that is behind wants more than its share: with the
    share it gets on, in smaller answers, whatever the others do (F3).
    """

    async def main() -> None:
        bench = Bench(page(1, behind=9), page(2, behind=9), page(3), room=1 * MIB)
        for other in ("a", "b", "c"):
            bench.pool.open(other)
        await until(bench.held)
        assert bench.pool.request("a", 600 * KIB, lambda: None)
        await bench.until_nothing_is_left_to_answer()
        assert bench.held() == [1, 2, 3]
        assert 1 < bench.service.limits[1] < bench.service.limits[0]
        assert bench.pool.statistics().peak_bytes <= 1 * MIB
        assert bench.runner.counters.back_pressure_s == 0
        bench.runner.handle(Stop())

    run_in_virtual_time(main())


def test_without_room_there_is_neither_a_call_nor_an_iterator_that_ages() -> None:
    """Ten minutes later the first call is one that can be answered."""

    async def main() -> None:
        bench = Bench(page(1), page(2), room=1 * MIB)
        await until(bench.held)
        bench.pool.open("other")
        assert bench.pool.request("other", 1 * MIB - 1 * KIB, lambda: None)
        await asyncio.sleep(600)
        assert bench.service.under_way == 0
        calls = len(bench.service.iterators)

        bench.pool.change("other", -1 * MIB + 1 * KIB, 0)
        await bench.until_nothing_is_left_to_answer()
        assert bench.held() == [1, 2]
        assert bench.service.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]
        assert bench.service.iterators[calls] == "fresh 2"
        assert bench.runner.counters.errors == {}
        bench.runner.handle(Stop())

    run_in_virtual_time(main())


# --- the end of it ------------------------------------------------------------------------------


def test_stopping_while_a_call_is_under_way_ends_it() -> None:
    """The connection is closed, and its room is free."""

    async def main() -> None:
        bench = await Bench(page(1)).until_nothing_is_left_to_answer()
        bench.runner.handle(Stop())
        await asyncio.sleep(0.1)
        assert bench.service.under_way == 0
        assert bench.room_lost() == 0
        await asyncio.sleep(100)
        assert len(bench.service.iterators) == 2

    run_in_virtual_time(main())


def test_stopping_while_room_is_waited_for_takes_none() -> None:
    """Neither then nor when the pool has some."""

    async def main() -> None:
        bench = Bench(page(), room=1 * MIB)
        bench.pool.open("other")
        await until(lambda: bench.runner.state == "waiting")
        assert bench.pool.request("other", 1 * MIB - 1 * KIB, lambda: None)
        await until(lambda: bench.runner.state == "parked")
        bench.runner.handle(Stop())
        bench.pool.change("other", -1 * MIB + 1 * KIB, 0)
        await asyncio.sleep(1)
        assert bench.pool.used("s") == 0
        assert bench.pool.statistics().waiting == 0

    run_in_virtual_time(main())


def test_room_granted_in_the_moment_of_stopping_is_given_back() -> None:
    """The grant was on its way to the loop."""

    async def main() -> None:
        bench = Bench(page(), room=1 * MIB)
        bench.pool.open("other")
        await until(lambda: bench.runner.state == "waiting")
        assert bench.pool.request("other", 1 * MIB - 1 * KIB, lambda: None)
        await until(lambda: bench.runner.state == "parked")
        bench.pool.change("other", -1 * MIB + 1 * KIB, 0)
        assert bench.pool.used("s") > 0
        bench.runner.handle(Stop())
        await asyncio.sleep(1)
        assert bench.pool.used("s") == 0

    run_in_virtual_time(main())


def test_an_answer_that_is_decoded_after_the_stop_is_not_used() -> None:
    """What the executor had queued is dropped, and its room with it."""

    async def main() -> None:
        bench = Bench(page(1))
        bench.executor.waiting = []
        await until(lambda: bench.executor.waiting)
        bench.runner.handle(Stop())
        bench.executor.waiting[0]()
        assert bench.buffer.available == TRIM_HORIZON
        assert bench.pool.used("s") == 0

    run_in_virtual_time(main())
