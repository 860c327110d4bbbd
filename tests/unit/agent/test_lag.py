"""How far behind a shard is while nothing tells it."""

from __future__ import annotations

import pytest

from kinesis_ds.agent.lag import age_ms, lag
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position


@pytest.mark.parametrize(
    ("since_s", "behind_ms", "estimated"),
    [(0.0, 70, False), (10.0, 70, False), (10.5, 10_570, True), (3600.0, 3_600_070, True)],
)
def test_what_was_told_holds_for_ten_seconds(
    since_s: float, behind_ms: int, estimated: bool
) -> None:
    """Then the clock counts."""
    assert lag(70, since_s) == {"millis_behind": behind_ms, "millis_behind_estimated": estimated}


@pytest.mark.parametrize(
    ("position", "age"),
    [
        (After("1", 4_000), 6_000),
        (After("1", 11_000), 0),
        (After("1"), 0),
        (AtTimestamp(1_000), 9_000),
        (TRIM_HORIZON, 0),
        (SHARD_END, 0),
    ],
)
def test_the_age_of_a_position(position: Position, age: int) -> None:
    """A query that starts in an outage is as far behind as its checkpoint is old."""
    assert age_ms(position, 10_000) == age
