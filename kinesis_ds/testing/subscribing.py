"""Open the subscription that SubscribeToShard asks for, or refuse it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.limits import SUBSCRIBE_MIN_INTERVAL_S
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.positions import start_after
from kinesis_ds.testing.subscription import Subscription
from kinesis_ds.testing.validation import dry_run

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.consumers import Consumer


def subscribe(account: Account, request: Mapping[str, Any], now: float) -> Subscription:
    stream, consumer = account.consumer(request["ConsumerARN"], now)
    account.usable(stream, now)
    shard = stream.shard(request["ShardId"], now)
    _refuse_early(account, consumer, shard.shard_id, now)
    position = request["StartingPosition"]
    after = start_after(stream, shard, "SubscribeToShard", position, now, account.settings)
    account.check_key(stream)
    dry_run(request)

    former = consumer.current.get(shard.shard_id)
    if former is not None:
        former.superseded = True
    subscription = Subscription(
        stream,
        shard,
        consumer,
        after,
        now,
        account.settings,
        on_over=account.open_subscriptions.remove,
    )
    consumer.subscribed_at[shard.shard_id] = now
    consumer.current[shard.shard_id] = subscription
    account.open_subscriptions.append(subscription)
    return subscription


def _refuse_early(account: Account, consumer: Consumer, shard_id: str, now: float) -> None:
    """Refuse a second call within a second, and any call within 5 s of one that succeeded.

    A call that is refused because it came too early does not count; any other call does. If
    ``resubscribe_s`` is shorter than a second, it also replaces the second between calls.
    """
    interval_s = min(SUBSCRIBE_MIN_INTERVAL_S, account.settings.resubscribe_s)
    called_at = consumer.called_at.get(shard_id)
    if called_at is not None and now - called_at < interval_s:
        raise ServiceError(
            "LimitExceededException",
            f"Rate exceeded for consumer {consumer.arn} and shard {shard_id}",
        )
    consumer.called_at[shard_id] = now
    status = consumer.status(now)
    if status != "ACTIVE":
        raise ServiceError(
            "ResourceInUseException", f"Consumer {consumer.arn} not ACTIVE, instead in {status}"
        )
    subscribed_at = consumer.subscribed_at.get(shard_id)
    if subscribed_at is not None and now - subscribed_at < account.settings.resubscribe_s:
        raise ServiceError(
            "ResourceInUseException",
            f"Another active subscription exists for this consumer: {consumer.arn}",
        )
