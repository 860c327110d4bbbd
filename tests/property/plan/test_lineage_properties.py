"""Reading a stream that is resharded at random: order across generations, and nothing skipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.offsets import StreamOffset
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position, ShardEnd
from kinesis_ds.plan.ranges import advance, ranges
from kinesis_ds.plan.shards import Shard, held_back
from kinesis_ds.plan.start import Latest, first_positions
from kinesis_ds.plan.stream import StreamInfo
from kinesis_ds.reader.discovery import Discovery
from tests.support.examples import times

INFO = StreamInfo("orders", "arn:orders", 1, "ACTIVE", None)
OPTIONS = parse_read_options({"streamName": "orders"})
PINNED_MS = 77


class PlayedAgent:
    """Where each assigned shard stands; the test moves it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.positions: dict[str, Position] = {}
        self.closed: set[str] = set()
        self.given: set[str] = set()

    def available(self) -> dict[str, Position]:
        return dict(self.positions)

    def assign(self, shard: Shard, position: Position) -> None:
        assert shard.shard_id not in self.given, "assigned twice"
        self.given.add(shard.shard_id)
        for parent in shard.parents if self.world.parents_first else ():
            assert self.world.drained_or_forgotten(parent), f"{shard.shard_id} before {parent}"
        self.closed |= {shard.shard_id} if shard.closed else set()
        self.positions[shard.shard_id] = position

    def forget(self, shard_ids: Collection[str]) -> None:
        for shard_id in shard_ids:
            assert self.world.base.ended(shard_id)
            self.positions.pop(shard_id, None)

    def mark_closed(self, shard_id: str) -> None:
        assert self.world.shards[shard_id].closed
        assert shard_id not in self.closed, "told twice"
        self.closed.add(shard_id)


class World(RuleBasedStateMachine):
    """A stream, a query that reads it, and everything that may happen in between."""

    @initialize(
        shards=st.integers(1, 3),
        latest=st.booleans(),
        parents_first=st.booleans(),
        before=st.integers(0, 4),
        data=st.data(),
    )
    def start(
        self, shards: int, latest: bool, parents_first: bool, before: int, data: st.DataObject
    ) -> None:
        """A stream with some history, and a new query at the oldest record or at now."""
        self.parents_first = parents_first
        self.shards: dict[str, Shard] = {}
        self.records: dict[str, list[int]] = {}
        self.forgotten: set[str] = set()
        self.ticker = 0
        self.delivered: dict[str, list[int]] = {}
        self.order: list[tuple[str, int]] = []
        for _ in range(shards):
            self.add()
        for _ in range(before):
            self.write(data)
            self.split(data)
        self.base = StreamOffset("orders", INFO.arn, 1, "c")
        initial = Latest() if latest else TRIM_HORIZON
        self.base = self.base.with_shards(first_positions(initial, self.listed(), PINNED_MS))
        # Records before the pinned moment are not this query's.
        self.skipped = {s: len(r) if latest else 0 for s, r in self.records.items()}
        self.restart()

    # --- the stream -----------------------------------------------------------------------------

    def add(self, *parents: str) -> None:
        shard_id = f"shardId-{len(self.shards):04d}"
        self.shards[shard_id] = Shard(shard_id, parents)
        self.records[shard_id] = []

    def open_shards(self) -> list[str]:
        return sorted(s for s, shard in self.shards.items() if not shard.closed)

    def close_shard(self, shard_id: str) -> None:
        self.shards[shard_id] = dataclasses.replace(self.shards[shard_id], closed=True)

    def listed(self) -> dict[str, Shard]:
        return {s: shard for s, shard in self.shards.items() if s not in self.forgotten}

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """Some records into an open shard."""
        shard_id = data.draw(st.sampled_from(self.open_shards()))
        for _ in range(data.draw(st.integers(1, 3))):
            self.ticker += 1
            self.records[shard_id].append(self.ticker)

    @precondition(lambda self: len(self.shards) < 12)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        """One shard becomes two."""
        parent = data.draw(st.sampled_from(self.open_shards()))
        self.close_shard(parent)
        self.add(parent)
        self.add(parent)

    @precondition(lambda self: len(self.open_shards()) > 1 and len(self.shards) < 12)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        """Two shards become one."""
        left, right = data.draw(st.permutations(self.open_shards()))[:2]
        self.close_shard(left)
        self.close_shard(right)
        self.add(left, right)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Retention removes a closed shard that the checkpoint has behind it."""
        old = [s for s in self.listed() if self.base.ended(s)]
        if old:
            self.forgotten.add(data.draw(st.sampled_from(old)))

    # --- the query ------------------------------------------------------------------------------

    def at_end(self, shard_id: str) -> bool:
        at_end = isinstance(self.agent.positions.get(shard_id), ShardEnd)
        return at_end or self.base.ended(shard_id)

    def drained_or_forgotten(self, shard_id: str) -> bool:
        return self.at_end(shard_id) or shard_id in self.forgotten

    @rule()
    def restart(self) -> None:
        """The process is gone; what is left is the checkpoint."""
        self.agent = PlayedAgent(self)
        self.discovery = Discovery(
            INFO,
            "c",
            "arn:c",
            self.listed(),
            self.base.shards,
            dataclasses.replace(OPTIONS, parents_first=self.parents_first),
        )

    def reconcile(self) -> None:
        """What follows from what discovery knows is what would follow from it anew."""
        self.discovery.reconcile(None, self.agent)  # type: ignore[arg-type]
        drained = {s for s in self.shards if self.at_end(s)}
        begun = self.agent.positions.keys() | drained
        waiting = held_back(self.discovery.listed, begun, drained, parents_first=self.parents_first)
        assert all(waiting.values()), f"not begun, and not held back: {waiting}"

    @rule()
    def discover(self) -> None:
        """ListShards, and what follows from it."""
        self.discovery.learn(self.listed(), everything=True)
        self.reconcile()
        listed_closed = {s for s, shard in self.listed().items() if shard.closed}
        assert listed_closed & self.agent.positions.keys() <= self.agent.closed

    @rule()
    def discover_behind_the_last(self) -> None:
        """ListShards for the shards behind the last one known: tells as much about what is new."""
        last = max(self.discovery.listed, default="")
        news = {s: shard for s, shard in self.listed().items() if s > last}
        self.discovery.learn(news, everything=False)
        self.reconcile()
        assert self.discovery.listed.keys() >= self.listed().keys()
        for shard_id, shard in self.listed().items():
            assert self.discovery.listed[shard_id].closed == shard.closed

    def next_record(self, shard_id: str, position: Position) -> int:
        """Index of the first record behind a position."""
        if isinstance(position, After):
            return len([n for n in self.records[shard_id] if n <= position.number])
        return self.skipped.get(shard_id, 0) if isinstance(position, AtTimestamp) else 0

    @rule(data=st.data(), most=st.integers(1, 4))
    def receive(self, data: st.DataObject, most: int) -> None:
        """A shard's subscription reads on, and sees the end where there is one."""
        reading = [s for s, p in self.agent.positions.items() if not isinstance(p, ShardEnd)]
        if not reading:
            return
        shard_id = data.draw(st.sampled_from(sorted(reading)))
        at = self.next_record(shard_id, self.agent.positions[shard_id])
        new = self.records[shard_id][at : at + most]
        if new:
            self.agent.positions[shard_id] = After(str(new[-1]))
        elif self.shards[shard_id].closed:
            self.agent.positions[shard_id] = SHARD_END

    @rule()
    def batch(self) -> None:
        """One micro-batch of all that is available."""
        following = advance(
            self.base,
            self.agent.available(),
            self.discovery.listed,
            parents_first=self.parents_first,
        )
        for planned in ranges(self.base, following):
            shard = self.shards[planned.shard_id]
            for parent in shard.parents if self.parents_first else ():
                assert (
                    self.base.ended(parent)
                    or parent in self.forgotten
                    or parent not in self.records
                ), f"{planned.shard_id} in a batch with its parent {parent}"
            start = self.next_record(planned.shard_id, planned.start)
            end = (
                len(self.records[planned.shard_id])
                if isinstance(planned.end, ShardEnd)
                else self.next_record(planned.shard_id, planned.end)
            )
            got = self.records[planned.shard_id][start:end]
            self.delivered.setdefault(planned.shard_id, []).extend(got)
            self.order += [(planned.shard_id, n) for n in got]
        self.base = following

    @rule()
    def commit(self) -> None:
        """Spark is done with the last batch: what has ended in it is forgotten."""
        self.discovery.end(self.agent, {s for s in self.base.shards if self.base.ended(s)})

    @invariant()
    def in_order_and_once(self) -> None:
        """What was delivered of each shard is the beginning of what was written to it."""
        for shard_id, got in self.delivered.items():
            wanted = self.records[shard_id][self.skipped.get(shard_id, 0) :]
            assert got == wanted[: len(got)]

    def teardown(self) -> None:
        """Read on until nothing moves: everything is delivered, parents before their children."""
        if not hasattr(self, "discovery"):
            return
        for _ in range(60):
            self.discover()
            for shard_id, position in list(self.agent.positions.items()):
                if isinstance(position, ShardEnd):
                    continue
                numbers = self.records[shard_id]
                if self.shards[shard_id].closed:
                    self.agent.positions[shard_id] = SHARD_END
                elif self.next_record(shard_id, position) < len(numbers):
                    self.agent.positions[shard_id] = After(str(numbers[-1]))
            self.batch()
        for shard_id, numbers in self.records.items():
            assert self.delivered.get(shard_id, []) == numbers[self.skipped.get(shard_id, 0) :], (
                shard_id
            )
        seen: dict[str, list[int]] = {}
        for place, (shard_id, _) in enumerate(self.order):
            seen.setdefault(shard_id, []).append(place)
        for shard_id, places in seen.items():
            for parent in self.shards[shard_id].parents if self.parents_first else ():
                assert max(seen.get(parent, [-1])) < min(places), f"{shard_id} before {parent}"


TestWorld = World.TestCase
TestWorld.settings = times(2, steps=40)
