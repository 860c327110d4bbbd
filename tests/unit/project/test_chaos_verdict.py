"""The judgement of a chaos run can fail: each broken promise is seen, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration.chaos.payload import (
    Item,
    head_of,
    make_data,
    read_data,
    read_head,
    tag_data,
    untag_data,
)
from integration.chaos.verdict import Attempt, Delivered, Evidence, PutCall, Stored, judge

A0, A1, B0, A2 = Item(0, "a", 0), Item(1, "a", 1), Item(2, "b", 0), Item(3, "a", 2)
FIRST = Attempt("0.1.s0.0", 1, "s0", "first")
SECOND = Attempt("0.2.s1.0", 2, "s1", "first")


def good() -> Evidence:
    """Two batches: a parent with three records, and its child with one."""
    return Evidence(
        written=[A0, A1, B0, A2],
        batches={
            1: [Delivered("s0", 10, A0), Delivered("s0", 11, A1), Delivered("s0", 12, B0)],
            2: [Delivered("s1", 20, A2)],
        },
        changed=[],
        stored=[
            Stored(A0, FIRST.tag),
            Stored(A1, FIRST.tag),
            Stored(B0, FIRST.tag),
            Stored(A2, SECOND.tag),
        ],
        attempts=[FIRST, SECOND],
        calls=[
            PutCall(FIRST.tag, (0, 1, 2), answered=True),
            PutCall(SECOND.tag, (3,), answered=True),
        ],
    )


def problem(evidence: Evidence) -> str:
    """The one problem there is."""
    (found,) = judge(evidence).problems
    return found


def test_what_is_right_passes() -> None:
    verdict = judge(good())
    assert verdict.passed
    assert verdict.duplicates == {}


# --- the source ---------------------------------------------------------------------------------


def test_a_lost_record_is_seen() -> None:
    evidence = good()
    batches = {1: evidence.batches[1][:2], 2: evidence.batches[2]}
    assert problem(replace(evidence, batches=batches)).startswith("source lost 1 records")


@pytest.mark.parametrize("batch", [1, 2])
def test_a_record_delivered_twice_is_seen(batch: int) -> None:
    """With the same number in its shard's next batch, or under another number."""
    evidence = good()
    again = Delivered("s9", 99, B0)
    batches = {**evidence.batches, batch: [*evidence.batches[batch], again]}
    found = judge(replace(evidence, batches=batches)).problems
    assert "source delivered 1 records more than once: 2 in batch 1 s0 12" in found[0]


@pytest.mark.parametrize("item", [None, Item(0, "a", 7), Item(77, "a", 0)])
def test_a_damaged_or_foreign_record_is_seen(item: Item | None) -> None:
    evidence = good()
    batches = {**evidence.batches, 2: [*evidence.batches[2], Delivered("s1", 21, item)]}
    found = " ".join(judge(replace(evidence, batches=batches)).problems)
    assert "1 records that nobody wrote: batch 2 s1 21" in found


def test_disorder_in_a_shard_is_seen() -> None:
    evidence = good()
    first, second, third = evidence.batches[1]
    batches = {**evidence.batches, 1: [first, third, second]}
    assert "1 records out of their shard's order" in problem(replace(evidence, batches=batches))


def test_a_child_before_its_parent_is_seen_by_its_keys() -> None:
    evidence = good()
    batches = {1: evidence.batches[2], 2: evidence.batches[1]}
    assert "2 records out of their key's order" in problem(replace(evidence, batches=batches))


def test_a_child_in_the_batch_of_its_parent_is_seen() -> None:
    """The tasks of a batch run side by side: right by chance is not right."""
    evidence = good()
    batches = {1: [*evidence.batches[1], *evidence.batches[2]]}
    assert "1 records out of their key's order" in problem(replace(evidence, batches=batches))


def test_a_changed_rerun_and_any_other_trouble_are_told() -> None:
    evidence = replace(good(), changed=["batch 1 changed"], troubles=["a thread is left"])
    assert judge(evidence).problems == ("batch 1 changed", "a thread is left")


def test_an_empty_run_shows_nothing() -> None:
    """Or a harness that writes nothing would pass for ever."""
    assert not judge(Evidence([], {}, [], [], [], [])).passed


# --- the sink -----------------------------------------------------------------------------------


def test_a_record_that_the_sink_lost_is_seen() -> None:
    evidence = good()
    assert "sink lost 1 records" in problem(replace(evidence, stored=evidence.stored[1:]))


def test_a_record_that_the_sink_damaged_is_seen() -> None:
    evidence = good()
    stored = [*evidence.stored, Stored(None, FIRST.tag)]
    assert "sink stored 1 records that nobody wrote" in problem(replace(evidence, stored=stored))


def test_a_duplicate_of_an_answered_call_is_unexplained() -> None:
    """A whole request sent again after a partial failure looks like this."""
    evidence = good()
    stored = [*evidence.stored, Stored(A0, FIRST.tag)]
    calls = [*evidence.calls, PutCall(FIRST.tag, (0,), answered=True)]
    found = problem(replace(evidence, stored=stored, calls=calls))
    assert "0 2 times by 0.1.s0.0, 0 answers were lost" in found


def test_a_lost_answer_explains_one_duplicate_of_its_own_records() -> None:
    evidence = good()
    calls = [*evidence.calls, PutCall(FIRST.tag, (0,), answered=False)]
    one = replace(evidence, calls=calls, stored=[*evidence.stored, Stored(A0, FIRST.tag)])
    two = replace(one, stored=[*one.stored, Stored(A0, FIRST.tag)])
    other = replace(evidence, calls=calls, stored=[*evidence.stored, Stored(A1, FIRST.tag)])

    assert judge(one).passed
    assert judge(one).duplicates == {"answer lost": 1}
    assert "0 3 times" in problem(two)
    assert "1 2 times" in problem(other)


@pytest.mark.parametrize("reason", ["rerun", "retry", "speculation"])
def test_another_attempt_explains_its_records(reason: str) -> None:
    evidence = good()
    again = Attempt("1.1.s0.0", 1, "s0", reason)
    verdict = judge(
        replace(
            evidence,
            attempts=[*evidence.attempts, again],
            stored=[*evidence.stored, Stored(A0, again.tag), Stored(A1, again.tag)],
        )
    )
    assert verdict.passed
    assert verdict.duplicates == {reason: 2}


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (None, "which was never made"),
        (Attempt("x", 1, "s0", "first"), "two first attempts"),
        (Attempt("x", 2, "s1", "rerun"), "different batches"),
    ],
)
def test_an_attempt_without_a_reason_explains_nothing(again: Attempt | None, said: str) -> None:
    evidence = good()
    attempts = [*evidence.attempts, *([again] if again else [])]
    stored = [*evidence.stored, Stored(A0, "x")]
    assert said in problem(replace(evidence, attempts=attempts, stored=stored))


# --- the records --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 30, 5000])
def test_a_record_tells_itself(size: int) -> None:
    item = Item(12, "key-3", 4)
    data = make_data(item, size)
    assert read_data(data) == item
    assert read_head(head_of(data)) == item
    assert untag_data(tag_data(data, "1.2.s.0")) == (data, "1.2.s.0")


@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_changed_byte_is_seen(at: int) -> None:
    data = bytearray(make_data(Item(12, "key-3", 4), 100))
    data[at] ^= 1
    assert read_data(bytes(data)) != Item(12, "key-3", 4)
    assert read_data(bytes(data[:-1])) is None
