"""Which checkpointed positions may have records expired behind them."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.loss import may_have_expired
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, At, AtTimestamp, Position

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def seen(hours_ago: float) -> After:
    return After("5", NOW_MS - int(hours_ago * HOUR_MS))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        pytest.param(seen(0), False, id="just now"),
        pytest.param(seen(23.5), False, id="within retention"),
        pytest.param(seen(24.5), True, id="beyond retention"),
        pytest.param(seen(23.95), True, id="so close that clocks and reading may make it more"),
        pytest.param(seen(-1), False, id="a clock that is ahead"),
        pytest.param(After("5"), False, id="version 1 does not say"),
        pytest.param(AtTimestamp(NOW_MS - 25 * HOUR_MS), True, id="a start never read from"),
        pytest.param(AtTimestamp(NOW_MS - HOUR_MS), False, id="a young start"),
        pytest.param(At("5"), False, id="a record that the user named"),
        pytest.param(TRIM_HORIZON, False, id="the oldest record, whichever it is"),
        pytest.param(SHARD_END, False, id="nothing left to expire"),
    ],
)
def test_may_have_expired(position: Position, expected: bool) -> None:
    """Asked of every position of a restart, without a call."""
    assert may_have_expired(position, NOW_MS, 24) is expected


def test_a_longer_retention_keeps_longer() -> None:
    """The stream's own, as DescribeStreamSummary says it."""
    assert not may_have_expired(seen(100), NOW_MS, 168)
    assert may_have_expired(seen(169), NOW_MS, 168)
