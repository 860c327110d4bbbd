"""The gate that lets one record of a key pass at a time."""

from __future__ import annotations

from kinesis_ds.writer.key_order import KeyOrder
from kinesis_ds.writer.records import Record, plain


def aggregate(keys: str) -> Record:
    """One with these keys, a letter each."""
    record = plain(b"", keys[0], "0", 1, 0)
    record.keys = tuple(keys)
    return record


def test_a_record_passes_when_it_is_first_in_line_for_each_of_its_keys() -> None:
    """In the order in which they came, however their keys overlap."""
    gate = KeyOrder()
    ab, bc, c, d = aggregate("ab"), aggregate("bc"), aggregate("c"), aggregate("d")

    assert [gate.add(record) for record in (ab, bc, c, d)] == [True, False, False, True]
    assert len(gate) == 2
    assert gate.done(d) == []
    assert gate.done(ab) == [bc]
    assert gate.done(bc) == [c]
    assert gate.done(c) == []
    assert gate.add(aggregate("abcd"))


def test_what_takes_a_records_place_goes_before_all_that_wait_behind_it() -> None:
    """Also where several share a key: they follow each other, in their order."""
    gate = KeyOrder()
    old, behind, freed = aggregate("abc"), aggregate("ab"), aggregate("c")
    gate.add(old)
    gate.add(behind)
    gate.add(freed)
    first, second, third = aggregate("a"), aggregate("ab"), aggregate("a")

    assert gate.replace(old, [first, second, third]) == [first, freed]
    assert gate.done(first) == [second]
    assert gate.done(second) == [third]
    assert gate.done(third) == [behind]


def test_what_waits_is_drained_in_the_order_of_the_lines() -> None:
    """Those that took the place of another come first; what has passed keeps its keys."""
    gate = KeyOrder()
    old, behind = aggregate("ab"), aggregate("ab")
    gate.add(old)
    gate.add(behind)
    first, second = aggregate("a"), aggregate("ab")
    gate.replace(old, [first, second])

    assert gate.drain([first]) == [second, behind]
    assert len(gate) == 0
    assert not gate.add(aggregate("a"))
    assert gate.add(aggregate("b"))
