"""Registered consumers of a stream. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.rates import Bucket
from kinesis_ds.testing.shard import READ_BYTES_PER_S

if TYPE_CHECKING:
    from kinesis_ds.testing.subscription import Subscription

MAX_PER_STREAM = 20
MAX_CREATING = 5


class Consumer:
    """A registered consumer, and what its subscriptions have done. Times: seconds since the epoch.

    Attributes:
        name: Its name in its stream.
        stream_arn: ARN of its stream.
        arn: Its own ARN.
        created_s: When it was registered, in whole seconds.
        ready_at: When its CREATING state ends.
        gone_at: When its DELETING state ends; None unless it is being removed.
        called_at: By shard, when SubscribeToShard was last called.
        subscribed_at: By shard, when SubscribeToShard last succeeded.
        current: By shard, the last subscription, open or over.
        bytes_out: By shard, what bounds its subscriptions to 2 MiB/s together.
    """

    def __init__(self, name: str, stream_arn: str, created_s: int, ready_at: float) -> None:
        self.name = name
        self.stream_arn = stream_arn
        self.arn = f"{stream_arn}/consumer/{name}:{created_s}"
        self.created_s = created_s
        self.ready_at = ready_at
        self.gone_at: float | None = None
        self.called_at: dict[str, float] = {}
        self.subscribed_at: dict[str, float] = {}
        self.current: dict[str, Subscription] = {}
        self.bytes_out = defaultdict[str, Bucket](lambda: Bucket(READ_BYTES_PER_S))

    def status(self, now: float) -> str:
        if self.gone_at is not None:
            return "DELETING" if now < self.gone_at else "GONE"
        return "CREATING" if now < self.ready_at else "ACTIVE"

    def description(self, now: float) -> dict[str, Any]:
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now),
            "ConsumerCreationTimestamp": float(self.created_s),
        }
