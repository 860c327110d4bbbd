"""Which process reads a shard, and what part of a bound it gets."""

from __future__ import annotations

import pytest

from kinesis_ds.agent.remote.placement import least_loaded, shares


def test_shards_are_spread_evenly_and_the_first_of_equals_is_taken() -> None:
    """The same shards in the same order are placed the same way."""
    loads = [0, 0, 0]
    placed = []
    for _ in range(7):
        process = least_loaded(loads)
        loads[process] += 1
        placed.append(process)

    assert placed == [0, 1, 2, 0, 1, 2, 0]


def test_children_go_where_their_parents_have_left_room() -> None:
    """A parent at its end counts no more."""
    assert least_loaded([2, 1, 2]) == 1


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [(10, 1, [10]), (10, 3, [4, 3, 3]), (2, 2, [1, 1]), (256, 2, [128, 128])],
)
def test_parts_add_up_to_the_bound(total: int, count: int, expected: list[int]) -> None:
    """Not a byte more than the user allowed."""
    assert shares(total, count) == expected
    assert sum(expected) == total
