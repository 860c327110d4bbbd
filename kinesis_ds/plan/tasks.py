"""Deal the ranges of a batch out to tasks. Pure.

Ranges of one lineage (a shard and what it was split or merged into) stay in one task, parents
first. Tasks run in any order, so nothing else keeps the records of one key in order.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from kinesis_ds.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kinesis_ds.plan.planned_range import PlannedRange

# A task costs Spark tens of milliseconds, in which an agent gives several MiB: smaller tasks would
# cost more than they carry. Larger ones would leave cores idle in a batch of a second.
TASK_BYTES = 16 * MIB


@dataclass
class _Unit:
    """Ranges that have to stay in one task.

    Attributes:
        place: Place of the first of them in the order of planning.
        ranges: The ranges, in the order of planning.
    """

    place: int
    ranges: list[PlannedRange]


def pack(
    planned: Sequence[PlannedRange],
    shards_per_task: int | None = None,
    max_tasks: int | None = None,
) -> list[list[PlannedRange]]:
    """Deal ranges out to tasks, by their bytes or by their number. No task is empty.

    A range of unknown size gets a task of its own. The same ranges give the same tasks.

    Args:
        planned: The ranges in the order in which a task has to read them: parents before their
            children.
        shards_per_task: Number of ranges per task, whatever their sizes; None: go by bytes.
        max_tasks: The largest number of tasks; None: no limit.
    """
    units = _units(planned)
    if shards_per_task is None:
        small = [u for u in units if _weight(u) < TASK_BYTES]
        tasks = [[u] for u in units if _weight(u) >= TASK_BYTES]
        tasks += _deal(small, ceil(sum(map(_weight, small)) / TASK_BYTES), _weight)
    else:
        tasks = _in_turn(units, shards_per_task)
    if max_tasks is not None and len(tasks) > max_tasks:
        tasks = _deal(units, max_tasks, _weight if shards_per_task is None else _count)
    tasks.sort(key=lambda task: task[0].place)
    return [[r for unit in task for r in unit.ranges] for task in tasks]


def _units(planned: Iterable[PlannedRange]) -> list[_Unit]:
    units: dict[object, _Unit] = {}
    for place, one in enumerate(planned):
        key = (one.stream_arn, one.lineage) if one.lineage else place
        units.setdefault(key, _Unit(place, [])).ranges.append(one)
    return list(units.values())


def _weight(unit: _Unit) -> int:
    sizes = [one.nbytes for one in unit.ranges if one.nbytes is not None]
    known = len(sizes) == len(unit.ranges)
    return sum(sizes) if known else TASK_BYTES * len(unit.ranges)


def _count(unit: _Unit) -> int:
    return len(unit.ranges)


def _in_turn(units: Iterable[_Unit], at_most: int) -> list[list[_Unit]]:
    tasks: list[list[_Unit]] = []
    room = 0
    for unit in units:
        if len(unit.ranges) > room or not tasks:
            tasks.append([])
            room = at_most
        tasks[-1].append(unit)
        room -= len(unit.ranges)
    return tasks


def _deal(units: list[_Unit], tasks: int, weight: Callable[[_Unit], int]) -> list[list[_Unit]]:
    """Deal the heaviest unit first, each to the task that has least; no task stays empty."""
    dealt: list[list[_Unit]] = [[] for _ in range(min(max(tasks, 1), len(units)))]
    # Units of no weight are spread as well: the second place counts them.
    least = [(0, 0, i) for i in range(len(dealt))]
    for unit in sorted(units, key=weight, reverse=True):
        load, count, i = least[0]
        dealt[i].append(unit)
        heapq.heapreplace(least, (load + weight(unit), count + 1, i))
    for task in dealt:
        task.sort(key=lambda unit: unit.place)
    return dealt
