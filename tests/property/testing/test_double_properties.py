"""The double under any writes, reshardings and reads: nothing is lost, doubled or moved."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.subscription import End, Send, Subscription, Wait
from tests.support.examples import times
from tests.support.model import Model, entry, is_open, tiles

KEYS = [0, 1, 2**125, 2**126, 2**127 - 1, 2**127, 2**127 + 2**126, MAX_HASH_KEY]


class Reader:
    """Follows a stream from its first shards to its last, a child when all its parents are read."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.seen: list[bytes] = []
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.waiting = set(model.shards())
        self.ended: set[str] = set()
        self.parents: dict[str, list[str]] = {}

    def take(self, shard: str, answer: dict[str, Any]) -> None:
        for record in answer["Records"]:
            self.seen.append(base64.b64decode(record["Data"]))
            self.numbers[shard].append(int(record["SequenceNumber"]))
        if "ChildShards" in answer:
            self.ended.add(shard)
            self.waiting.discard(shard)
            self.parents.update((c["ShardId"], c["ParentShards"]) for c in answer["ChildShards"])
            self.waiting |= {
                child["ShardId"]
                for child in answer["ChildShards"]
                if set(child["ParentShards"]) <= self.ended
            }

    def check_order(self) -> None:
        """Numbers rise within a shard, and from parent to child."""
        for shard, numbers in self.numbers.items():
            assert numbers == sorted(set(numbers))
            for parent in self.parents.get(shard, ()):
                before = self.numbers.get(parent)
                assert not numbers or not before or numbers[0] > before[-1]


class PollingReader(Reader):
    """By GetShardIterator and GetRecords."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.iterators: dict[str, str] = {}

    def step(self, shard: str, limit: int) -> None:
        """One call, with a new iterator where there is none; refusals are waited out."""
        try:
            if shard not in self.iterators:
                self.iterators[shard] = self._iterator(shard)
            answer = self.model.get(self.iterators.pop(shard), Limit=limit)
        except ServiceError as error:
            expected = ("ProvisionedThroughputExceededException", "ExpiredIteratorException")
            assert error.code in expected, error  # noqa: PT017 - one of several, and read on
            return
        if answer["NextShardIterator"] is not None:
            self.iterators[shard] = answer["NextShardIterator"]
        self.take(shard, answer)

    def _iterator(self, shard: str) -> str:
        position = {"ShardIteratorType": "TRIM_HORIZON"}
        if self.numbers[shard]:
            last = str(self.numbers[shard][-1])
            position = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": last,
            }
        return str(self.model.ask("GetShardIterator", ShardId=shard, **position)["ShardIterator"])


class SubscribingReader(Reader):
    """By SubscribeToShard, resumed after the last continuation."""

    def __init__(self, model: Model, arn: str) -> None:
        super().__init__(model)
        self.arn = arn
        self.open: dict[str, Subscription] = {}
        self.continuation: dict[str, str] = {}

    def step(self, shard: str) -> None:
        """One step of the subscription, opened where there is none."""
        if shard not in self.open and not self._subscribe(shard):
            return
        step = self.open[shard].next(self.model.now)
        match step:
            case Send():
                event = orjson.loads(step.payload)
                assert len(event["Records"]) == step.records
                assert ("ContinuationSequenceNumber" in event) != ("ChildShards" in event)
                self.continuation[shard] = event.get("ContinuationSequenceNumber", "")
                self.take(shard, event)
            case End():
                del self.open[shard]
            case Wait():
                assert step.until > self.model.now
            case _:
                raise AssertionError(step)

    def close(self, shard: str) -> None:
        if shard in self.open:
            self.open.pop(shard).close()

    def _subscribe(self, shard: str) -> bool:
        position = {"Type": "TRIM_HORIZON"}
        if shard in self.continuation:
            number = self.continuation[shard]
            position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        asked = {"ConsumerARN": self.arn, "ShardId": shard, "StartingPosition": position}
        try:
            self.open[shard] = self.model.account.subscribe(asked, self.model.now)
        except ServiceError as error:
            expected = ("LimitExceededException", "ResourceInUseException")
            assert error.code in expected, error  # noqa: PT017 - one of several, and read on
            return False
        return True


class World(RuleBasedStateMachine):
    """A stream, its writer, and two readers that go their own pace."""

    @initialize(shards=st.integers(1, 3), limited=st.booleans())
    def start(self, shards: int, limited: bool) -> None:
        self.model = Model(
            enforce_limits=limited, event_bytes=60, heartbeat_s=2.0, subscription_life_s=20.0
        )
        self.model.create(shards)
        arn = self.model.register()
        self.polling = PollingReader(self.model)
        self.subscribing = SubscribingReader(self.model, arn)
        self.put_count = 0
        self.acknowledged: dict[int, list[bytes]] = defaultdict(list)

    # --- the writer and the stream ---------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12), size=st.integers(0, 30))
    def put(self, keys: list[int], size: int) -> None:
        datas = [b"%d|%d|" % (self.put_count + i, key) for i, key in enumerate(keys)]
        records = [entry(d + b"x" * size, explicit=key) for d, key in zip(datas, keys, strict=True)]
        self.put_count += len(keys)
        answer = self.model.ask("PutRecords", Records=records)
        for data, key, result in zip(datas, keys, answer["Records"], strict=True):
            if "ErrorCode" not in result:
                self.acknowledged[key].append(data + b"x" * size)

    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(self._open()))
        first, last = (int(n) for n in found["HashKeyRange"].values())
        if last - first > 4:
            at = data.draw(st.integers(first + 2, last - 1))
            self._change("SplitShard", ShardToSplit=found["ShardId"], NewStartingHashKey=str(at))

    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        opened = sorted(self._open(), key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))
        if len(opened) > 1:
            at = data.draw(st.integers(0, len(opened) - 2))
            pair = [opened[at]["ShardId"], opened[at + 1]["ShardId"]]
            one, other = data.draw(st.permutations(pair))
            self._change("MergeShards", ShardToMerge=one, AdjacentShardToMerge=other)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        count = len(self._open())
        target = data.draw(st.integers((count + 1) // 2, min(2 * count, 8)))
        if target != count:
            self._change("UpdateShardCount", TargetShardCount=target, ScalingType="UNIFORM_SCALING")

    @rule(seconds=st.sampled_from([0.001, 0.1, 0.2, 1.0, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.model.now += seconds

    # --- the readers -----------------------------------------------------------------------------

    @rule(data=st.data(), limit=st.integers(1, 5))
    def poll(self, data: st.DataObject, limit: int) -> None:
        self.polling.step(data.draw(st.sampled_from(sorted(self.polling.waiting))), limit)

    @rule(data=st.data(), steps=st.integers(1, 4))
    def receive(self, data: st.DataObject, steps: int) -> None:
        shard = data.draw(st.sampled_from(sorted(self.subscribing.waiting)))
        for _ in range(steps):
            if shard in self.subscribing.waiting:
                self.subscribing.step(shard)

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.subscribing.close(data.draw(st.sampled_from(sorted(self.subscribing.waiting))))

    # --- what holds ------------------------------------------------------------------------------

    @invariant()
    def open_shards_tile_the_hash_space(self) -> None:
        assert tiles(self._open())

    @invariant()
    def children_cover_their_parents(self) -> None:
        shown = self.model.shards()
        children: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for shard in shown.values():
            named = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
            children[tuple(sorted(p for p in named if p))].append(shard)
        for parents, found in children.items():
            if parents:
                assert _covered(found) == _covered([shown[p] for p in parents])
                ends = [
                    int(shown[p]["SequenceNumberRange"]["EndingSequenceNumber"]) for p in parents
                ]
                for shard in found:
                    assert int(shard["SequenceNumberRange"]["StartingSequenceNumber"]) > max(ends)

    @invariant()
    def readers_are_in_order(self) -> None:
        self.polling.check_order()
        self.subscribing.check_order()

    def teardown(self) -> None:
        """Read to the end: every acknowledged record once, each key's in the order of its puts."""
        if not hasattr(self, "model"):
            return
        self._drain(self.polling, lambda shard: self.polling.step(shard, 1000))
        self._drain(self.subscribing, self.subscribing.step)
        for reader in (self.polling, self.subscribing):
            reader.check_order()
            seen: dict[int, list[bytes]] = defaultdict(list)
            for data in reader.seen:
                seen[int(data.split(b"|")[1])].append(data)
            assert seen == self.acknowledged

    def _drain(self, reader: Reader, step: Callable[[str], None]) -> None:
        """Until all is read, or nothing has come for 50 s: a subscription may have to wait 5."""
        wanted = sum(len(found) for found in self.acknowledged.values())
        rounds_without = 0
        while len(reader.seen) < wanted and rounds_without < 100:
            before = (len(reader.seen), len(reader.ended))
            for shard in sorted(reader.waiting):
                step(shard)
            self.model.now += 0.5
            progress = (len(reader.seen), len(reader.ended)) != before
            rounds_without = 0 if progress else rounds_without + 1

    def _open(self) -> list[dict[str, Any]]:
        return [shard for shard in self.model.shards().values() if is_open(shard)]

    def _change(self, operation: str, **members: Any) -> None:
        """A change that may meet another one under way, or a limit."""
        code = self.model.code(operation, **members)
        assert code in ("ok", "ResourceInUseException", "LimitExceededException")


def _covered(shards: list[dict[str, Any]]) -> tuple[int, int, int]:
    """First key, last key and number of keys."""
    ranges = [
        (int(s["HashKeyRange"]["StartingHashKey"]), int(s["HashKeyRange"]["EndingHashKey"]))
        for s in shards
    ]
    keys = sum(last - first + 1 for first, last in ranges)
    return min(first for first, _ in ranges), max(last for _, last in ranges), keys


TestDouble = World.TestCase
TestDouble.settings = times(1, steps=40)
