"""Which shards may be read now."""

from __future__ import annotations

import pytest

from kinesis_ds.shards import ShardMap, startable, vanished
from tests.support.builders import listing, shard

SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"))
MERGE = listing(shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r"))
GENERATIONS = listing(shard("g0", closed=True), shard("g1", "g0", closed=True), shard("g2", "g1"))


@pytest.mark.parametrize(
    ("listed", "tracked", "drained", "expected"),
    [
        pytest.param({}, "", "", [], id="empty stream"),
        pytest.param(SPLIT, "", "", ["p"], id="children wait for a parent nobody reads yet"),
        pytest.param(SPLIT, "p", "", [], id="children wait for a parent being read"),
        pytest.param(SPLIT, "p", "p", ["a", "b"], id="both children follow a drained parent"),
        pytest.param(SPLIT, "pa", "p", ["b"], id="a shard is started once"),
        pytest.param(MERGE, "lr", "l", [], id="a merged shard waits for its second parent"),
        pytest.param(MERGE, "lr", "lr", ["m"], id="a merged shard follows both parents"),
        pytest.param(MERGE, "l", "l", ["r"], id="a parent not begun holds its child back"),
        pytest.param(GENERATIONS, "", "", ["g0"], id="only the oldest generation starts"),
        pytest.param(GENERATIONS, ["g0"], ["g0"], ["g1"], id="generation after generation"),
        pytest.param(
            listing(shard("a", "gone")), "", "", ["a"], id="a parent out of retention holds nothing"
        ),
        pytest.param(
            listing(shard("a", "gone")),
            ["gone"],
            "",
            [],
            id="a parent still being read holds, listed or not",
        ),
        pytest.param(
            listing(shard("a", "gone")),
            ["gone"],
            ["gone"],
            ["a"],
            id="a drained parent no longer listed",
        ),
    ],
)
def test_startable(listed: ShardMap, tracked: str, drained: str, expected: list[str]) -> None:
    """A shard starts once, and only behind parents that are drained or out of retention."""
    assert [s.shard_id for s in startable(listed, set(tracked), set(drained))] == expected


def test_startable_comes_in_the_order_of_shard_ids() -> None:
    """The order does not depend on the order of the listing."""
    listed = listing(*(shard(f"s{i}") for i in (3, 1, 2)))

    assert [s.shard_id for s in startable(listed, (), ())] == ["s1", "s2", "s3"]


@pytest.mark.parametrize(
    ("tracked", "drained", "expected"),
    [
        pytest.param("pab", "", [], id="all listed"),
        pytest.param("pxy", "y", ["x"], id="an ended shard may go"),
        pytest.param("zx", "", ["x", "z"], id="sorted"),
    ],
)
def test_vanished(tracked: str, drained: str, expected: list[str]) -> None:
    """Records are lost where a shard left the list before it was read to its end."""
    assert vanished(SPLIT, set(tracked), set(drained)) == expected
