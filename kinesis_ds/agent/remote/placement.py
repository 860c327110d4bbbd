"""Decide which process reads a shard, and how a bound is divided among processes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def least_loaded(loads: Sequence[int]) -> int:
    """Return the number of the process that gets a new shard: of those with the fewest the first.

    A shard stays with its process, so nothing but the load decides: children of a reshard go where
    their parents have left room.

    Args:
        loads: How many shards each process reads that are not at their end.
    """
    return min(range(len(loads)), key=loads.__getitem__)


def shares(total: int, count: int) -> list[int]:
    """Divide a bound into ``count`` whole parts that add up to it and differ by at most 1."""
    each, rest = divmod(total, count)
    return [each + (i < rest) for i in range(count)]
