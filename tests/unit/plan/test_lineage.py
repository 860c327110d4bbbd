"""Which shards belong together because one came from the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_ds.plan.lineage import ancestors, descendants, lineage_groups
from tests.support.builders import listing, shard

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import Shard

LINE = [shard("c", "b"), shard("b", "a", closed=True), shard("a", closed=True)]
SPLIT = [shard("p", closed=True), shard("x", "p"), shard("y", "p"), shard("z")]
MERGE = [shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r")]


@pytest.mark.parametrize(
    ("shards", "among", "expected"),
    [
        pytest.param(LINE, None, "a:a b:a c:a", id="parents first, whatever their ids"),
        pytest.param(SPLIT, None, "p:p x:p y:p z:z", id="split"),
        pytest.param(MERGE, None, "l:l r:l m:l", id="merge"),
        pytest.param(SPLIT, "xyz", "x:x y:y z:z", id="siblings without their parent are strangers"),
        pytest.param(LINE, "ac", "a:a c:a", id="over a generation that does not count"),
        pytest.param(MERGE, "rm", "r:m m:m", id="one of two parents"),
        pytest.param(
            [*MERGE, shard("n", "m")], "lrn", "l:l r:l n:l", id="two parents over a generation"
        ),
        pytest.param([shard("k", "gone")], None, "k:k", id="a parent that is not listed"),
        pytest.param(SPLIT, "", "", id="none"),
        pytest.param(SPLIT, ["x", "never heard of"], "x:x", id="one that is not listed"),
    ],
)
def test_shards_are_grouped_by_lineage(
    shards: list[Shard], among: str | None, expected: str
) -> None:
    """One group for all whose records may have a key in common in turn, parents first."""
    groups = lineage_groups(listing(*shards), among)

    assert " ".join(f"{s}:{group}" for s, group in groups.items()) == expected


def test_a_listing_that_goes_in_circles_is_survived() -> None:
    """No service lists that; nothing hangs on one that does."""
    assert set(lineage_groups(listing(shard("a", "b"), shard("b", "a")))) == {"a", "b"}


def test_ancestors_and_descendants_over_generations() -> None:
    """Only those that are listed, and never the shard itself."""
    line, merge = listing(*LINE, shard("k", "gone")), listing(*MERGE)

    assert ancestors(["c", "k"], line) == {"a", "b"}
    assert descendants(["a", "gone"], line) == {"b", "c", "k"}
    assert ancestors(["m"], merge) == {"l", "r"}
    assert descendants(["r"], merge) == {"m"}
