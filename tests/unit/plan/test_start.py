"""Where a query starts: in each shard, and at what time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.start import InitialPosition, Latest, first_positions, pin_now_ms
from tests.support.builders import listing, shard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.plan.shards import ShardMap

OPEN = listing(shard("a"), shard("b"))
SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"))
MERGE = listing(shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r"))
LINE = listing(shard("g0", closed=True), shard("g1", "g0", closed=True), shard("g2", "g1"))
END, TRIM = SHARD_END, TRIM_HORIZON


@pytest.mark.parametrize(
    ("initial", "listed", "expected"),
    [
        pytest.param(
            Latest(),
            OPEN,
            {"a": AtTimestamp(77), "b": AtTimestamp(77)},
            id="latest is a fixed time",
        ),
        pytest.param(
            Latest(),
            SPLIT,
            {"p": END, "a": AtTimestamp(77), "b": AtTimestamp(77)},
            id="a shard closed by now holds nothing later",
        ),
        pytest.param(TRIM, OPEN, {"a": TRIM, "b": TRIM}, id="the oldest record"),
        pytest.param(
            TRIM, SPLIT, {"p": TRIM}, id="children are found when their parent is drained"
        ),
        pytest.param(TRIM, LINE, {"g0": TRIM}, id="only the oldest generation"),
        pytest.param(
            TRIM,
            listing(shard("a", "gone")),
            {"a": TRIM},
            id="a parent out of retention counts as none",
        ),
        pytest.param(
            AtTimestamp(5),
            SPLIT,
            {"p": AtTimestamp(5), "a": AtTimestamp(5), "b": AtTimestamp(5)},
            id="a time applies to closed shards as well",
        ),
        pytest.param(Latest(), {}, {}, id="no shards"),
    ],
)
def test_first_positions(
    initial: InitialPosition, listed: ShardMap, expected: Mapping[str, Position]
) -> None:
    """Every kind of start becomes fixed positions, which mean the same when read again."""
    assert first_positions(initial, listed, 77) == expected


@pytest.mark.parametrize(
    ("host", "server", "expected"),
    [
        (1000.1239, None, 1_000_123),
        (1000.5, 1000.0, 1_000_500),
        (1002.0, 1000.0, 1_002_000),
        (1002.1, 1000.0, 1_000_000),
        (997.0, 1000.0, 1_000_000),
    ],
)
def test_now_is_the_services_when_the_clocks_differ(
    host: float, server: float | None, expected: int
) -> None:
    """A host's clock is trusted up to two seconds of skew; ahead, it would leave records out."""
    assert pin_now_ms(host, server) == expected


@pytest.mark.parametrize(
    ("named", "listed", "expected"),
    [
        pytest.param(
            {"a": After("7"), "b": Latest()},
            OPEN,
            {"a": After("7"), "b": AtTimestamp(77)},
            id="as they are",
        ),
        pytest.param({"g2": After("7")}, LINE, {"g0": END, "g1": END, "g2": After("7")}, id="done"),
        pytest.param({"g1": After("7")}, LINE, {"g0": END, "g1": After("7")}, id="children later"),
        pytest.param({"a": After("7")}, OPEN, {"a": After("7")}, id="others are found later"),
        pytest.param(
            {"m": After("7"), "l": After("3")},
            MERGE,
            {"m": After("7"), "l": After("3"), "r": END},
            id="a named parent is read",
        ),
    ],
)
def test_first_positions_by_shard(
    named: Mapping[str, Position | Latest], listed: ShardMap, expected: Mapping[str, Position]
) -> None:
    """Named shards start there; what they came from is done."""
    assert first_positions(named, listed, 77) == expected
