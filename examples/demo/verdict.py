"""What a run has shown: every event written against every record delivered. Pure.

What the source promises is judged, record by record:

* *nothing lost, nothing twice*: the ids 0 to N-1 were written, and each is delivered once;
* *order*: in the order of delivery, the sequence numbers of a shard rise, no shard is seen before
  its parents are through, and the records of one key come in the order of the stream.

The order *of the stream* is the yardstick, never the order of writing. The sink of this version has
several PutRecords requests under way at once, so two events of one key may well be stored in the
other order than they were made. That is settled before the source sees them: the stream's order is
their sequence number within a shard, and between shards the lineage of the shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Record(NamedTuple):
    """One record as the reading job got it. Times are milliseconds since the epoch."""

    id: int | None
    """Which event it is; None when the data is not an event of this demo."""
    key: str
    shard: str
    sequence: int
    created_ms: int
    arrived_ms: int
    seen_ms: int


Batches = Sequence[Sequence[Record]]
"""What was delivered: the batches by their id, each with its records as its sink got them."""

Parents = Mapping[str, Collection[str]]
"""Each shard of the stream, and the shards it was split or merged from."""


@dataclass(frozen=True)
class Verdict:
    """The count.

    Attributes:
        written: Events written.
        read: Records delivered, duplicates included.
        lost: Events written and never delivered.
        duplicated: Records too many of events that were delivered before.
        stored_twice: How many of those are in the stream twice (another sequence number): the
            sink's doing, which is allowed to send again what it has no answer for.
        out_of_order: Records delivered after one that they should have preceded.
        unexpected: Records that are none of the events written.
        changed: Batches that held something else when they were run again.
    """

    written: int
    read: int
    lost: int
    duplicated: int
    stored_twice: int
    out_of_order: int
    unexpected: int
    changed: int

    @property
    def passed(self) -> bool:
        """Whether every promise was kept, and there was something to keep it with."""
        wrong = (self.lost, self.duplicated, self.out_of_order, self.unexpected, self.changed)
        return self.read == self.written > 0 and not any(wrong)


def judge(written: int, batches: Batches, parents: Parents, *, changed: int = 0) -> Verdict:
    """Hold what was delivered against the events 0 to ``written`` - 1.

    Args:
        changed: Batches whose second run gave other records than the first. Their files were
            written over, so only whoever wrote them can know.
    """
    records = [record for batch in batches for record in batch]
    expected = [r for r in records if r.id is not None and 0 <= r.id < written]
    times = Counter(r.id for r in expected)
    stored = {(r.id, r.shard, r.sequence) for r in expected}
    return Verdict(
        written=written,
        read=len(records),
        lost=written - len(times),
        duplicated=len(expected) - len(times),
        stored_twice=len(stored) - len(times),
        out_of_order=_out_of_order(batches, _ancestors(parents)),
        unexpected=len(records) - len(expected),
        changed=changed,
    )


def _out_of_order(batches: Batches, ancestors: Mapping[str, Collection[str]]) -> int:
    highest: dict[str, int] = {}  # shard: the highest sequence number delivered
    begun: dict[str, int] = {}  # shard: the first batch in which a descendant of it was seen
    newest: dict[str, Record] = {}  # key: the record of it that is furthest on in the stream
    batch_of: dict[str, int] = {}  # key: the batch of that record
    late = 0
    for number, batch in enumerate(batches):
        for shard in {record.shard for record in batch}:
            for ancestor in ancestors.get(shard, ()):
                begun.setdefault(ancestor, number)
        for record in batch:
            before = newest.get(record.key)
            # The tasks of a batch run side by side, so a parent in its child's batch is late too.
            descendant_seen = number >= begun.get(record.shard, len(batches))
            behind_in_shard = record.sequence < highest.get(record.shard, -1)
            behind_in_key = before is not None and not _may_follow(
                before, record, ancestors, same_batch=batch_of[record.key] == number
            )
            if descendant_seen or behind_in_shard or behind_in_key:
                late += 1
                continue
            highest[record.shard] = record.sequence
            newest[record.key] = record
            batch_of[record.key] = number
    return late


def _may_follow(
    before: Record,
    record: Record,
    ancestors: Mapping[str, Collection[str]],
    *,
    same_batch: bool,
) -> bool:
    if before.shard == record.shard:
        return before.sequence <= record.sequence  # an equal one is a duplicate, counted as such
    return before.shard in ancestors.get(record.shard, ()) and not same_batch


def _ancestors(parents: Parents) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for shard in parents:
        pending = list(parents[shard])
        known = found.setdefault(shard, set())
        while pending:
            ancestor = pending.pop()
            if ancestor not in known:
                known.add(ancestor)
                pending.extend(parents.get(ancestor, ()))
    return found


# --- figures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency:
    """Milliseconds, by nearest rank, over ``records`` records."""

    p50: int
    p99: int
    max: int
    records: int


def latency(pairs: Iterable[tuple[int, int]]) -> Latency | None:
    """How long it took, over pairs of (begin, end) in milliseconds; None without any pair."""
    taken = sorted(end - begin for begin, end in pairs)
    if not taken:
        return None
    return Latency(_rank(taken, 50), _rank(taken, 99), taken[-1], len(taken))


def while_up(records: Iterable[Record], outages: Sequence[tuple[int, int]]) -> list[Record]:
    """The records that neither waited nor arrived during an outage, (from, to) in milliseconds."""
    return [
        r
        for r in records
        if not any(r.arrived_ms < to and r.seen_ms > since for since, to in outages)
    ]


def rate(times_ms: Collection[int]) -> float:
    """Records a second between the first and the last."""
    span = max(times_ms) - min(times_ms) if times_ms else 0
    return round(1000 * len(times_ms) / span, 1) if span else 0.0


def _rank(ordered: Sequence[int], percent: int) -> int:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
