"""Says how far behind a shard is, also while nothing comes that would tell. Pure."""

from __future__ import annotations

from typing import Any

from kinesis_ds.plan.position import After, AtTimestamp, Position

# An idle shard is heard of every 5 s. What was told longer ago than this says nothing of now.
_TOLD_FOR_S = 10.0


def lag(told_ms: int, since_s: float) -> dict[str, Any]:
    """Return ``millis_behind``, and in ``millis_behind_estimated`` if it is an estimate.

    How far behind a shard was when it was last heard holds for ten seconds. After that it grows by
    the clock: so far behind the shard is at most.

    Args:
        told_ms: How far behind it was, in milliseconds.
        since_s: How long ago that was told, in seconds.
    """
    estimated = since_s > _TOLD_FOR_S
    behind_ms = told_ms + int(since_s * 1000) if estimated else told_ms
    return {"millis_behind": behind_ms, "millis_behind_estimated": estimated}


def age_ms(position: Position, now_ms: int) -> int:
    """Return how old a position is, in milliseconds: 0 where it does not say.

    Args:
        now_ms: Now, in milliseconds since the epoch.
    """
    at_ms = position.ms if isinstance(position, AtTimestamp) else None
    if isinstance(position, After):
        at_ms = position.seen_ms
    return 0 if at_ms is None else max(0, now_ms - at_ms)
