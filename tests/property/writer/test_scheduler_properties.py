"""For any rows, answers, throttles and reshards: nothing is lost, repeated or too large."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.shards import Shard
from kinesis_ds.writer.aggregating import Aggregator, user_records
from kinesis_ds.writer.prediction import Prediction, hash_key_of
from kinesis_ds.writer.records import Block, PackingLimits, Record, Request, plain
from kinesis_ds.writer.results import Retry
from kinesis_ds.writer.scheduler import Scheduler, Settled
from kinesis_ds.writer.waiting import WaitingRows
from tests.support.scheduling import (
    Delivered,
    Verdict,
    answers_of,
    is_empty,
    rows_in_unknown_shards,
)

RECORD_BYTES = 400
LINGER_S = 0.1
THROTTLED = Retry("ProvisionedThroughputExceededException", "too busy")
BROKEN = Retry("InternalFailure", "try later")


class World:
    """A stream that is resharded now and then, one task's scheduler, and what readers find."""

    def __init__(self, random: Random, *, ordered: bool, aggregated: bool, ids: bool) -> None:
        self.random = random
        self.ordered = ordered
        # With aggregates, a key that is scattered over shards by hash keys has no order.
        self.scattered = not (ordered and aggregated)
        self.limits = PackingLimits(random.randint(1, 6), random.randint(100, 700))
        self.shards: dict[str, Shard] = {"s0": Shard("s0")}
        for _ in range(random.randint(0, 3)):
            self.split()
        prefix = "query/0/0" if ids else None
        waiting = WaitingRows(
            self.limits,
            Prediction(self.shards),
            ordered=ordered,
            linger_s=LINGER_S,
            paces={},
            new_aggregator=(lambda alone: Aggregator(300, 1 if alone else 4, RECORD_BYTES, prefix))
            if aggregated
            else None,
        )
        self.scheduler = Scheduler(
            waiting, self.limits, label="orders", retry_timeout_s=1e9, uniform=random.uniform
        )
        self.now = 0.0
        self.added: list[Record] = []
        self.flying: list[Request] = []
        self.found: list[int] = []  # rows, as readers come by them
        self.released = 0
        self.released_bytes = 0

    def split(self) -> None:
        """Close a shard; two others take over."""
        old = self.random.choice([s for s in self.shards.values() if not s.closed])
        first, last = old.hash_range
        middle = self.random.randint(first, last - 1)
        self.shards[old.shard_id] = replace(old, closed=True)
        for bounds in ((first, middle), (middle + 1, last)):
            name = f"s{len(self.shards)}"
            self.shards[name] = Shard(name, (old.shard_id,), hash_range=bounds)

    def merge(self) -> None:
        """Close two neighbours; one other takes over."""
        taking = sorted((s for s in self.shards.values() if not s.closed), key=by_range)
        if len(taking) < 2:
            return
        at = self.random.randrange(len(taking) - 1)
        for old in taking[at : at + 2]:
            self.shards[old.shard_id] = replace(old, closed=True)
        bounds = (taking[at].hash_range[0], taking[at + 1].hash_range[1])
        name = f"s{len(self.shards)}"
        self.shards[name] = Shard(name, tuple(s.shard_id for s in taking[at : at + 2]), "0")
        self.shards[name] = replace(self.shards[name], hash_range=bounds)

    def add(self) -> None:
        records = []
        for _ in range(self.random.randint(1, 12)):
            row = len(self.added)
            data = f"{row}:".encode() + b"x" * self.random.choice([0, 0, 10, 90, 290])
            key = self.random.choice("abcdef") if self.random.random() < 0.7 else f"key{row}"
            scattered = self.scattered and self.random.random() < 0.2
            hash_key = str(self.random.randint(0, MAX_HASH_KEY)) if scattered else None
            self.added.append(plain(data, key, hash_key, len(data) + len(key), row))
            records.append(copy_of(self.added[-1]))
        self.scheduler.waiting.add(Block.of(records), self.now)

    def send(self) -> bool:
        request = self.scheduler.next_request(self.now)
        if request is None:
            # Whoever sleeps until then does not wake in vain without end.
            wake = self.scheduler.wake_at(self.now)
            assert wake is None or wake > self.now
            return False
        assert 1 <= len(request.records) <= self.limits.request_records
        assert request.size == sum(record.size for record in request.records)
        assert request.size <= self.limits.request_bytes or len(request.records) == 1
        assert all(record.size <= RECORD_BYTES for record in request.records)
        self.flying.append(request)
        if self.ordered:
            keys = [k for r in self.flying for x in r.records for k in x.keys or (x.partition_key,)]
            assert max(Counter(keys).values()) == 1
        return True

    def answer(self, failing: float) -> None:
        if not self.flying:
            return
        request = self.flying.pop(self.random.randrange(len(self.flying)))
        if self.random.random() < failing / 2:
            throttled = self.random.random() < 0.5
            self.take(self.scheduler.failed(request, "no answer", throttled, self.now))
            return
        verdicts: list[Verdict] = []
        for record in request.records:
            if self.random.random() < failing:
                verdicts.append(self.random.choice([THROTTLED, BROKEN]))
                continue
            key = hash_key_of(record)
            (shard,) = [s for s in self.shards.values() if not s.closed and holds(s, key)]
            verdicts.append(Delivered(shard.shard_id, str(len(self.found))))
            users = [user for user in user_records(record) if holds(shard, hash_key_of(user))]
            self.found += [int(user.data.split(b":")[0]) for user in users]
        self.take(self.scheduler.settle(request, answers_of(verdicts), self.now))

    def look(self) -> None:
        self.take(self.scheduler.reshard(Prediction(self.shards), self.now))

    def take(self, settled: Settled) -> None:
        self.released += settled.rows
        self.released_bytes += settled.window_bytes

    def check(self) -> None:
        """Every row is in exactly one place."""
        flying = sum(record.rows for request in self.flying for record in request.records)
        held = self.scheduler.waiting.rows + rows_in_unknown_shards(self.scheduler) + flying
        assert self.released + held == len(self.added)
        assert is_empty(self.scheduler) == (held == 0)

    def finish(self) -> None:
        """From here on everything is taken."""
        self.scheduler.waiting.flush()
        self.look()
        for _ in range(20 * len(self.added) + 100):
            while self.send():
                pass
            if self.flying:
                self.answer(0.0)
            elif (at := self.scheduler.wake_at(self.now)) is not None:
                self.now = at
            self.check()


def by_range(shard: Shard) -> tuple[int, int]:
    return shard.hash_range


def holds(shard: Shard, key: int) -> bool:
    return shard.hash_range[0] <= key <= shard.hash_range[1]


def copy_of(record: Record) -> Record:
    return plain(
        record.data, record.partition_key, record.explicit_hash_key, record.size, record.row
    )


STEPS = st.lists(
    st.sampled_from(
        ["add", "add", "send", "send", "answer", "fail", "wait", "hurry", "split", "merge", "look"]
    ),
    max_size=60,
)


def play(world: World, steps: list[str]) -> None:
    hurrying = False
    for step in steps:
        if step == "add":
            world.add()
        elif step == "send":
            world.send()
        elif step == "answer":
            world.answer(0.2)
        elif step == "fail":
            world.answer(0.8)
        elif step == "wait":
            world.now += world.random.choice([0.001, 0.05, 0.2, 3.0])
        elif step == "hurry":
            hurrying = not hurrying
            world.scheduler.waiting.hurry(hurrying)
        elif step == "split":
            world.split()
        elif step == "merge":
            world.merge()
        else:
            world.look()
        world.check()
    world.finish()


@given(
    steps=STEPS,
    random=st.randoms(use_true_random=False),
    ordered=st.booleans(),
    aggregated=st.booleans(),
    ids=st.booleans(),
)
def test_every_row_arrives_once_whatever_is_answered(
    steps: list[str], random: Random, ordered: bool, aggregated: bool, ids: bool
) -> None:
    """No row is lost, none that was delivered is sent again, and each key's order is kept."""
    world = World(random, ordered=ordered, aggregated=aggregated, ids=ids)

    play(world, steps)

    assert is_empty(world.scheduler)
    assert world.scheduler.wake_at(world.now) is None
    assert Counter(world.found) == Counter(range(len(world.added)))
    assert world.released == len(world.added)
    assert world.released_bytes == sum(record.size for record in world.added)
    if ordered:
        by_key: dict[str, list[int]] = {}
        for row in world.found:
            by_key.setdefault(world.added[row].partition_key, []).append(row)
        assert all(rows == sorted(rows) for rows in by_key.values())
