"""Judge a run: compare what was written with what came out of source and sink. Pure.

The source: every record once, in the order of its shard and of its key, and the same again when a
batch is run again. A key's records are numbered by the producer, and they lie in the stream in that
order, through every reshard; children are read after their parents, so they come out in it.

The sink: every record at least once. Each repeat must be explained by something that the sink
cannot prevent:

* ``rerun``: its batch was run again after the query had died before committing it;
* ``retry``: its task was tried again after its first attempt had died or failed;
* ``speculation``: its task ran twice at once;
* ``answer lost``: within one attempt, a PutRecords call with it got no answer, or a late one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from integration.chaos.payload import Item

_EXAMPLES = 4


class Delivered(NamedTuple):
    """A record as it came out of the source; ``item`` is None where its data was damaged."""

    shard: str
    sequence: int
    item: Item | None


class Stored(NamedTuple):
    """A record in the sink's stream: which it is (None: damaged) and which attempt wrote it."""

    item: Item | None
    attempt: str


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task.

    Attributes:
        tag: Its name. Each record that it wrote carries the name.
        batch: The batch that the task is a part of.
        task: The index of the task, for messages; a rerun may divide the batch into other tasks.
        reason: The reason for the attempt: ``first``, ``rerun``, ``retry`` or ``speculation``.
    """

    tag: str
    batch: int
    task: str
    reason: str


@dataclass(frozen=True)
class PutCall:
    """A PutRecords call as the client saw it.

    Attributes:
        attempt: The attempt that made the call.
        ids: The records in the call.
        answered: Whether the client got an answer of the service, of any kind.
    """

    attempt: str
    ids: tuple[int, ...]
    answered: bool


@dataclass(frozen=True)
class Evidence:
    """Everything that a run leaves behind.

    Attributes:
        written: The records that the producer put, in order.
        batches: The records that the source delivered, by batch id.
        changed: Batches that returned other records in a rerun, or in a second copy of a task.
        stored: The records in the sink's stream.
        attempts, calls: The attempts and calls that wrote them.
        troubles: Other problems: something left over, too large, not finished, "please report".
    """

    written: Sequence[Item]
    batches: Mapping[int, Sequence[Delivered]]
    changed: Sequence[str]
    stored: Sequence[Stored]
    attempts: Sequence[Attempt]
    calls: Sequence[PutCall]
    troubles: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """The result: the problems found, if any, and the repeats in the sink by their cause."""

    problems: tuple[str, ...]
    duplicates: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.problems


def judge(evidence: Evidence) -> Verdict:
    """Compare what came out with what was written."""
    duplicates, unexplained = _sink_duplicates(evidence)
    problems = [
        *_source_problems(evidence),
        *_order_problems(evidence.batches),
        *_sink_losses(evidence),
        *unexplained,
        *evidence.changed,
        *evidence.troubles,
    ]
    if not evidence.written:
        problems.append("nothing was written, so nothing is shown")
    return Verdict(tuple(problems), dict(sorted(duplicates.items())))


# --- the source ---------------------------------------------------------------------------------


def _source_problems(evidence: Evidence) -> Iterator[str]:
    times: Counter[int] = Counter()
    places: dict[int, list[str]] = defaultdict(list)
    damaged = []
    expected = {item.id: item for item in evidence.written}
    for batch, rows in sorted(evidence.batches.items()):
        for row in rows:
            place = f"batch {batch} {row.shard} {row.sequence}"
            if row.item is None or expected.get(row.item.id) != row.item:
                damaged.append(place)
                continue
            times[row.item.id] += 1
            places[row.item.id].append(place)
    lost = [item for item in evidence.written if not times[item.id]]
    if lost:
        yield f"source lost {len(lost)} records: {_some(lost)}"
    twice = [number for number, count in times.items() if count > 1]
    if twice:
        shown = [f"{number} in {' and '.join(places[number])}" for number in twice]
        yield f"source delivered {len(twice)} records more than once: {_some(shown)}"
    if damaged:
        yield f"source delivered {len(damaged)} records that nobody wrote: {_some(damaged)}"


def _order_problems(batches: Mapping[int, Sequence[Delivered]]) -> Iterator[str]:
    in_shard, in_key = [], []
    last_in_shard: dict[str, int] = {}
    last_of_key: dict[str, tuple[int, int, str]] = {}
    for batch, rows in sorted(batches.items()):
        for row in rows:
            if row.sequence <= last_in_shard.get(row.shard, -1):
                in_shard.append(f"batch {batch} {row.shard} {row.sequence}")
            last_in_shard[row.shard] = max(row.sequence, last_in_shard.get(row.shard, -1))
            if row.item is None:
                continue
            nth, former, shard = last_of_key.get(row.item.key, (-1, -1, ""))
            # The tasks of a batch run side by side: two shards of one key must not be in it.
            if row.item.nth <= nth or (former == batch and shard != row.shard):
                in_key.append(f"{row.item} of {row.shard} in batch {batch} after number {nth}")
            last_of_key[row.item.key] = max(nth, row.item.nth), batch, row.shard
    if in_shard:
        yield f"{len(in_shard)} records out of their shard's order: {_some(in_shard)}"
    if in_key:
        yield f"{len(in_key)} records out of their key's order: {_some(in_key)}"


# --- the sink -----------------------------------------------------------------------------------


def _sink_losses(evidence: Evidence) -> Iterator[str]:
    there = {row.item.id for row in evidence.stored if row.item is not None}
    lost = [item for item in evidence.written if item.id not in there]
    if lost:
        yield f"sink lost {len(lost)} records: {_some(lost)}"
    expected = {item.id: item for item in evidence.written}
    damaged = [
        row for row in evidence.stored if row.item is None or expected.get(row.item.id) != row.item
    ]
    if damaged:
        yield f"sink stored {len(damaged)} records that nobody wrote: {_some(damaged)}"


def _sink_duplicates(evidence: Evidence) -> tuple[Counter[str], list[str]]:
    attempts = {attempt.tag: attempt for attempt in evidence.attempts}
    unanswered: Counter[tuple[str, int]] = Counter()
    for call in evidence.calls:
        if not call.answered:
            unanswered.update((call.attempt, number) for number in call.ids)
    copies: dict[int, Counter[str]] = defaultdict(Counter)
    for row in evidence.stored:
        if row.item is not None:
            copies[row.item.id][row.attempt] += 1

    windows: Counter[str] = Counter()
    unexplained: list[str] = []
    for number, by_attempt in copies.items():
        for tag, count in by_attempt.items():
            if tag not in attempts:
                unexplained.append(f"{number} by {tag}, which was never made")
            elif count - 1 > unanswered[tag, number]:
                lost = unanswered[tag, number]
                unexplained.append(f"{number} {count} times by {tag}, {lost} answers were lost")
            else:
                windows["answer lost"] += count - 1
        made = [attempts[tag] for tag in by_attempt if tag in attempts]
        if len({a.batch for a in made}) > 1:
            unexplained.append(f"{number} by different batches: {sorted(by_attempt)}")
        # The attempt that is there first needs no reason, and a "first" one has no other.
        again = sorted((a.reason for a in made), key=lambda reason: reason != "first")[1:]
        if "first" in again:
            unexplained.append(f"{number} by two first attempts: {sorted(by_attempt)}")
        windows.update(again)
    problems = []
    if unexplained:
        problems.append(
            f"{len(unexplained)} records in the sink more often than explained: "
            f"{_some(unexplained)}"
        )
    return +windows, problems


def _some(items: Iterable[object]) -> str:
    listed = list(items)
    shown = "; ".join(map(str, listed[:_EXAMPLES]))
    return shown if len(listed) <= _EXAMPLES else f"{shown}; ..."
