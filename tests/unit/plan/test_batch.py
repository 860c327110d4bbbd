"""The ranges of a batch read, and the end of a batch of all there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.errors import OptionError
from kinesis_ds.plan.batch import batch_ranges, everything_until
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, At, AtTimestamp, Position
from kinesis_ds.plan.start import Latest
from tests.support.builders import listing, shard

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import End, Start

NOW_MS = 7_000
NOW, END, TRIM, LATEST = AtTimestamp(NOW_MS), SHARD_END, TRIM_HORIZON, Latest()

OPEN = listing(shard("a"), shard("b"))
SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"), shard("z"))
LINE = listing(shard("g0", closed=True), shard("g1", "g0", closed=True), shard("g2", "g1"))
MERGE = listing(shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r"))

Ranges = dict[str, tuple[Position, Position]]


def ranges(start: Start, end: End, listed: ShardMap) -> Ranges:
    return {r.shard_id: (r.start, r.end) for r in batch_ranges(start, end, listed, NOW_MS)}


@pytest.mark.parametrize(
    ("start", "end", "listed", "expected"),
    [
        pytest.param(TRIM, LATEST, OPEN, {"a": (TRIM, NOW), "b": (TRIM, NOW)}, id="all there is"),
        pytest.param(
            TRIM,
            LATEST,
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, NOW), "b": (TRIM, NOW), "z": (TRIM, NOW)},
            id="closed shards to their end, which Kinesis proves",
        ),
        pytest.param(
            AtTimestamp(5),
            AtTimestamp(6),
            LINE,
            {s: (AtTimestamp(5), AtTimestamp(6)) for s in LINE},
            id="between two times, in closed shards as well",
        ),
        pytest.param(AtTimestamp(6), AtTimestamp(6), OPEN, {}, id="no time at all"),
        pytest.param(AtTimestamp(6), AtTimestamp(5), OPEN, {}, id="backwards"),
        pytest.param(LATEST, LATEST, OPEN, {}, id="from latest to latest"),
        pytest.param(TRIM, LATEST, {}, {}, id="no shards"),
        # --- starts by shard ---
        pytest.param(
            {"a": After("3"), "b": At("4")},
            LATEST,
            OPEN,
            {"a": (After("3"), NOW), "b": (At("4"), NOW)},
            id="from records",
        ),
        pytest.param(
            {"p": After("3"), "z": END},
            LATEST,
            SPLIT,
            {"p": (After("3"), END), "a": (TRIM, NOW), "b": (TRIM, NOW)},
            id="children of a named shard from their first record; an ended one is left out",
        ),
        pytest.param(
            {"p": END, "z": After("2")},
            LATEST,
            SPLIT,
            {"a": (TRIM, NOW), "b": (TRIM, NOW), "z": (After("2"), NOW)},
            id="an offset between the end of a parent and its children",
        ),
        pytest.param(
            {"g2": After("3")}, LATEST, LINE, {"g2": (After("3"), NOW)}, id="not what it came from"
        ),
        pytest.param(
            {"a": After("3")},
            LATEST,
            OPEN,
            {"a": (After("3"), NOW), "b": (TRIM, NOW)},
            id="one that is not named from its first record, as in a stream",
        ),
        # --- ends by shard ---
        pytest.param(
            TRIM,
            {"a": After("3"), "b": At("4")},
            OPEN,
            {"a": (TRIM, After("3")), "b": (TRIM, At("4"))},
            id="to records",
        ),
        pytest.param(
            TRIM,
            {"a": LATEST, "b": AtTimestamp(6), "p": LATEST, "z": TRIM},
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, NOW), "b": (TRIM, AtTimestamp(6))},
            id="to moments, and nothing of one",
        ),
        pytest.param(
            TRIM,
            {"p": After("9"), "z": LATEST},
            SPLIT,
            {"p": (TRIM, After("9")), "z": (TRIM, NOW)},
            id="nothing of what came from a named shard",
        ),
        pytest.param(
            TRIM,
            {"a": After("9"), "b": TRIM, "z": TRIM},
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, After("9"))},
            id="all of what a named shard came from",
        ),
        pytest.param(
            TRIM,
            {"m": After("9")},
            MERGE,
            {"l": (TRIM, END), "r": (TRIM, END), "m": (TRIM, After("9"))},
            id="both parents",
        ),
        pytest.param(
            {"g0": After("3")},
            {"g0": END, "g1": After("9")},
            LINE,
            {"g0": (After("3"), END), "g1": (TRIM, After("9"))},
            id="between two offsets",
        ),
        pytest.param(
            {"a": After("9"), "b": After("5")},
            {"a": After("3"), "b": After("5")},
            OPEN,
            {},
            id="backwards, or no way at all",
        ),
    ],
)
def test_ranges_of_a_batch(start: Start, end: End, listed: ShardMap, expected: Ranges) -> None:
    """Positions are a cut through the shards: before it what a shard came from, behind it what
    came from the shard.
    """
    assert ranges(start, end, listed) == expected


@pytest.mark.parametrize(
    ("end", "listed", "message"),
    [
        pytest.param({"a": After("3")}, OPEN, "leaves out shard b", id="a stranger"),
        pytest.param(
            {"g0": After("3"), "g2": After("4")},
            LINE,
            "leaves out shard g1",
            id="on both sides of the cut",
        ),
        pytest.param(
            {"a": END, "b": LATEST},
            OPEN,
            "SHARD_END for shard a, which Kinesis has not closed",
            id="the end of an open shard",
        ),
    ],
)
def test_an_end_that_is_not_clear_is_refused(
    end: Mapping[str, Position | Latest], listed: ShardMap, message: str
) -> None:
    """To leave a shard out without a word would be to lose its records."""
    with pytest.raises(OptionError, match=message):
        ranges(TRIM, end, listed)


def test_many_shards_are_not_all_listed_in_a_message() -> None:
    """The first ten will do."""
    listed = listing(*[shard(f"s{i:04}") for i in range(1000)])

    with pytest.raises(OptionError, match=r"s0001, .* s0010 and 989 more"):
        ranges(TRIM, {"s0000": LATEST}, listed)


@pytest.mark.parametrize("as_end", [False, True])
def test_a_sequence_number_of_another_shard_is_refused(*, as_end: bool) -> None:
    """One that is lower than any of the shard's own; the shard's first position is its own."""
    listed = listing(shard("a", first="100"), shard("b", first="200"))
    own: dict[str, Position | Latest] = {"a": After("100"), "b": At("200")}
    foreign: dict[str, Position | Latest] = {"a": After("150"), "b": After("150")}

    for good in (own, foreign):
        positions = (TRIM, good) if as_end else (good, LATEST)
        if good is own:
            ranges(*positions, listed)
        else:
            with pytest.raises(OptionError, match="for shard b is lower than any of its own"):
                ranges(*positions, listed)


@pytest.mark.parametrize(
    ("start", "listed", "expected"),
    [
        pytest.param({}, OPEN, {"a": AtTimestamp(50), "b": AtTimestamp(50)}, id="from the oldest"),
        pytest.param(
            {"p": END},
            listing(shard("p", closed=True), shard("a", "p"), shard("b", "p")),
            {"p": END, "a": AtTimestamp(50), "b": AtTimestamp(50)},
            id="a tombstone stays",
        ),
        pytest.param(
            {"g0": After("5")},
            LINE,
            {"g0": END, "g1": END, "g2": AtTimestamp(50)},
            id="through closed shards",
        ),
        pytest.param(
            {"a": AtTimestamp(60)}, listing(shard("a")), {"a": AtTimestamp(60)}, id="later"
        ),
        pytest.param(
            {"gone": END}, OPEN, {"a": AtTimestamp(50), "b": AtTimestamp(50)}, id="forgotten"
        ),
    ],
)
def test_everything_until_a_time(
    start: Mapping[str, Position], listed: ShardMap, expected: Mapping[str, Position]
) -> None:
    """Open shards to the time, closed ones to their end, never backwards."""
    assert everything_until(start, listed, 50) == expected
