"""Lineage: which shards were split or merged into which others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kinesis_ds.plan.shards import ShardMap


def lineage_groups(listed: ShardMap, among: Collection[str] | None = None) -> dict[str, str]:
    """Return the group of each shard, parents before their children.

    Two shards are in one group if one is an ancestor of the other, or if a third shard is in one
    group with both.

    Args:
        listed: All shards of the stream.
        among: Group only these shards, the shards of a batch; None: all that are listed.
    """
    counting = listed.keys() if among is None else listed.keys() & set(among)
    tied: dict[str, str] = {}
    # The nearest ancestors that count, or the shard itself.
    nearest: dict[str, frozenset[str]] = {}
    order = _parents_first(listed)
    for shard_id in order:
        above = frozenset[str]().union(
            *(nearest.get(parent, ()) for parent in listed[shard_id].parents)
        )
        nearest[shard_id] = above
        if shard_id in counting:
            nearest[shard_id] = frozenset({shard_id})
            for other in (shard_id, *sorted(above)):
                _tie(tied, shard_id, other)
    return {shard_id: _root(tied, shard_id) for shard_id in order if shard_id in counting}


def _parents_first(listed: ShardMap) -> list[str]:
    """Return all shard ids, each behind its listed parents, otherwise sorted."""
    order: dict[str, None] = {}
    begun: set[str] = set()
    for first in sorted(listed):
        waiting = [first]
        while waiting:
            shard_id = waiting[-1]
            above = [p for p in listed[shard_id].parents if p in listed and p not in begun]
            begun.add(shard_id)
            if above:
                waiting += above
            else:
                order[waiting.pop()] = None
    return list(order)


def _tie(tied: dict[str, str], one: str, other: str) -> None:
    one, other = _root(tied, one), _root(tied, other)
    tied[max(one, other)] = min(one, other)


def _root(tied: dict[str, str], shard_id: str) -> str:
    while (above := tied.setdefault(shard_id, shard_id)) != shard_id:
        tied[shard_id] = tied[above]
        shard_id = above
    return shard_id


def ancestors(shards: Iterable[str], listed: ShardMap) -> set[str]:
    """Return the listed shards that some shards came from, over any number of generations."""
    parents = {s: [p for p in shard.parents if p in listed] for s, shard in listed.items()}
    return _reached(shards, parents)


def descendants(shards: Iterable[str], listed: ShardMap) -> set[str]:
    """Return the listed shards that came from some shards, over any number of generations."""
    children: dict[str, list[str]] = {}
    for shard in listed.values():
        for parent in shard.parents:
            children.setdefault(parent, []).append(shard.shard_id)
    return _reached(shards, children)


def _reached(shards: Iterable[str], relations: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    unseen = list(shards)
    while unseen:
        for other in relations.get(unseen.pop(), ()):
            if other not in found:
                found.add(other)
                unseen.append(other)
    return found
