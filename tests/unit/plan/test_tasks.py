"""Which ranges share a task: by bytes, and a shard with those it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_ds.plan.lineage import lineage_groups
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON
from kinesis_ds.plan.tasks import TASK_BYTES, pack
from tests.support.builders import listing, shard

if TYPE_CHECKING:
    from collections.abc import Sequence


MIB = 1024 * 1024


def planned(
    shard_id: str, mib: float | None = None, lineage: str = "", stream: str = "arn"
) -> PlannedRange:
    nbytes = None if mib is None else int(mib * MIB)
    return PlannedRange(
        "orders", stream, shard_id, TRIM_HORIZON, SHARD_END, None, None, True, nbytes, lineage
    )


def packed(
    ranges: Sequence[PlannedRange], shards_per_task: int | None = None, max_tasks: int | None = None
) -> list[str]:
    """The shards of each task, as one text a task."""
    tasks = pack(ranges, shards_per_task, max_tasks)
    return ["".join(r.shard_id for r in task) for task in tasks]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([planned("a", 1), planned("b", 2), planned("c", 0)], ["abc"], id="small ones"),
        pytest.param(
            [planned("a", 9), planned("b", 9), planned("c", 7), planned("d", 7)],
            ["ac", "bd"],
            id="as many tasks as the bytes fill, evenly",
        ),
        pytest.param(
            [planned("a", 1), planned("b", 100), planned("c", 2)],
            ["ac", "b"],
            id="a large one does not wait for others",
        ),
        pytest.param(
            [planned("a"), planned("b", 1), planned("c"), planned("d", 1)],
            ["a", "bd", "c"],
            id="one of unknown size is alone",
        ),
        pytest.param(
            [planned("a", 9, "x"), planned("b", 1), planned("c", 9, "x"), planned("d", 9, "x")],
            ["acd", "b"],
            id="a lineage stays together, however large",
        ),
        pytest.param(
            [planned("a", 1, "x"), planned("b", None, "x"), planned("c", 1)],
            ["ab", "c"],
            id="a lineage of which one size is unknown",
        ),
        pytest.param(
            [planned("a", None, "x"), planned("b", None, "x", "other")],
            ["a", "b"],
            id="lineages of two streams are two",
        ),
    ],
)
def test_ranges_are_packed_by_their_bytes(ranges: list[PlannedRange], expected: list[str]) -> None:
    """Small ones together, large ones and unknown ones alone; parents before their children."""
    assert packed(ranges) == expected


@pytest.mark.parametrize(
    ("ranges", "shards", "expected"),
    [
        pytest.param("abcde", 2, ["ab", "cd", "e"], id="in turn"),
        pytest.param("abc", 1, ["a", "b", "c"], id="one each"),
        pytest.param("abc", 9, ["abc"], id="all"),
    ],
)
def test_shards_per_task_is_what_the_user_says(
    ranges: str, shards: int, expected: list[str]
) -> None:
    """Whatever their sizes, known or not."""
    of_sizes = [planned(shard, size) for shard, size in zip(ranges, [None, 99] * 9, strict=False)]

    assert packed(of_sizes, shards) == expected


def test_a_lineage_is_not_parted_by_shards_per_task() -> None:
    """The order of a key is a promise, the number of shards a task a wish."""
    ranges = [planned(s, None, lineage) for s, lineage in zip("abcde", "xyxzx", strict=True)]

    assert packed(ranges, 2) == ["ace", "bd"]
    assert packed(ranges, 4) == ["aceb", "d"]
    assert packed([planned("a"), planned("b", None, "x"), planned("c", None, "x")], 2) == [
        "a",
        "bc",
    ]


def test_there_are_no_more_tasks_than_wanted() -> None:
    """The heaviest go to different tasks; one of unknown size counts as a whole task."""
    ranges = [planned("a"), planned("b", 1), planned("c", 40), planned("d"), planned("e", 1)]

    assert packed(ranges, max_tasks=2) == ["abde", "c"]
    assert packed(ranges, max_tasks=1) == ["abcde"]
    assert packed(ranges, max_tasks=99) == packed(ranges)
    assert packed([planned(s) for s in "abcdef"], 1, 3) == ["ad", "be", "cf"]


def test_every_range_is_in_one_task() -> None:
    """None lost, none twice, whatever the limits."""
    ranges = [
        planned(f"{i}", None if i % 7 == 0 else i % 30, f"{i % 40}" if i % 3 else "")
        for i in range(300)
    ]
    for limits in [(None, None), (3, None), (None, 5), (2, 4)]:
        tasks = pack(ranges, *limits)
        assert sorted(int(r.shard_id) for task in tasks for r in task) == list(range(300))
        assert all(tasks)
        for task in tasks:
            assert [int(r.shard_id) for r in task if r.lineage == "1"] == sorted(
                int(r.shard_id) for r in task if r.lineage == "1"
            )


def test_no_task_is_much_larger_than_it_should_be() -> None:
    """At most a task's bytes and one more range."""
    tasks = pack([planned(str(i), 1 + i % 5) for i in range(1000)])

    assert max(sum(r.nbytes or 0 for r in task) for task in tasks) <= TASK_BYTES + 5 * MIB


def test_ten_thousand_shards_of_one_lineage_are_packed() -> None:
    """Two generations that are all related, and a line of ten thousand."""
    shards = [shard(f"p{i:05}", closed=True) for i in range(5_000)]
    shards += [shard(f"q{i:05}", f"p{i:05}", f"p{(i + 1) % 5_000:05}") for i in range(5_000)]
    shards += [shard(f"z{i:05}", f"z{i - 1:05}") for i in range(1, 10_000)]
    listed = listing(*shards)
    groups = lineage_groups(listed)
    tasks = pack([planned(s, None, group) for s, group in groups.items()])
    pack([planned(s, i % 9) for i, s in enumerate(groups)])

    assert len(tasks) == 2
