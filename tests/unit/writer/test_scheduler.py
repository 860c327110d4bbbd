"""Queues: what is sent next, and what an answer comes to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.errors import WriteError
from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.plan.shards import Shard
from kinesis_ds.writer.aggregating import Aggregator, user_records
from kinesis_ds.writer.pacing import Pace
from kinesis_ds.writer.prediction import Prediction
from kinesis_ds.writer.records import Block, PackingLimits, Record, Request, plain
from kinesis_ds.writer.results import Answers, Retry
from kinesis_ds.writer.scheduler import Misplaced, Scheduler
from kinesis_ds.writer.waiting import WaitingRows
from tests.support.scheduling import (
    Delivered,
    Verdict,
    answers_of,
    is_empty,
    rows_in_unknown_shards,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

THROTTLED = Retry("ProvisionedThroughputExceededException", "too busy")
BROKEN = Retry("InternalFailure", "try later")


def shards(number: int) -> dict[str, Shard]:
    """Open shards of equal width: s0, s1, ..."""
    width = 2**128 // number
    return {
        f"s{n}": Shard(f"s{n}", hash_range=(n * width, (n + 1) * width - 1)) for n in range(number)
    }


def at(shard: int, of: int) -> int:
    """A hash key in the middle of a shard's range."""
    return 2**128 // of * shard + 2**128 // of // 2


def record(row: int, hash_key: int | None = 0, key: str = "", size: int = 100) -> Record:
    text = None if hash_key is None else str(hash_key)
    key = key or f"key{row}"
    return plain(b"x" * (size - len(key)), key, text, size, row)


def make(
    shard_map: dict[str, Shard] | None,
    *,
    request_records: int = 10,
    request_bytes: int = MIB,
    ordered: bool = False,
    linger_s: float = 0.1,
    retry_timeout_s: float = 60.0,
    paces: dict[str, Pace] | None = None,
    aggregate: int = 0,
) -> Scheduler:
    """Scheduler whose pauses are as long as they may be."""
    limits = PackingLimits(request_records, request_bytes)
    waiting = WaitingRows(
        limits,
        Prediction(shard_map),
        ordered=ordered,
        linger_s=linger_s,
        paces={} if paces is None else paces,
        new_aggregator=(lambda alone: Aggregator(MIB, 1 if alone else aggregate, MIB, "query/0/0"))
        if aggregate
        else None,
    )
    return Scheduler(
        waiting,
        limits,
        label="orders",
        retry_timeout_s=retry_timeout_s,
        uniform=lambda _, high: high,
    )


def rows(request: Request | None) -> list[int]:
    """The rows of a request, in order."""
    assert request is not None
    return [user.row for one in request.records for user in user_records(one)]


def add(scheduler: Scheduler, records: list[Record], now: float) -> None:
    scheduler.waiting.add(Block.of(records), now)


def send(scheduler: Scheduler, now: float) -> Request:
    request = scheduler.next_request(now)
    assert request is not None
    return request


def stored(request: Request, shard: str) -> Answers:
    return said(*(Delivered(shard, "1") for _ in request.records))


def said(*verdicts: Verdict) -> Answers:
    return answers_of(verdicts)


def all_sent(scheduler: Scheduler, now: float) -> list[list[int]]:
    found = []
    while (request := scheduler.next_request(now)) is not None:
        found.append(rows(request))
    return found


def paced(rate: float) -> Pace:
    """A pace that has learned this rate at time 0; it may send nothing at that moment."""
    pace = Pace()
    pace.sent(rate / 0.9 + 0.1, 0.0)
    pace.delivered(rate / 0.9, 0.0)
    pace.throttled(0.1, 0.0)
    return pace


# What is sent, and when.


def test_a_queue_with_enough_fills_a_request_of_its_own_at_once() -> None:
    """By records or by bytes; the others wait for company."""
    scheduler = make(shards(2), request_records=3, request_bytes=1000)
    add(scheduler, [record(0, at(1, 2)), *(record(n, at(0, 2)) for n in (1, 2, 3, 4))], 0.0)
    assert all_sent(scheduler, 0.0) == [[1, 2, 3]]

    add(scheduler, [record(5, at(1, 2), size=900)], 0.05)
    assert all_sent(scheduler, 0.05) == [[0, 5]]
    assert scheduler.waiting.rows == 1


def test_what_waited_long_enough_is_combined_oldest_first() -> None:
    """One request carries what several queues have."""
    scheduler = make(shards(3))
    add(scheduler, [record(0, at(2, 3))], 0.0)
    add(scheduler, [record(1, at(0, 3))], 0.02)
    add(scheduler, [record(2, at(1, 3)), record(3, at(2, 3))], 0.04)

    assert scheduler.next_request(0.099) is None
    assert scheduler.wake_at(0.099) == 0.1
    assert all_sent(scheduler, 0.1) == [[0, 3]]
    assert scheduler.wake_at(0.1) == pytest.approx(0.12)
    assert all_sent(scheduler, 0.15) == [[1, 2]]
    assert scheduler.wake_at(0.15) is None


def test_nothing_lingers_while_the_task_waits() -> None:
    """All that waits goes at once, for as long as that is so."""
    scheduler = make(shards(2))
    add(scheduler, [record(0, at(0, 2)), record(1, at(1, 2))], 0.0)
    scheduler.waiting.hurry(True)
    assert scheduler.wake_at(0.0) == 0.0
    assert all_sent(scheduler, 0.0) == [[0, 1]]

    scheduler.waiting.hurry(False)
    add(scheduler, [record(2, at(0, 2))], 0.0)
    assert scheduler.next_request(0.0) is None


def test_nothing_lingers_when_no_more_comes() -> None:
    """All that waits goes at once, also when the task no longer waits for room."""
    scheduler = make(shards(2))
    add(scheduler, [record(0, at(0, 2)), record(1, at(1, 2))], 0.0)
    scheduler.waiting.flush()
    scheduler.waiting.hurry(False)
    assert scheduler.wake_at(0.0) == 0.0
    assert all_sent(scheduler, 0.0) == [[0, 1]]


def test_a_record_larger_than_a_request_travels_alone() -> None:
    """Nothing before it or behind it joins it, and it is not left behind."""
    scheduler = make(shards(1), request_bytes=500)
    add(scheduler, [record(0), record(1, size=900), record(2), record(3)], 0.0)
    scheduler.waiting.flush()

    assert all_sent(scheduler, 0.0) == [[0], [1], [2, 3]]


def test_only_the_paced_shard_waits_for_its_pace() -> None:
    """One busy shard holds up no other, and its own records go as its pace allows."""
    scheduler = make(shards(2), paces={"s0": paced(0.1)}, request_records=50)
    add(scheduler, [record(n, at(n % 2, 2)) for n in range(200)], 0.0)
    scheduler.waiting.flush()

    assert all_sent(scheduler, 0.0) == [list(range(1, 100, 2)), list(range(101, 200, 2))]
    wake = scheduler.wake_at(0.0)
    assert wake is not None
    assert 0.09 < wake < 0.11
    assert sum(len(sent) for sent in all_sent(scheduler, wake)) == 10


def test_an_older_combined_request_is_not_starved_by_full_queues() -> None:
    """Scheduler that are filled again and again do not always come first."""
    scheduler = make(shards(2), request_records=2)
    add(scheduler, [record(0, at(1, 2))], 0.0)
    add(scheduler, [record(n, at(0, 2)) for n in range(1, 9)], 0.05)

    assert rows(scheduler.next_request(0.05)) == [1, 2]
    assert rows(scheduler.next_request(0.2)) == [0]


def test_a_request_does_not_look_at_queues_that_have_no_part_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 1,000 queues that hold something, one busy queue's requests ask few paces."""
    scheduler = make(shards(1000), linger_s=10.0)
    add(scheduler, [record(n, at(n, 1000)) for n in range(1000)], 0.0)
    asked: list[float] = []
    ready_at = Pace.ready_at

    def counted(self: Pace, cost: float, now: float) -> float:
        asked.append(cost)
        return ready_at(self, cost, now)

    monkeypatch.setattr(Pace, "ready_at", counted)
    for n in range(100):
        add(scheduler, [record(1000 + 10 * n + i, at(7, 1000)) for i in range(10)], 1.0)
        request = send(scheduler, 1.0)
        assert len(request.records) == 10
        scheduler.settle(request, stored(request, "s7"), 1.0)

    assert len(asked) <= 4 * 100


# Answers.


def test_only_failed_records_are_sent_again_and_first() -> None:
    """They come before fresh ones of their queue, in their order; the rest is released."""
    scheduler = make(shards(1), request_records=4)
    add(scheduler, [record(n) for n in range(6)], 0.0)
    request = send(scheduler, 0.0)

    settled = scheduler.settle(
        request, said(Delivered("s0", "1"), THROTTLED, Delivered("s0", "2"), BROKEN), 1.0
    )

    assert (settled.rows, settled.window_bytes) == (2, 200)
    assert (settled.retried, settled.throttled, settled.surprised) == (2, 1, False)
    assert scheduler.waiting.rows == 4
    assert rows(scheduler.next_request(2.0)) == [1, 3, 4, 5]
    assert [one.tries for one in request.records] == [1, 2, 1, 2]
    assert [one.first_try for one in request.records] == [0.0] * 4


def test_a_queue_pauses_longer_with_each_failure_in_a_row_and_others_go_on() -> None:
    """Up to 0.1, 0.2, 0.4 ... 5 seconds, and from the start again once something was stored."""
    scheduler = make(shards(2))
    add(scheduler, [record(0, at(0, 2))], 0.0)
    scheduler.waiting.flush()
    now, pauses = 0.0, []
    for _ in range(8):
        scheduler.settle(send(scheduler, now), said(BROKEN), now)
        wake = scheduler.wake_at(now)
        assert wake is not None
        pauses.append(round(wake - now, 6))
        add(scheduler, [record(9, at(1, 2))], now)
        other = send(scheduler, now)
        assert rows(other) == [9]
        scheduler.settle(other, stored(other, "s1"), now)
        now = wake
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]

    add(scheduler, [record(1, at(0, 2))], now)
    scheduler.settle(send(scheduler, now), said(Delivered("s0", "1"), BROKEN), now)
    assert scheduler.wake_at(now) == pytest.approx(now + 0.1)


def test_records_to_send_again_do_not_linger() -> None:
    """Their pause was wait enough."""
    scheduler = make(shards(1), linger_s=5.0)
    add(scheduler, [record(0)], 0.0)
    scheduler.failed(send(scheduler, 5.0), "no answer", throttled=False, now=5.1)

    assert scheduler.wake_at(5.1) == pytest.approx(5.2)
    assert rows(scheduler.next_request(5.2)) == [0]


def test_requests_that_fail_together_are_one_failure() -> None:
    """An outage that meets ten requests at once does not end in the longest pause."""
    scheduler = make(shards(1), request_records=1)
    add(scheduler, [record(n) for n in range(10)], 0.0)
    requests = [send(scheduler, 0.0) for _ in range(10)]
    for request in requests:
        scheduler.failed(request, "no answer", throttled=False, now=1.0)

    assert scheduler.wake_at(1.0) == pytest.approx(1.1)


def test_a_request_without_an_answer_goes_again_as_a_whole() -> None:
    """Nothing of it is released; only a throttle slows its shards down."""
    paces: dict[str, Pace] = {}
    scheduler = make(shards(1), paces=paces)
    add(scheduler, [record(n) for n in range(3)], 0.0)
    scheduler.waiting.flush()
    settled = scheduler.failed(send(scheduler, 0.0), "no answer", throttled=False, now=1.0)
    assert (settled.rows, settled.retried, settled.throttled) == (0, 3, 0)
    assert paces["s0"].rate is None

    again = send(scheduler, 2.0)
    assert rows(again) == [0, 1, 2]
    settled = scheduler.failed(again, "busy", throttled=True, now=3.0)
    assert (settled.retried, settled.throttled) == (3, 3)
    assert paces["s0"].rate is not None


def test_a_record_is_given_up_when_its_time_since_the_first_try_is_over() -> None:
    """Time spent waiting before the first try does not count; the last reason is told."""
    scheduler = make(shards(1), retry_timeout_s=10.0)
    add(scheduler, [record(0), record(1)], 0.0)
    scheduler.settle(send(scheduler, 100.0), said(THROTTLED, THROTTLED), 109.8)
    with pytest.raises(WriteError) as caught:
        scheduler.settle(send(scheduler, 109.95), said(BROKEN, Delivered("s0", "1")), 109.98)
    assert caught.value.message == (
        "1 records could not be written to stream orders within 10s (2 tries). "
        "The last reason: InternalFailure: try later."
    )


def test_a_record_is_not_sent_again_after_its_time() -> None:
    """Its pause, or its shard's pace, may outlast it."""
    scheduler = make(shards(1), retry_timeout_s=10.0)
    add(scheduler, [record(0)], 0.0)
    scheduler.waiting.flush()
    scheduler.failed(send(scheduler, 0.0), "no answer", throttled=False, now=9.5)
    assert scheduler.wake_at(9.5) == pytest.approx(9.6)

    with pytest.raises(WriteError, match=r"1 records .* \(1 tries\)\. .*: no answer\."):
        scheduler.next_request(10.0)


def test_what_is_under_way_is_given_back_to_the_paces_at_the_end() -> None:
    """They outlive the task, and a cancelled request must not count for ever."""
    paces: dict[str, Pace] = {}
    scheduler = make(shards(1), paces=paces)
    add(scheduler, [record(n) for n in range(10)], 0.0)
    send(scheduler, 0.0)
    assert paces["s0"].allowance(0.0) == pytest.approx(0.99)

    scheduler.close()

    assert paces["s0"].allowance(0.0) == 1.0


# Order.


def test_in_order_one_record_of_a_key_is_under_way_at_a_time() -> None:
    """The next one goes when the one before is stored, whatever queue it is in."""
    scheduler = make(shards(2), ordered=True)
    keyed = [(0, "a", 0), (1, "a", 1), (2, "b", 0), (3, "a", 0)]
    add(scheduler, [record(row, at(shard, 2), key) for row, key, shard in keyed], 0.0)
    scheduler.waiting.flush()

    first = send(scheduler, 0.0)
    assert rows(first) == [0, 2]
    assert scheduler.next_request(0.0) is None
    scheduler.settle(first, said(BROKEN, Delivered("s0", "1")), 0.0)
    again = send(scheduler, 1.0)
    assert rows(again) == [0]
    scheduler.settle(again, stored(again, "s0"), 1.0)
    second = send(scheduler, 1.0)
    assert rows(second) == [1]
    scheduler.settle(second, stored(second, "s1"), 1.0)
    assert rows(scheduler.next_request(1.0)) == [3]


def test_in_order_what_waited_for_its_key_does_not_linger_as_well() -> None:
    """It has waited for a whole round already."""
    scheduler = make(shards(1), ordered=True, linger_s=5.0)
    add(scheduler, [record(0, key="a"), record(1, key="a")], 0.0)
    first = send(scheduler, 5.0)
    scheduler.settle(first, stored(first, "s0"), 5.1)

    assert rows(scheduler.next_request(5.1)) == [1]


def test_in_order_a_reshard_does_not_let_a_key_overtake_itself() -> None:
    """Rows under way through the old shard hold up those of their keys for the new one."""
    scheduler = make(shards(1), ordered=True)
    add(scheduler, [record(0, key="a"), record(1, key="a"), record(2, key="b")], 0.0)
    scheduler.waiting.flush()
    request = send(scheduler, 0.0)
    add(scheduler, [record(3, key="b"), record(4, key="c")], 0.0)

    scheduler.reshard(Prediction(shards(2)), 0.5)

    other = send(scheduler, 0.5)
    assert rows(other) == [4]
    scheduler.settle(request, said(BROKEN, Delivered("s0", "1")), 0.6)
    assert sorted(rows(scheduler.next_request(2.0))) == [0, 3]


def test_in_order_aggregates_wait_for_all_their_keys() -> None:
    """An aggregate that shares a key with one under way waits; the one behind it may pass."""
    scheduler = make(shards(1), ordered=True, aggregate=2, request_records=1)
    keys = ["a", "b", "b", "c", "d", "e"]
    add(scheduler, [record(row, None, key) for row, key in enumerate(keys)], 0.0)
    scheduler.waiting.flush()

    first, other = send(scheduler, 0.0), send(scheduler, 0.0)
    assert (rows(first), rows(other)) == ([0, 1], [4, 5])
    assert scheduler.next_request(0.0) is None
    scheduler.settle(first, stored(first, "s0"), 0.1)
    assert rows(scheduler.next_request(0.1)) == [2, 3]


def test_in_order_rows_in_an_unknown_shard_hold_up_their_keys() -> None:
    """They may have to go again, and what comes after them must not be there before."""
    scheduler = make(shards(1), ordered=True, aggregate=1)
    add(scheduler, [record(0, None, "a"), record(1, None, "a"), record(2, None, "b")], 0.0)
    scheduler.waiting.flush()
    request = send(scheduler, 0.0)
    assert rows(request) == [0, 2]
    scheduler.settle(request, stored(request, "new"), 0.1)
    scheduler.reshard(Prediction(shards(1)), 1.0)
    assert scheduler.next_request(1.0) is None

    known = shards(1) | {"new": Shard("new", ("s0",))}
    assert scheduler.reshard(Prediction(known), 2.0).rows == 2
    assert rows(scheduler.next_request(2.0)) == [1]


# Aggregates.


def test_open_aggregates_close_after_the_linger_and_not_in_a_hurry() -> None:
    """A task that waits for room must not make aggregates small; the end of the rows may."""
    scheduler = make(shards(2), aggregate=100)
    add(scheduler, [record(0, at(0, 2)), record(1, at(1, 2)), record(2, at(0, 2))], 0.0)
    scheduler.waiting.hurry(True)
    assert scheduler.next_request(0.05) is None
    assert scheduler.waiting.rows == 3
    assert scheduler.wake_at(0.05) == 0.1
    assert all_sent(scheduler, 0.1) == [[0, 2, 1]]

    add(scheduler, [record(3, at(0, 2))], 0.2)
    scheduler.waiting.flush()
    assert scheduler.wake_at(0.2) == 0.2
    assert all_sent(scheduler, 0.2) == [[3]]


def test_rows_of_an_unknown_shard_are_not_put_together() -> None:
    """Readers leave out what they find in another shard than its own; listings may have holes."""
    holed = {name: shard for name, shard in shards(2).items() if shard.hash_range[0] == 0}
    closed = {"closed": Shard("closed", closed=True, hash_range=(MAX_HASH_KEY, MAX_HASH_KEY))}
    scheduler = make({**holed, **closed, "also": Shard("also", hash_range=(5, 5))}, aggregate=100)
    add(scheduler, [record(row, MAX_HASH_KEY - 1) for row in range(3)], 0.0)
    scheduler.waiting.flush()

    assert [len(user_records(one)) for one in send(scheduler, 0.0).records] == [1, 1, 1]


def aggregate_of(scheduler: Scheduler, hash_keys: Iterable[int]) -> Request:
    """A request with one aggregate of rows with these hash keys."""
    add(scheduler, [record(row, key) for row, key in enumerate(hash_keys)], 0.0)
    scheduler.waiting.flush()
    request = send(scheduler, 0.0)
    assert len(request.records) == 1
    return request


def test_rows_of_an_aggregate_that_landed_where_they_do_not_belong_go_again() -> None:
    """Only they; readers find the others where they are."""
    split = shards(1) | {
        "low": Shard("low", ("s0",), hash_range=(0, 2**127 - 1)),
        "high": Shard("high", ("s0",), hash_range=(2**127, MAX_HASH_KEY)),
    }
    split["s0"] = Shard("s0", closed=True)
    scheduler = make(shards(1), aggregate=4)
    request = aggregate_of(scheduler, [5, MAX_HASH_KEY, 6, MAX_HASH_KEY - 1])

    settled = scheduler.settle(request, said(Delivered("low", "1")), 0.5)
    assert (settled.rows, settled.misplaced, settled.surprised) == (0, [], True)
    assert not is_empty(scheduler)
    assert rows_in_unknown_shards(scheduler) == 4
    assert scheduler.next_request(0.5) is None

    settled = scheduler.reshard(Prediction(split), 1.0)
    assert (settled.rows, settled.window_bytes, settled.surprised) == (2, 200, False)
    assert settled.misplaced == [Misplaced("low", rows=2, window_bytes=200)]
    again = send(scheduler, 1.0)
    assert rows(again) == [1, 3]
    assert Prediction(split).shard_of(again.records[0]) == "high"
    assert again.records[0].first_try == 0.0
    assert scheduler.settle(again, stored(again, "high"), 1.5).rows == 2
    assert is_empty(scheduler)


def test_shards_that_stay_unknown_end_the_task_in_time() -> None:
    """Rows that may be where nobody finds them are not taken for delivered."""
    scheduler = make(shards(1), aggregate=4, retry_timeout_s=10.0)
    scheduler.settle(aggregate_of(scheduler, [1, 2]), said(Delivered("new", "1")), 0.5)
    assert scheduler.reshard(Prediction(shards(1)), 1.0).surprised

    assert scheduler.next_request(9.9) is None
    assert scheduler.wake_at(9.9) == 10.0
    with pytest.raises(WriteError, match="shard new"):
        scheduler.next_request(10.0)


def test_a_plain_record_that_landed_elsewhere_is_delivered_and_a_surprise() -> None:
    """It is where readers look for it: they leave out nothing but rows in aggregates."""
    scheduler = make(shards(2))
    add(scheduler, [record(0)], 0.0)
    settled = scheduler.settle(send(scheduler, 0.1), said(Delivered("s9", "1")), 0.2)
    assert (settled.rows, settled.surprised) == (1, True)

    without = make(None)
    add(without, [record(0)], 0.0)
    settled = without.settle(send(without, 0.1), said(Delivered("s9", "1")), 0.2)
    assert (settled.rows, settled.surprised) == (1, False)


# Reshards.


@pytest.mark.parametrize("aggregate", [0, 3])
def test_a_reshard_deals_out_anew_what_waits(aggregate: int) -> None:
    """Each row travels with others of its new shard, in row order; none is lost."""
    scheduler = make(shards(1), aggregate=aggregate, linger_s=1.0, request_records=100)
    add(scheduler, [record(n, at(n % 2, 2)) for n in range(8)], 0.0)

    scheduler.reshard(Prediction(shards(2)), 0.1)

    assert scheduler.waiting.rows == 8
    scheduler.waiting.flush()
    request = send(scheduler, 0.2)
    assert Counter(rows(request)) == Counter(range(8))
    for one in request.records:
        assert len({user.row % 2 for user in user_records(one)}) == 1
    for parity in (0, 1):
        assert [r for r in rows(request) if r % 2 == parity] == list(range(parity, 8, 2))


def test_queues_that_are_merged_send_in_row_order() -> None:
    """Rows of both old shards alternate as they came."""
    scheduler = make(shards(2), request_records=100)
    add(scheduler, [record(n, at(n % 2, 2)) for n in range(8)], 0.0)
    scheduler.waiting.flush()

    scheduler.reshard(Prediction(shards(1)), 0.1)

    assert rows(scheduler.next_request(0.2)) == list(range(8))


def test_what_was_under_way_through_a_reshard_goes_again_by_the_new_shards() -> None:
    """An aggregate that failed is taken apart: its rows belong to different shards now."""
    scheduler = make(shards(1), aggregate=4)
    request = aggregate_of(scheduler, [5, MAX_HASH_KEY, 6, MAX_HASH_KEY - 1])
    scheduler.reshard(Prediction(shards(2)), 0.1)
    scheduler.failed(request, "no answer", throttled=False, now=0.2)

    again = send(scheduler, 1.0)
    assert sorted([u.row for u in user_records(one)] for one in again.records) == [[0, 2], [1, 3]]
    assert [one.first_try for one in again.records] == [0.0, 0.0]


def test_paces_of_shards_that_are_still_there_are_kept() -> None:
    """Those of closed ones go."""
    paces: dict[str, Pace] = {}
    scheduler = make(shards(2), paces=paces)
    add(scheduler, [record(0, at(0, 2)), record(1, at(1, 2))], 0.0)
    kept = paces["s0"]
    after = shards(2)
    after["s1"] = Shard("s1", hash_range=after["s1"].hash_range, closed=True)
    after["s2"] = Shard("s2", ("s1",), hash_range=after["s1"].hash_range)

    scheduler.reshard(Prediction(after), 1.0)

    assert set(paces) == {"s0", "s2"}
    assert paces["s0"] is kept
