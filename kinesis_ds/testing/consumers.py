"""Registered consumers of a stream: what they are, and the operations on them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.rates import Bucket
from kinesis_ds.testing.shard import READ_BYTES_PER_S
from kinesis_ds.testing.tokens import page_of, seal

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.stream import Stream
    from kinesis_ds.testing.subscription import Subscription

_MAX_PER_STREAM = 20
_MAX_CREATING = 5


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


def register(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("RegisterStreamConsumer", 5, now)
    stream = account.active(account.stream(request, now), now)
    name = request["ConsumerName"]
    present = stream.registered(now)
    if name in stream.consumers:
        raise ServiceError(
            "ResourceInUseException",
            f"Consumer {name} under stream {stream.name} already exists for account "
            f"{account.settings.account_id}.",
        )
    if len(present) >= _MAX_PER_STREAM:
        raise ServiceError(
            "LimitExceededException",
            f"Stream {stream.name} has {_MAX_PER_STREAM} consumers, the most there may be.",
        )
    creating = sum(
        consumer.status(now) == "CREATING"
        for other in account.streams.values()
        for consumer in other.consumers.values()
    )
    if creating >= _MAX_CREATING:
        raise ServiceError(
            "LimitExceededException", f"{_MAX_CREATING} consumers are being created already."
        )
    created_s = max(int(now), stream.consumer_created_s.get(name, -1) + 1)
    stream.consumer_created_s[name] = created_s
    ready_at = now + account.settings.consumer_ready_s
    consumer = Consumer(name, stream.arn, created_s, ready_at)
    stream.consumers[name] = consumer
    return {"Consumer": {**consumer.description(now), "ConsumerStatus": "CREATING"}}


def describe(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream, consumer = _named(account, request, now)
    account.throttle("DescribeStreamConsumer", 20, now, stream.name)
    return {"ConsumerDescription": {**consumer.description(now), "StreamARN": stream.arn}}


def deregister(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Remove a consumer in any state.

    AWS documents no error for a consumer that is being created or removed.
    """
    stream, consumer = _named(account, request, now)
    account.throttle("DeregisterStreamConsumer", 5, now, stream.name)
    if consumer.gone_at is None:
        consumer.gone_at = now + account.settings.consumer_ready_s
    return {}


def list_consumers(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.stream(request, now)
    account.throttle("ListStreamConsumers", 5, now, stream.name)
    created = request.get("StreamCreationTimestamp")
    last = ""
    if request.get("NextToken") is not None:
        if created is not None:
            raise ServiceError(
                "InvalidArgumentException",
                "NextToken and StreamCreationTimestamp cannot be given together.",
            )
        fields = page_of(account, "consumers", request["NextToken"], now)
        last, created = fields["last"], fields["created"]
    if created is not None and int(created) != stream.created_s:
        raise account.no_stream(stream.name)
    consumers = stream.registered(now)
    start = bisect_right([c.name for c in consumers], last)
    stop = start + min(request.get("MaxResults") or 100, 100)
    answer: dict[str, Any] = {"Consumers": [c.description(now) for c in consumers[start:stop]]}
    if stop < len(consumers):
        answer["NextToken"] = seal(
            "consumers",
            {"last": consumers[stop - 1].name, "created": stream.created_s, "issued": now},
        )
    return answer


def _named(account: Account, request: Mapping[str, Any], now: float) -> tuple[Stream, Consumer]:
    """Find a consumer by its ARN, by its stream's ARN and its name, or by all three.

    Raises:
        ServiceError: There is no such consumer, or they do not agree.
    """
    arn, stream_arn = request.get("ConsumerARN"), request.get("StreamARN")
    name = request.get("ConsumerName")
    if arn is not None:
        stream, consumer = account.consumer(arn, now)
        if stream_arn not in (None, stream.arn) or name not in (None, consumer.name):
            raise ServiceError(
                "InvalidArgumentException", "ConsumerARN, StreamARN and ConsumerName do not agree."
            )
        return stream, consumer
    if stream_arn is None or name is None:
        raise ServiceError(
            "InvalidArgumentException", "ConsumerARN, or StreamARN and ConsumerName, is needed."
        )
    stream = account.stream({"StreamARN": stream_arn}, now)
    stream.registered(now)
    if name not in stream.consumers:
        raise ServiceError(
            "ResourceNotFoundException",
            f"Consumer {name} under stream {stream.name} and account "
            f"{account.settings.account_id} not found.",
        )
    return stream, stream.consumers[name]
