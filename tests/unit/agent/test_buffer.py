"""The buffer: its bounds, who gets room and when, and which ranges it holds."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.errors import AgentError, InternalError
from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.ranges import ShardRange, any_records
from kinesis_ds.wire.decode import sequence_numbers
from tests.support.builders import ARRIVED_S, records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Asker:
    """A shard that asks a pool for room and notes when it gets it."""

    def __init__(self, pool: BufferPool, shard: str) -> None:
        self.pool = pool
        self.shard = shard
        self.granted = 0
        pool.open(shard)

    def ask(self, nbytes: int) -> bool:
        return self.pool.request(self.shard, nbytes, self._grant)

    def give_back(self, nbytes: int, rows: int = 0) -> None:
        self.pool.change(self.shard, -nbytes, -rows)

    def _grant(self) -> None:
        self.granted += 1


def askers(limit: int, *shards: str, limit_records: int = 1000) -> list[Asker]:
    pool = BufferPool(limit, limit_records)
    return [Asker(pool, shard) for shard in shards]


# --- room ---------------------------------------------------------------------------------------


def test_room_is_given_up_to_the_bound() -> None:
    """A single shard may use all of it, and not one byte more."""
    (a,) = askers(100, "a")

    assert a.ask(60)
    assert a.ask(40)
    assert not a.ask(1)
    assert a.pool.statistics().used_bytes == 100


def test_a_waiter_is_told_once_when_there_is_room() -> None:
    """The room is reserved for it when its callback is called."""
    (a,) = askers(100, "a")
    a.ask(100)
    assert not a.ask(50)

    a.give_back(49)
    assert (a.granted, a.pool.statistics().waiting) == (0, 1)
    a.give_back(1)
    assert (a.granted, a.pool.statistics().waiting) == (1, 0)
    assert a.pool.used("a") == 100
    a.give_back(100)
    assert a.granted == 1


def test_one_message_larger_than_the_bound_gets_through_an_empty_pool() -> None:
    """Otherwise its shard could never be read; while it is held, nothing else is."""
    a, b = askers(100, "a", "b")

    assert a.ask(5000)
    assert not b.ask(1)
    a.give_back(5000)
    assert b.granted == 1


def test_a_hot_shard_cannot_take_the_share_of_an_idle_one() -> None:
    """Half is guaranteed in equal shares, so the idle shard gets its share at any moment."""
    hot, idle = askers(100, "hot", "idle")

    taken = 0
    while hot.ask(1):
        taken += 1
    assert taken == 75  # its share of 25 and all of the half that is lent
    assert all(idle.ask(1) for _ in range(25))
    assert not idle.ask(1)


def test_what_is_lent_goes_to_those_who_wait_in_their_order() -> None:
    """First come, first served among those who need more than their share."""
    a, b, c = askers(120, "a", "b", "c")  # shares of 20, 60 to lend
    assert a.ask(80)
    assert not b.ask(30)
    assert not c.ask(25)

    a.give_back(4)
    assert (b.granted, c.granted) == (0, 0)  # 4 are not enough for the first, nor for the second
    a.give_back(6)
    assert (b.granted, c.granted) == (1, 0)
    a.give_back(5)
    assert (b.granted, c.granted) == (1, 1)


def test_a_large_message_is_not_overtaken_by_small_ones_that_borrow() -> None:
    """While somebody waits, others get no more than their share: the large message's turn comes."""
    big, hot = askers(100, "big", "hot")  # shares of 25, 50 to lend
    assert hot.ask(25)
    assert hot.ask(50)
    assert not big.ask(60)

    for _ in range(3):
        hot.give_back(10)
        assert not hot.ask(10)
        hot.pool.withdraw("hot")
    assert big.granted == 0
    hot.give_back(5)
    assert big.granted == 1


def test_a_share_is_open_to_its_shard_while_others_wait() -> None:
    """Waiting for borrowed room holds nobody back who stays within the guaranteed share."""
    a, b, c = askers(120, "a", "b", "c")
    a.ask(80)
    assert not b.ask(60)

    assert c.ask(20)
    assert not c.ask(1)


def test_a_message_that_fits_into_no_share_and_no_loan_is_not_starved() -> None:
    """A message of more than half the bound waits for all others, and they wait for it."""
    big, small = askers(100, "big", "small")  # big may have 25 + 50 by the usual rules
    assert small.ask(20)
    assert not big.ask(90)

    assert not small.ask(15), "small shards could keep the pool busy for ever"
    small.give_back(5)
    assert (big.granted, small.granted) == (0, 0)
    small.give_back(15)
    assert big.granted == 1
    assert big.pool.statistics().used_bytes == 90
    big.give_back(90)
    assert small.granted == 1


def test_a_withdrawn_request_is_not_granted() -> None:
    """A shard that gives up gets no room later; withdrawing tells whether it was waiting."""
    (a,) = askers(100, "a")
    a.ask(100)
    a.ask(10)

    assert a.pool.withdraw("a")
    assert not a.pool.withdraw("a")
    a.give_back(100)
    assert a.granted == 0
    assert a.pool.statistics().used_bytes == 0


def test_a_withdrawn_large_request_lets_the_others_in() -> None:
    """Who waited only because of it is served at once, not at the next release."""
    big, small = askers(100, "big", "small")
    small.ask(20)
    big.ask(90)
    assert not small.ask(5)

    assert big.pool.withdraw("big")
    assert small.granted == 1


def test_giving_room_back_costs_the_same_however_many_wait() -> None:
    """A commit gives it back shard by shard, and thousands may wait (issue 19, 5)."""

    def steps(waiting: int) -> int:
        pool = BufferPool(100_000)
        for n in range(waiting):
            pool.open(str(n))
        assert pool.request("0", 100_000, lambda: None)
        for n in range(waiting):
            pool.request(str(n), 60_000 if n % 2 else 1, lambda: None)
        return lines_run(lambda: pool.change("0", -1, 0))

    assert steps(2000) == steps(200)


def lines_run(work: Callable[[], None]) -> int:
    """How many lines of Python that takes."""
    count = 0

    def trace(frame: object, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_records_are_bounded_as_well() -> None:
    """Empty records cost memory too: at the bound of records nothing more is let in."""
    (a,) = askers(1_000_000, "a", limit_records=10)
    assert a.ask(100)
    a.pool.change("a", 0, 10)

    assert not a.ask(1)
    a.give_back(0, 1)
    assert a.granted == 1


def test_giving_back_more_than_was_had_is_an_internal_error() -> None:
    """Wrong accounting is found where it happens."""
    (a,) = askers(100, "a")
    a.ask(10)

    with pytest.raises(InternalError, match="gave back more room"):
        a.give_back(11)


def test_closing_a_shard_gives_its_room_to_the_others() -> None:
    """What it held is free again, its waiting request is gone, and shares grow."""
    a, b = askers(100, "a", "b")
    a.ask(75)
    a.ask(50)
    b.ask(25)
    assert not b.ask(60)

    a.pool.close("a")
    assert (a.granted, b.granted) == (0, 1)
    statistics = b.pool.statistics()
    assert (statistics.used_bytes, statistics.waiting) == (85, 0)


def test_a_closed_shard_gets_nothing_and_breaks_nothing() -> None:
    """Late callbacks of a shard that is gone are without effect, whatever the pool holds."""
    a, b = askers(100, "a", "b")
    a.pool.close("a")

    assert not a.ask(10)
    b.ask(1)
    assert not a.ask(10)
    a.give_back(10)
    b.give_back(1)
    assert a.granted == 0
    assert a.pool.statistics().used_bytes == 0
    assert a.pool.used("a") == 0


def test_statistics_tell_use_bounds_and_peak() -> None:
    """The peak stays when the room is given back."""
    (a,) = askers(100, "a", limit_records=7)
    a.ask(80)
    a.give_back(80)

    statistics = a.pool.statistics()
    assert (statistics.used_bytes, statistics.limit_bytes, statistics.peak_bytes) == (0, 100, 80)
    assert (statistics.used_records, statistics.limit_records, statistics.waiting) == (0, 7, 0)


def test_a_callback_may_ask_again() -> None:
    """Callbacks run outside the lock: asking from one does not deadlock."""
    pool = BufferPool(100)
    pool.open("a")
    pool.request("a", 100, lambda: None)
    answers: list[bool] = []
    pool.request("a", 10, lambda: answers.append(pool.request("a", 10, lambda: None)))

    thread = threading.Thread(target=pool.change, args=("a", -100, 0))
    thread.start()
    thread.join(5)
    assert answers == [True]


# --- ranges -------------------------------------------------------------------------------------


def filled(start: Position = TRIM_HORIZON, *, available: Position | None = None) -> ShardBuffer:
    """Records 10, 20, ... 60 in three chunks of two; available at 65."""
    pool = BufferPool(1 << 20)
    buffer = ShardBuffer("s", start, pool)
    for first in (10, 30, 50):
        taken = records([first, first + 10])
        pool.request("s", 1000, lambda: None)
        buffer.append(taken, After(str(first + 10)), 1000)
    buffer.append(None, available or After("65"), 0)
    return buffer


def count(buffer: ShardBuffer, start: Position, end: Position) -> int | None:
    held = buffer.hold(start, end)
    return None if held is None else held.records


def held(buffer: ShardBuffer, start: Position, end: Position) -> list[int] | None:
    rows = count(buffer, start, end)
    if rows is None:
        with pytest.raises(AgentError, match=r"the agent holds .* not "):
            buffer.read(start, end)
        return None
    found = [n for batch in buffer.read(start, end) for n in sequence_numbers(batch)]
    assert len(found) == rows
    return found


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(TRIM_HORIZON, After("65"), [10, 20, 30, 40, 50, 60], id="all"),
        pytest.param(TRIM_HORIZON, After("60"), [10, 20, 30, 40, 50, 60], id="to the last record"),
        pytest.param(TRIM_HORIZON, After("59"), [10, 20, 30, 40, 50], id="before the last record"),
        pytest.param(TRIM_HORIZON, After("10"), [10], id="the first record"),
        pytest.param(TRIM_HORIZON, After("9"), [], id="before the first record"),
        pytest.param(After("5"), After("20"), [10, 20], id="a start before the first record"),
        pytest.param(After("10"), After("30"), [20, 30], id="across chunks, inside both"),
        pytest.param(After("20"), After("40"), [30, 40], id="exactly one chunk"),
        pytest.param(After("21"), After("29"), [], id="between two chunks"),
        pytest.param(After("11"), After("19"), [], id="between two records of a chunk"),
        pytest.param(After("15"), After("25"), [20], id="half a chunk"),
        pytest.param(After("60"), After("65"), [], id="behind all records"),
        pytest.param(After("65"), After("65"), [], id="empty, at available"),
        pytest.param(After("0015"), After("00000025"), [20], id="padded"),
        pytest.param(TRIM_HORIZON, After("0065"), [10, 20, 30, 40, 50, 60], id="available, padded"),
        pytest.param(TRIM_HORIZON, After("66"), None, id="beyond available"),
        pytest.param(TRIM_HORIZON, SHARD_END, None, id="an end that was not reached"),
        pytest.param(AtTimestamp(1), After("65"), None, id="a start that is not this buffer's"),
        pytest.param(SHARD_END, SHARD_END, None, id="behind the end"),
    ],
)
def test_ranges_at_arbitrary_boundaries(
    start: Position, end: Position, expected: list[int] | None
) -> None:
    """A range that is held gives exactly its records; any other is refused, never cut."""
    assert held(filled(), start, end) == expected


def test_a_timestamp_start_holds_its_own_range() -> None:
    """The range behind a pinned time is served as it was asked for."""
    buffer = filled(AtTimestamp(7))

    assert held(buffer, AtTimestamp(7), After("30")) == [10, 20, 30]
    assert held(buffer, AtTimestamp(8), After("30")) is None
    assert held(buffer, TRIM_HORIZON, After("30")) is None


def test_numbers_and_times_have_no_order() -> None:
    """A range that begins at a number, where the buffer began at a time, may begin before it; and
    where a range ends that ends at a time, only reading tells. Both are read from Kinesis.
    """
    buffer = ShardBuffer("s", AtTimestamp(1000), BufferPool(1000))
    buffer.append(records([10, 20]), After("20"), 0)

    assert count(buffer, After("10"), After("20")) is None
    assert count(buffer, AtTimestamp(1000), AtTimestamp(2000)) is None
    buffer.free(After("10"))
    assert count(buffer, After("10"), After("20")) == 1


def test_a_time_that_moves_on_over_silence_holds_nothing() -> None:
    """F24: a polled shard that waits for its first record moves on in time, without a batch."""
    buffer = ShardBuffer("s", AtTimestamp(1000), BufferPool(1000))
    buffer.append(None, AtTimestamp(1500), 0)
    buffer.append(None, AtTimestamp(2000), 0)

    assert count(buffer, AtTimestamp(1000), AtTimestamp(2000)) == 0
    assert count(buffer, AtTimestamp(1000), AtTimestamp(2001)) is None
    buffer.free(AtTimestamp(1500))
    buffer.append(records([10]), After("10"), 0)
    assert count(buffer, AtTimestamp(1500), AtTimestamp(2000)) == 0
    assert count(buffer, AtTimestamp(1500), After("10")) == 1
    assert count(buffer, AtTimestamp(1000), AtTimestamp(1500)) is None


def test_the_end_of_the_shard_is_behind_everything() -> None:
    """Once the shard has ended, ranges to its end and to any number are held."""
    buffer = filled()
    buffer.end()

    assert buffer.available == SHARD_END
    assert held(buffer, After("40"), SHARD_END) == [50, 60]
    assert held(buffer, After("40"), After("50")) == [50]
    assert held(buffer, After("60"), SHARD_END) == []


def test_an_ended_shard_does_not_rise_again() -> None:
    """An empty event decoded behind the end neither moves available back nor keeps its room."""
    pool = BufferPool(1000)
    buffer = ShardBuffer("s", TRIM_HORIZON, pool)
    pool.request("s", 100, lambda: None)
    buffer.end()
    buffer.append(None, After("9"), 100)

    assert buffer.available == SHARD_END
    assert pool.used("s") == 0


@pytest.mark.parametrize(
    ("committed", "chunks_left", "expected"),
    [
        pytest.param(After("5"), 3, [10, 20, 30, 40, 50, 60], id="before the first record"),
        pytest.param(
            After("10"), 3, [20, 30, 40, 50, 60], id="inside a chunk, which stays until its end"
        ),
        pytest.param(After("20"), 2, [30, 40, 50, 60], id="at the end of a chunk"),
        pytest.param(After("45"), 1, [50, 60], id="between chunks"),
        pytest.param(After("65"), 0, [], id="all"),
    ],
)
def test_free_drops_what_was_committed(
    committed: Position, chunks_left: int, expected: list[int]
) -> None:
    """What lies behind the commit is served; what lies before is refused, its room is back."""
    buffer = filled()
    one = records([10, 20]).batch.nbytes
    buffer.free(committed)

    assert buffer.start == committed
    assert held(buffer, committed, After("65")) == expected
    assert held(buffer, TRIM_HORIZON, After("65")) is None
    assert buffer._pool.used("s") == chunks_left * one
    assert buffer._pool.statistics().used_records == chunks_left * 2


def test_free_never_goes_backwards() -> None:
    """An older commit, or the same again, changes nothing."""
    buffer = filled()
    buffer.free(After("40"))
    for older in (After("10"), After("40"), TRIM_HORIZON, AtTimestamp(5)):
        buffer.free(older)

    assert buffer.start == After("40")
    assert held(buffer, After("40"), After("65")) == [50, 60]


def test_free_at_the_end_of_the_shard_drops_all() -> None:
    """A committed end leaves nothing behind."""
    buffer = filled()
    buffer.end()
    buffer.free(SHARD_END)

    assert buffer._pool.used("s") == 0
    assert held(buffer, After("40"), SHARD_END) is None


def test_a_shard_freed_at_its_end_gives_its_share_to_the_others() -> None:
    """After many reshards the shards that are read have the whole bound between them."""
    pool = BufferPool(1000)
    ended = ShardBuffer("ended", TRIM_HORIZON, pool)
    for name in ("a", "b", "c"):
        pool.open(name)
    pool.request("a", 600, lambda: None)
    assert not pool.request("b", 160, lambda: None)  # its share is 125, and the loans are taken
    pool.withdraw("b")
    ended.end()
    ended.free(SHARD_END)

    assert pool.request("b", 160, lambda: None)


def test_what_was_read_survives_being_freed() -> None:
    """A task that still streams a range is not disturbed by a commit."""
    buffer = filled()
    batches = buffer.read(TRIM_HORIZON, After("60"))
    buffer.free(After("65"))
    buffer.close()

    assert [n for batch in batches for n in sequence_numbers(batch)] == [10, 20, 30, 40, 50, 60]


def test_append_turns_reserved_room_into_what_is_used() -> None:
    """The room of the frame is given back, that of the Arrow batch is taken."""
    pool = BufferPool(100_000)
    buffer = ShardBuffer("s", TRIM_HORIZON, pool)
    taken = records([1, 2, 3])
    pool.request("s", 5000, lambda: None)
    buffer.append(taken, After("3"), 5000)

    assert pool.used("s") == taken.batch.nbytes
    assert pool.statistics().used_records == 3
    assert buffer.available == After("3")


def test_closing_a_buffer_gives_everything_back() -> None:
    """Bytes and records of the pool return to zero."""
    buffer = filled()
    buffer.close()

    statistics = buffer._pool.statistics()
    assert (statistics.used_bytes, statistics.used_records) == (0, 0)


def test_what_was_freed_before_it_came_takes_no_room() -> None:
    """An agent that follows one that died meets again what tasks have read from Kinesis meanwhile;
    nobody would free it a second time, and it could fill the whole buffer.
    """
    pool = BufferPool(1 << 20)
    buffer = ShardBuffer("s", TRIM_HORIZON, pool)
    buffer.free(After("30"))
    for first in (10, 30, 50):
        pool.request("s", 1000, lambda: None)
        buffer.append(records([first, first + 10]), After(str(first + 10)), 1000)

    assert pool.statistics().used_records == 4
    assert held(buffer, After("30"), After("60")) == [40, 50, 60]
    buffer.free(After("60"))
    assert (pool.statistics().used_bytes, pool.statistics().used_records) == (0, 0)


# --- how much lies within limits ----------------------------------------------------------------

# Data and partition key of each record.
SIZE = len(b"data") + len("key")
ARRIVED_MS = int(ARRIVED_S * 1000)


@pytest.mark.parametrize(
    ("limits", "rows", "end"),
    [
        pytest.param(Limits(), 6, After("65"), id="none: the end of the range"),
        pytest.param(Limits(6), 6, After("65"), id="all are within it"),
        pytest.param(Limits(3), 3, After("30"), id="inside a chunk"),
        pytest.param(Limits(4), 4, After("40"), id="at the end of a chunk"),
        pytest.param(Limits(None, 2 * SIZE), 2, After("20"), id="bytes"),
        pytest.param(Limits(None, SIZE - 1), 0, TRIM_HORIZON, id="the first is too large"),
        pytest.param(
            Limits(None, SIZE - 1, at_least_one=True), 1, After("10"), id="and yet it comes"
        ),
        pytest.param(Limits(0, at_least_one=True), 1, After("10"), id="whichever the limit"),
        pytest.param(Limits(2, at_least_one=True), 2, After("20"), id="one is there already"),
        pytest.param(
            Limits(3, 9 * SIZE, at_least_one=True), 3, After("30"), id="no more than that"
        ),
    ],
)
def test_hold_counts_from_the_front_within_both_limits(
    limits: Limits, rows: int, end: Position
) -> None:
    """And tells when the oldest record came, whether it is within them or not."""
    held = filled().hold(TRIM_HORIZON, After("65"), limits)

    assert held is not None
    assert (held.records, held.nbytes) == (rows, rows * SIZE)
    assert (held.end, held.oldest_ms) == (end, ARRIVED_MS)


def test_what_shares_a_sequence_number_comes_together_or_not_at_all() -> None:
    """The user records of an aggregate have one number."""
    buffer = ShardBuffer("s", TRIM_HORIZON, BufferPool(1 << 20))
    buffer.append(records([10, 10, 10, 20]), After("20"), 0)

    def rows(limits: Limits) -> int:
        held = buffer.hold(TRIM_HORIZON, After("20"), limits)
        assert held is not None
        return held.records

    assert rows(Limits(2)) == 0
    assert rows(Limits(2, at_least_one=True)) == 3
    assert rows(Limits(3, at_least_one=True)) == 3

    def hold(asked: Sequence[ShardRange], limits: Sequence[Limits] = ()) -> list[Held | None]:
        return [buffer.hold(r.start, r.end, x) for r, x in zip(asked, limits, strict=True)]

    assert any_records([ShardRange("s", TRIM_HORIZON, After("20"))], hold)


def test_of_silence_nothing_is_held_and_it_has_no_oldest_record() -> None:
    """The range is known all the same."""
    assert filled().hold(After("60"), After("65"), Limits(1)) == Held(0, 0, After("65"), None)
