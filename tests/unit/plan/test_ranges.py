"""The next offset, and the ranges of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_ds.plan.held import Held
from kinesis_ds.plan.offsets import StreamOffset
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.ranges import ShardRange, advance, any_records, has_news, ranges
from tests.support.builders import listing, shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesis_ds.plan.held import Hold, Limits
    from kinesis_ds.plan.shards import ShardMap

OPEN = listing(shard("a"), shard("b"))
SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"))
MERGE = listing(shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r"))
LINE = listing(shard("g0", closed=True), shard("g1", "g0", closed=True), shard("g2", "g1"))
END, TRIM = SHARD_END, TRIM_HORIZON


def at(**shards: Position) -> StreamOffset:
    return StreamOffset("orders", "arn:orders", 1, "consumer", shards)


# --- the offset that may follow -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "available", "listed", "expected"),
    [
        pytest.param(
            at(a=TRIM, b=TRIM),
            {"a": After("5")},
            OPEN,
            at(a=After("5"), b=TRIM),
            id="what is buffered",
        ),
        pytest.param(
            at(a=After("5")), {"a": After("3")}, OPEN, at(a=After("5")), id="never backwards"
        ),
        pytest.param(
            at(a=AtTimestamp(9)),
            {"a": AtTimestamp(9)},
            OPEN,
            at(a=AtTimestamp(9)),
            id="a start that did not move",
        ),
        pytest.param(
            at(p=After("1")),
            {"p": END},
            SPLIT,
            at(p=END),
            id="the end of a parent alone, without its children",
        ),
        pytest.param(
            at(p=After("1")),
            {"p": END, "a": After("7"), "b": After("8")},
            SPLIT,
            at(p=END),
            id="children are not in the batch in which the parent ends",
        ),
        pytest.param(
            at(p=END),
            {"p": END, "a": After("7"), "b": TRIM},
            SPLIT,
            at(p=END, a=After("7"), b=TRIM),
            id="children follow in the next batch",
        ),
        pytest.param(
            at(l=END, r=After("3")),
            {"l": END, "r": After("4"), "m": After("9")},
            MERGE,
            at(l=END, r=After("4")),
            id="a merged shard waits for its second parent",
        ),
        pytest.param(
            at(l=END, r=After("3")),
            {"l": END, "r": END, "m": After("9")},
            MERGE,
            at(l=END, r=END),
            id="and for the batch after that parent's end",
        ),
        pytest.param(
            at(l=END, r=END),
            {"m": After("9")},
            MERGE,
            at(l=END, r=END, m=After("9")),
            id="a merged shard goes on",
        ),
        pytest.param(
            at(g0=TRIM),
            {"g0": END, "g1": END, "g2": After("9")},
            LINE,
            at(g0=END),
            id="several generations drained at once: one a batch",
        ),
        pytest.param(
            at(g0=END),
            {"g0": END, "g1": END, "g2": After("9")},
            LINE,
            at(g0=END, g1=END),
            id="second generation",
        ),
        pytest.param(
            at(g0=END, g1=END),
            {"g0": END, "g1": END, "g2": After("9")},
            LINE,
            at(g0=END, g1=END, g2=After("9")),
            id="third generation",
        ),
        pytest.param(
            at(p=END, a=After("1")),
            {"a": After("2")},
            OPEN,
            at(a=After("2")),
            id="a forgotten shard's tombstone goes",
        ),
        pytest.param(
            at(p=END, a=After("1"), b=TRIM),
            {"p": END, "a": After("2"), "b": TRIM},
            listing(shard("a", "p"), shard("b", "p")),
            at(p=END, a=After("2"), b=TRIM),
            id="a tombstone whose children are listed stays: the shard may come back",
        ),
        pytest.param(
            at(p=END), {"p": After("9")}, SPLIT, at(p=END), id="a tombstone does not rise again"
        ),
        pytest.param(
            at(), {"x": After("9")}, OPEN, at(), id="a shard neither listed nor begun is not begun"
        ),
        pytest.param(
            at(x=After("1")),
            {"x": After("9")},
            OPEN,
            at(x=After("9")),
            id="a shard begun goes on though not listed",
        ),
        pytest.param(
            at(a=TRIM),
            {"a": After("2")},
            listing(shard("a", "old")),
            at(a=After("2")),
            id="a parent out of retention holds nothing",
        ),
        pytest.param(
            at(p=After("3"), a=TRIM, b=TRIM),
            {"p": After("3"), "a": After("1")},
            SPLIT,
            at(p=After("3"), a=TRIM, b=TRIM),
            id="children pinned at the start wait as well",
        ),
    ],
)
def test_advance(
    base: StreamOffset, available: Mapping[str, Position], listed: ShardMap, expected: StreamOffset
) -> None:
    """As far as can be planned, and a child moves only behind parents logged as ended."""
    assert advance(base, available, listed) == expected


def test_advance_leaves_its_base_alone() -> None:
    """Offsets are values: the base is the same afterwards."""
    base = at(a=After("1"))

    assert advance(base, {"a": After("2")}, OPEN) != base
    assert base == at(a=After("1"))


# --- whether there is anything to do ------------------------------------------------------------


def hold(**counts: int | None) -> Hold:
    """An agent that holds so many records of each shard; None: not all of the range."""

    def ask(ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()) -> list[Held | None]:
        assert len(limits) == len(ranges)
        found = [(r.end, counts[r.shard_id]) for r in ranges]
        return [None if count is None else Held(count, count, end) for end, count in found]

    return ask


@pytest.mark.parametrize(
    ("base", "following", "counts", "expected"),
    [
        pytest.param(at(a=TRIM), at(a=TRIM), {}, False, id="nothing moved"),
        pytest.param(at(a=TRIM), at(a=After("1")), {"a": 0}, False, id="moved over silence"),
        pytest.param(at(a=TRIM), at(a=After("1")), {"a": 1}, True, id="a record"),
        pytest.param(
            at(a=TRIM), at(a=After("1")), {"a": None}, True, id="not known: assume records"
        ),
        pytest.param(
            at(a=TRIM), at(a=END), {"a": 0}, True, id="a shard's end: its children wait for the log"
        ),
        pytest.param(at(a=END), at(), {}, False, id="a tombstone that goes"),
        pytest.param(
            at(p=END), at(p=END, a=TRIM), {}, False, id="a child found, nothing in it yet"
        ),
        pytest.param(at(p=END), at(p=END, a=After("1")), {"a": 3}, True, id="a child with records"),
    ],
)
def test_has_news(
    base: StreamOffset, following: StreamOffset, counts: dict[str, int | None], *, expected: bool
) -> None:
    """Records and ends of shards are news; silence is not."""
    assert has_news(base, following, hold(**counts)) is expected


def test_a_record_anywhere_is_found_and_few_are_asked_about_where_the_first_has_one() -> None:
    """An agent in another process is not asked about thousands of ranges to tell that one moved."""
    wanted = [ShardRange(f"s{i}", TRIM, After("1")) for i in range(1000)]

    def asked(rich: int) -> int:
        counts = {r.shard_id: int(i == rich) for i, r in enumerate(wanted)}
        about: list[ShardRange] = []

        def ask(
            ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
        ) -> Iterable[Held | None]:
            about.extend(ranges)
            return hold(**counts)(ranges, limits)

        assert any_records(wanted, ask)
        return len(about)

    assert asked(rich=0) < 100
    assert asked(rich=999) == 1000
    assert not any_records(wanted, hold(**{r.shard_id: 0 for r in wanted}))


# --- the ranges of a batch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(at(a=TRIM), at(a=TRIM), [], id="not moved"),
        pytest.param(at(a=After("7")), at(a=After("007")), [], id="the same number, padded"),
        pytest.param(
            at(a=After("1")),
            at(a=After("2")),
            [ShardRange("a", After("1"), After("2"))],
            id="moved",
        ),
        pytest.param(
            at(a=After("1")), at(a=END), [ShardRange("a", After("1"), END)], id="to the end"
        ),
        pytest.param(at(a=END), at(a=END), [], id="ended before"),
        pytest.param(
            at(),
            at(a=After("2")),
            [ShardRange("a", TRIM, After("2"))],
            id="a new shard from its beginning",
        ),
        pytest.param(at(), at(a=TRIM), [], id="a new shard without records"),
        pytest.param(at(a=END), at(), [], id="a tombstone that goes"),
        pytest.param(
            at(b=AtTimestamp(5), a=TRIM),
            at(b=After("2"), a=After("1")),
            [ShardRange("a", TRIM, After("1")), ShardRange("b", AtTimestamp(5), After("2"))],
            id="by shard id",
        ),
    ],
)
def test_ranges(start: StreamOffset, end: StreamOffset, expected: list[ShardRange]) -> None:
    """A batch has one range for each shard that moved, from where the last batch ended."""
    assert ranges(start, end) == expected


def test_children_beside_their_parents() -> None:
    """With parentsFirst=false nothing waits."""
    base = at(p=TRIM)
    available = {"p": After("5"), "a": After("9")}
    assert advance(base, available, SPLIT).shards == {"p": After("5")}
    assert advance(base, available, SPLIT, parents_first=False).shards == available
