"""Operations that create, delete, list and describe streams. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.stream import Stream
from kinesis_ds.testing.tokens import page_of, seal

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account

SHARDS_PER_ACCOUNT = 20_000
ON_DEMAND_STREAMS = 50
_ON_DEMAND_SHARDS = 4
_MAX_CREATING = 5


def create_stream(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("CreateStream", 5, now)
    name = request["StreamName"]
    on_demand = (request.get("StreamModeDetails") or {}).get("StreamMode") == "ON_DEMAND"
    count, strategy = request.get("ShardCount"), request.get("RecordDistributionStrategy")
    if on_demand and count is not None:
        raise ServiceError("InvalidArgumentException", "An on-demand stream takes no ShardCount.")
    if not on_demand and count is None:
        raise ServiceError("ValidationException", "ShardCount is required for this stream mode.")
    if strategy == "AUTO" and not on_demand:
        raise ServiceError("InvalidArgumentException", "AUTO needs an on-demand stream.")
    account.settle(now)
    if name in account.streams:
        raise ServiceError(
            "ResourceInUseException",
            f"Stream {name} under account {account.settings.account_id} already exists.",
        )
    _check_account_limits(account, count or _ON_DEMAND_SHARDS, now)

    # AWS shows whole seconds; a stream that follows one of the same name is told from it all the
    # same.
    created_s = max(int(now), account.stream_created_s.get(name, -1) + 1)
    account.stream_created_s[name] = created_s
    arn = account.names.stream_arn(name)
    stream = Stream(name, arn, created_s, now, account.settings.stream_ready_s, account.rng)
    stream.mode = "ON_DEMAND" if on_demand else "PROVISIONED"
    stream.strategy = strategy or stream.strategy
    stream.max_record_kib = request.get("MaxRecordSizeInKiB") or stream.max_record_kib
    stream.tags.update(request.get("Tags") or {})
    stream.open_first(count or _ON_DEMAND_SHARDS)
    account.streams[name] = stream
    return {}


def delete_stream(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("DeleteStream", 5, now)
    stream = account.active(account.stream(request, now), now)
    if stream.registered(now) and not request.get("EnforceConsumerDeletion"):
        raise ServiceError(
            "ResourceInUseException",
            f"Stream {stream.name} under account {account.settings.account_id} has registered "
            "consumers. Set EnforceConsumerDeletion to delete them too.",
        )
    stream.gone_at = now + account.settings.stream_ready_s
    return {}


def list_streams(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("ListStreams", 5, now)
    account.settle(now)
    names = sorted(account.streams)
    last = request.get("ExclusiveStartStreamName")
    if request.get("NextToken") is not None:
        if last is not None:
            raise ServiceError(
                "InvalidArgumentException",
                "NextToken and ExclusiveStartStreamName exclude another.",
            )
        last = page_of(account, "streams", request["NextToken"], now)["last"]
    start = 0 if last is None else bisect_right(names, last)
    stop = start + min(request.get("Limit") or 100, 100)
    shown = names[start:stop]
    answer: dict[str, Any] = {
        "StreamNames": shown,
        "HasMoreStreams": stop < len(names),
        "StreamSummaries": [_summary(account.streams[name], now) for name in shown],
    }
    if stop < len(names):
        answer["NextToken"] = seal("streams", {"last": shown[-1], "issued": now})
    return answer


def describe_stream(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("DescribeStream", 10, now)
    stream = account.stream(request, now)
    limit = min(request.get("Limit") or 100, 100)
    shards: list[dict[str, Any]] = []
    more = False
    # A stream that is being created shows no shards yet.
    if stream.status(now) != "CREATING":
        for shard in stream.shards_after(request.get("ExclusiveStartShardId")):
            if len(shards) == limit:
                more = True
                break
            shards.append(shard.description())
    shown = {**stream.description(now), "Shards": shards, "HasMoreShards": more}
    return {"StreamDescription": shown}


def describe_stream_summary(
    account: Account, request: Mapping[str, Any], now: float
) -> dict[str, Any]:
    account.throttle("DescribeStreamSummary", 20, now)
    stream = account.stream(request, now)
    return {
        "StreamDescriptionSummary": {
            **stream.description(now),
            "OpenShardCount": len(stream.open_shards),
            "ConsumerCount": len(stream.registered(now)),
            "MaxRecordSizeInKiB": stream.max_record_kib,
            "RecordDistributionStrategy": stream.strategy,
        }
    }


def describe_limits(account: Account, _request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("DescribeLimits", 1, now)
    account.settle(now)
    streams = account.streams.values()
    return {
        "ShardLimit": SHARDS_PER_ACCOUNT,
        "OpenShardCount": sum(len(stream.open_shards) for stream in streams),
        "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in streams),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAMS,
    }


def _check_account_limits(account: Account, shards: int, now: float) -> None:
    streams = account.streams.values()
    creating = sum(stream.status(now) == "CREATING" for stream in streams)
    if creating >= _MAX_CREATING and not account.exempt:
        raise ServiceError(
            "LimitExceededException", f"More than {_MAX_CREATING} streams are being created."
        )
    if sum(len(s.open_shards) for s in streams) + shards > SHARDS_PER_ACCOUNT:
        raise ServiceError(
            "LimitExceededException",
            f"This request would exceed the shard limit for the account "
            f"{account.settings.account_id} in {account.settings.region}.",
        )


def _summary(stream: Stream, now: float) -> dict[str, Any]:
    shown = stream.description(now)
    return {
        name: shown[name]
        for name in (
            "StreamName",
            "StreamARN",
            "StreamStatus",
            "StreamModeDetails",
            "StreamCreationTimestamp",
        )
    }
