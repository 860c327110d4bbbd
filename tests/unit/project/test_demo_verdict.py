"""The demo's verdict: the right result passes, and each kind of wrong result fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from examples.demo.verdict import Latency, Record, judge, latency, rate, while_up

# Shard 1 is split into 3 and 4, and 4 is merged with 2 into 5.
PARENTS = {"1": (), "2": (), "3": ("1",), "4": ("1",), "5": ("4", "2")}


def record(
    number: int | None, shard: str = "1", sequence: int | None = None, **more: Any
) -> Record:
    """A record of which only what matters to a test is given."""
    values = {"key": "k", "created_ms": 0, "arrived_ms": 0, "seen_ms": 0, **more}
    position = number if sequence is None else sequence
    return Record(id=number, shard=shard, sequence=position or 0, **values)


def keyed(*records: tuple[int, str]) -> list[Record]:
    """A batch of records, given as (id, shard), whose sequence numbers are their ids."""
    return [record(number, shard, key=f"key-{shard}") for number, shard in records]


RIGHT = [
    keyed((0, "1"), (1, "2")),
    keyed((2, "1"), (3, "2")),
    keyed((4, "3"), (5, "4")),
    [],
    keyed((6, "5"), (7, "3")),
]


def test_everything_once_and_in_order_passes() -> None:
    """A run through a split and a merge, in which all is right."""
    verdict = judge(8, RIGHT, PARENTS)
    assert verdict.passed
    assert (verdict.written, verdict.read) == (8, 8)
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (0, 0, 0)


def test_a_missing_record_is_lost() -> None:
    """Read fewer than written: the difference is lost."""
    verdict = judge(9, RIGHT, PARENTS)
    assert verdict.lost == 1
    assert not verdict.passed


def test_a_record_in_two_batches_is_duplicated() -> None:
    """The same record delivered again, right behind itself: twice, and not out of order."""
    verdict = judge(8, [*RIGHT, keyed((7, "3"))], PARENTS)
    assert (verdict.duplicated, verdict.stored_twice, verdict.out_of_order) == (1, 0, 0)
    assert not verdict.passed


def test_a_record_twice_in_one_batch_is_duplicated() -> None:
    """Also within a batch."""
    verdict = judge(1, [keyed((0, "1"), (0, "1"))], PARENTS)
    assert verdict.duplicated == 1
    assert not verdict.passed


def test_an_event_stored_twice_is_told_apart_from_one_delivered_twice() -> None:
    """Another sequence number: the sink sent it again. It fails all the same."""
    verdict = judge(1, [[record(0, sequence=10), record(0, sequence=11)]], PARENTS)
    assert (verdict.duplicated, verdict.stored_twice) == (1, 1)
    assert not verdict.passed


def test_a_lost_and_a_doubled_record_do_not_cancel_out() -> None:
    """As many read as written, and yet wrong."""
    verdict = judge(2, [keyed((0, "1"), (0, "1"))], PARENTS)
    assert verdict.read == verdict.written
    assert (verdict.lost, verdict.duplicated) == (1, 1)
    assert not verdict.passed


@pytest.mark.parametrize(
    ("wrong", "batches"),
    [
        ("sequence numbers fall within a batch", [keyed((1, "1"), (0, "1"))]),
        ("sequence numbers fall from batch to batch", [keyed((1, "1")), keyed((0, "1"))]),
        ("a child before its parent", [keyed((1, "3")), keyed((0, "1"))]),
        ("a child beside its parent in one batch", [keyed((0, "1"), (1, "3"))]),
        ("a grandchild before its grandparent", [keyed((1, "5")), keyed((0, "1"))]),
        ("a merged shard before its second parent", [keyed((1, "5")), keyed((0, "2"))]),
        ("a key in shards that are no kin", [[record(0, "2")], [record(1, "3")]]),
        ("a key in a shard unknown to the stream", [[record(0, "1")], [record(1, "9")]]),
    ],
)
def test_a_record_in_the_wrong_place_is_out_of_order(
    wrong: str, batches: Sequence[Sequence[Record]]
) -> None:
    """Within a shard, from parents to children, and along a key's way through the shards."""
    verdict = judge(2, batches, PARENTS)
    assert verdict.out_of_order == 1, wrong
    assert (verdict.lost, verdict.duplicated) == (0, 0)
    assert not verdict.passed


def test_sequence_numbers_are_compared_as_numbers_of_any_size() -> None:
    """56 digits, as Kinesis has them."""
    low, high = 49 * 10**54, 49 * 10**54 + 1
    batches = [[record(0, sequence=low), record(1, sequence=high)]]
    assert judge(2, batches, PARENTS).passed


def test_the_order_of_writing_is_not_judged() -> None:
    """The sink may store a key's events in another order than they were made."""
    batches = [[record(1, sequence=10), record(0, sequence=11)]]
    assert judge(2, batches, PARENTS).passed


@pytest.mark.parametrize("number", [None, -1, 8])
def test_a_record_that_nobody_wrote_fails(number: int | None) -> None:
    """Data that is no event of the run, or an id never written."""
    verdict = judge(8, [*RIGHT, [record(number, "3", sequence=99)]], PARENTS)
    assert (verdict.unexpected, verdict.lost, verdict.duplicated) == (1, 0, 0)
    assert not verdict.passed


def test_a_batch_that_changed_when_it_was_run_again_fails() -> None:
    """Though the records add up: a batch must be the same range every time."""
    assert not judge(8, RIGHT, PARENTS, changed=1).passed


def test_nothing_written_proves_nothing() -> None:
    """An empty run does not pass."""
    assert not judge(0, [], PARENTS).passed


def test_latency_is_taken_by_nearest_rank() -> None:
    """A hundred records that took 1 to 100 ms."""
    assert latency((1000, 1000 + ms) for ms in range(100, 0, -1)) == Latency(50, 99, 100, 100)
    assert latency([(5, 8)]) == Latency(3, 3, 3, 1)
    assert latency([]) is None


def test_an_outage_hides_the_records_that_had_to_wait_for_its_end() -> None:
    """Arrived during the outage, or before it and not seen until after."""
    before = record(0, arrived_ms=10, seen_ms=15)
    caught = record(1, arrived_ms=18, seen_ms=35)
    inside = record(2, arrived_ms=25, seen_ms=36)
    after = record(3, arrived_ms=30, seen_ms=36)
    assert while_up([before, caught, inside, after], [(20, 30)]) == [before, after]


def test_rate_is_taken_between_the_first_and_the_last_record() -> None:
    """Three records within two seconds."""
    assert rate([1000, 2000, 3000]) == 1.5
    assert rate([1000]) == rate([]) == 0.0
