"""The model of a stream in the double, with a clock that the test moves."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.account import Account
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.settings import Settings
from kinesis_ds.testing.subscription import End, Fail, Send, Step, Subscription

STARTED_S = 1_700_000_000.0
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/"


def shard_id(index: int) -> str:
    return f"shardId-{index:012d}"


class Model:
    """An account with its streams. It is called as clients call it: JSON in, JSON out."""

    def __init__(self, **settings: Any) -> None:
        self.settings = replace(Settings(), **settings)
        self.account = Account(self.settings)
        self.now = STARTED_S

    def ask(self, operation: str, stream: str | None = "s", **members: Any) -> dict[str, Any]:
        named = {} if stream is None else {"StreamName": stream}
        answer = self.account.call(operation, {**named, **members}, self.now)
        decoded: dict[str, Any] = orjson.loads(orjson.dumps(answer))
        return decoded

    def code(self, operation: str, stream: str | None = "s", **members: Any) -> str:
        """Return the error code of the answer, or ``ok``."""
        try:
            self.ask(operation, stream, **members)
        except ServiceError as error:
            return error.code
        return "ok"

    def create(self, shards: int = 1, stream: str = "s", **members: Any) -> None:
        """Create a stream that is ACTIVE."""
        self.ask("CreateStream", stream, ShardCount=shards, **members)
        self.settle()

    def settle(self) -> None:
        """Move the clock until all changes that were asked for are done."""
        self.now += self.settings.stream_ready_s

    def split(self, index: int, at: int | None = None) -> None:
        """Split a shard, in the middle or at a hash key."""
        found = self.shards()[shard_id(index)]["HashKeyRange"]
        middle = (int(found["StartingHashKey"]) + int(found["EndingHashKey"])) // 2 + 1
        key = str(middle if at is None else at)
        self.ask("SplitShard", ShardToSplit=shard_id(index), NewStartingHashKey=key)
        self.settle()

    def merge(self, index: int, adjacent: int) -> None:
        members = {"ShardToMerge": shard_id(index), "AdjacentShardToMerge": shard_id(adjacent)}
        self.ask("MergeShards", **members)
        self.settle()

    def scale(self, target: int) -> None:
        self.ask("UpdateShardCount", TargetShardCount=target, ScalingType="UNIFORM_SCALING")
        self.settle()

    def shards(self, stream: str = "s", **members: Any) -> dict[str, dict[str, Any]]:
        """Return all pages of ListShards, by shard id."""
        answer = self.ask("ListShards", stream, **members)
        found = answer["Shards"]
        while "NextToken" in answer:
            answer = self.ask("ListShards", None, NextToken=answer["NextToken"])
            found += answer["Shards"]
        return {shard["ShardId"]: shard for shard in found}

    def put(self, *data: bytes, hash_key: int = 0, stream: str = "s") -> list[int]:
        """Store records with this hash key, without limits; return their sequence numbers."""
        return [
            self.account.store(stream, item, "key", self.now, explicit_hash_key=str(hash_key))
            for item in data
        ]

    def iterator(self, shard: int, kind: str, **members: Any) -> str:
        answer = self.ask(
            "GetShardIterator", ShardId=shard_id(shard), ShardIteratorType=kind, **members
        )
        return str(answer["ShardIterator"])

    def get(self, iterator: str, **members: Any) -> dict[str, Any]:
        return self.ask("GetRecords", None, ShardIterator=iterator, **members)

    def register(self, name: str = "c", stream: str = "s") -> str:
        """Register a consumer, wait until it is ACTIVE, and return its ARN."""
        members = {"StreamARN": ARN + stream, "ConsumerName": name}
        answer = self.ask("RegisterStreamConsumer", None, **members)
        self.now += self.settings.consumer_ready_s
        return str(answer["Consumer"]["ConsumerARN"])

    def subscribe(self, arn: str, shard: int = 0, kind: str = "TRIM_HORIZON", **more: Any) -> Any:
        return self.account.subscribe(
            {
                "ConsumerARN": arn,
                "ShardId": shard_id(shard),
                "StartingPosition": {"Type": kind, **more},
            },
            self.now,
        )

    def subscribe_code(
        self, arn: str, shard: int = 0, kind: str = "TRIM_HORIZON", **more: Any
    ) -> str:
        try:
            self.subscribe(arn, shard, kind, **more)
        except ServiceError as error:
            return error.code
        return "ok"

    def event(self, subscription: Subscription) -> dict[str, Any]:
        """Return the next event, which must be there already."""
        step: Step = subscription.next(self.now)
        assert isinstance(step, Send), step
        decoded: dict[str, Any] = orjson.loads(step.payload)
        assert len(decoded["Records"]) == step.records
        return decoded


def entry(data: bytes = b"data", key: str | None = "key", explicit: Any = None) -> dict[str, Any]:
    """Return a record for PutRecords."""
    record: dict[str, Any] = {"Data": base64.b64encode(data).decode()}
    if key is not None:
        record["PartitionKey"] = key
    if explicit is not None:
        record["ExplicitHashKey"] = str(explicit)
    return record


def data_of(records: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(record["Data"]) for record in records]


def tiles(shards: list[dict[str, Any]]) -> bool:
    """Return whether these shards cover every hash key exactly once."""
    ranges = sorted(
        (int(s["HashKeyRange"]["StartingHashKey"]), int(s["HashKeyRange"]["EndingHashKey"]))
        for s in shards
    )
    edges = [-1, *(last for _, last in ranges)]
    return edges[-1] == MAX_HASH_KEY and all(
        first == edge + 1 for (first, _), edge in zip(ranges, edges, strict=False)
    )


def is_open(shard: dict[str, Any]) -> bool:
    return "EndingSequenceNumber" not in shard["SequenceNumberRange"]


def subscribed(kind: str = "TRIM_HORIZON", **settings: Any) -> tuple[Model, str, Subscription]:
    """Return a model with a stream, its consumer's ARN, and a subscription to its first shard."""
    model = Model(**settings)
    model.create()
    arn = model.register()
    return model, arn, model.subscribe(arn, kind=kind)


def heartbeat(model: Model, subscription: Subscription) -> int:
    """Take the next event, which is empty, and return its number."""
    event = model.event(subscription)
    assert event["Records"] == []
    assert event["MillisBehindLatest"] == 0
    return int(event["ContinuationSequenceNumber"])


def raised(model: Model, subscription: Subscription) -> str:
    """Take the exception that ends the stream, and return its code."""
    step = subscription.next(model.now)
    assert isinstance(step, Fail), step
    assert subscription.next(model.now) == End()
    assert subscription not in model.account.subscriptions()
    return step.code
