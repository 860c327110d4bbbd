"""Which shards may be read now."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.shards import ShardMap, closing_parents, held_back, vanished, with_news
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
def test_what_may_be_begun(
    listed: ShardMap, tracked: str, drained: str, expected: list[str]
) -> None:
    """A shard starts once, and only behind parents that are drained or out of retention."""
    waiting = held_back(listed, set(tracked), set(drained))

    assert [s for s, held_by in sorted(waiting.items()) if not held_by] == expected


def test_a_shard_names_what_holds_it_back() -> None:
    """Only those parents; the ones read to their end are let go of."""
    assert held_back(MERGE, {"l", "r"}, {"l"}) == {"m": {"r"}}
    assert held_back(GENERATIONS, set(), set()) == {"g0": set(), "g1": {"g0"}, "g2": {"g1"}}


def test_children_may_start_beside_their_parents() -> None:
    """Where the user has no use for the order across reshards."""
    assert held_back(GENERATIONS, {"g0"}, set(), parents_first=False) == {"g1": set(), "g2": set()}


def test_a_new_shard_closes_its_parents() -> None:
    """A listing of only the new shards says so by naming them; the rest stays as it is."""
    before = listing(shard("l"), shard("r"), shard("x"))

    after = with_news(before, listing(shard("m", "l", "r"), shard("n", "gone")))
    assert {s for s in after if after[s].closed} == {"l", "r"}
    assert after.keys() == {"l", "r", "x", "m", "n"}
    assert before["l"] == shard("l"), "others may be looking at it"


def test_generations_in_one_listing_close_each_other() -> None:
    """Only the last of them takes records, however the others are described."""
    news = listing(shard("g1", "g0"), shard("g2", "g1"))

    after = with_news(listing(shard("g0")), news)
    assert [after[s].closed for s in ("g0", "g1", "g2")] == [True, True, False]
    assert closing_parents({**news, "g0": shard("g0")}) == after


def test_a_shard_that_is_listed_again_is_taken_as_it_is_now() -> None:
    """Some servers answer with all shards whichever were asked for."""
    before = listing(shard("a"), shard("b"))

    assert with_news(before, listing(shard("a", closed=True)))["a"].closed


@pytest.mark.parametrize("news", [{}, SPLIT], ids=["nothing", "nothing new"])
def test_without_news_the_same_map_comes_back(news: ShardMap) -> None:
    """Which is how whoever holds it knows that there is nothing to do."""
    assert with_news(SPLIT, news) is SPLIT
    assert closing_parents(SPLIT) is SPLIT


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
