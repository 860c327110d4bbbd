"""Operations that change a stream's shards, mode, record size, retention and key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.resharding import scale

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream

_MAX_SHARDS = 10_000
_SCALINGS_A_DAY = 10
_DAY_S = 86_400
_RETENTION_HOURS = (24, 8760)


def split_shard(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("SplitShard", 5, now)
    stream = _resharded(account, request, now)
    shard = _open_shard(account, stream, request["ShardToSplit"])
    at = int(request["NewStartingHashKey"])
    if not shard.first_hash + 1 < at < shard.last_hash:
        raise ServiceError(
            "InvalidArgumentException",
            f"NewStartingHashKey {at} used in SplitShard() on shard {shard.shard_id} in stream "
            f"{stream.name} under account {account.settings.account_id} is not both greater than "
            f"one plus the shard's StartingHashKey {shard.first_hash} and less than the shard's "
            f"EndingHashKey {shard.last_hash}.",
        )

    stream.change(now, lambda now_ms: stream.divide(shard, at, now_ms))
    return {}


def merge_shards(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("MergeShards", 5, now)
    stream = _resharded(account, request, now)
    shard = _open_shard(account, stream, request["ShardToMerge"])
    adjacent = _open_shard(account, stream, request["AdjacentShardToMerge"])
    if shard.first_hash != adjacent.last_hash + 1 and adjacent.first_hash != shard.last_hash + 1:
        raise ServiceError(
            "InvalidArgumentException",
            f"Shards {shard.shard_id} and {adjacent.shard_id} in stream {stream.name} under "
            f"account {account.settings.account_id} are not an adjacent pair of shards eligible "
            "for merging",
        )
    stream.change(now, lambda now_ms: stream.unite(shard, adjacent, now_ms))
    return {}


def update_shard_count(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    account.throttle("UpdateShardCount", 10, now)
    stream = _resharded(account, request, now)
    current, target = len(stream.open_shards), request["TargetShardCount"]
    # AWS says nothing of a target that is there already.
    if target == current:
        raise ServiceError(
            "InvalidArgumentException", f"Stream {stream.name} has {current} shards already."
        )
    if not current / 2 <= target <= min(current * 2, _MAX_SHARDS):
        raise ServiceError(
            "LimitExceededException",
            f"UpdateShardCount cannot scale stream {stream.name} from {current} to {target} "
            "shards: at most double, at least half.",
        )
    while stream.scaled_at and stream.scaled_at[0] <= now - _DAY_S:
        stream.scaled_at.popleft()
    if account.limited and len(stream.scaled_at) >= _SCALINGS_A_DAY:
        raise ServiceError(
            "LimitExceededException",
            f"Stream {stream.name} was scaled {_SCALINGS_A_DAY} times within 24 hours.",
        )
    stream.scaled_at.append(now)
    stream.change(now, lambda now_ms: scale(stream, target, now_ms))
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": current,
        "TargetShardCount": target,
    }


def update_stream_mode(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.active(account.stream(request, now), now)
    mode = request["StreamModeDetails"]["StreamMode"]
    if mode == "PROVISIONED" and stream.strategy == "AUTO":
        raise ServiceError("InvalidArgumentException", "AUTO needs an on-demand stream.")

    def update(_now_ms: int) -> None:
        stream.mode = mode

    stream.change(now, update)
    return {}


def update_max_record_size(
    account: Account, request: Mapping[str, Any], now: float
) -> dict[str, Any]:
    stream = account.active(account.stream(request, now), now)

    def update(_now_ms: int) -> None:
        stream.max_record_kib = request["MaxRecordSizeInKiB"]

    stream.change(now, update)
    return {}


def update_strategy(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Change the strategy. AWS: "The change takes effect immediately"."""
    stream = account.active(account.stream(request, now), now)
    strategy = request["RecordDistributionStrategy"]
    if strategy == "AUTO" and stream.mode != "ON_DEMAND":
        raise ServiceError("InvalidArgumentException", "AUTO needs an on-demand stream.")
    stream.strategy = strategy
    return {}


def change_retention(
    account: Account, request: Mapping[str, Any], now: float, *, longer: bool
) -> dict[str, Any]:
    """Change the retention at once: AWS names no UPDATING state for it.

    Records that have expired before stay gone.
    """
    stream = account.active(account.stream(request, now), now)
    hours, present = request["RetentionPeriodHours"], stream.retention_hours
    low, high = _RETENTION_HOURS
    if not low <= hours <= high or (hours <= present if longer else hours >= present):
        raise ServiceError(
            "InvalidArgumentException",
            f"Requested retention period ({hours} hours) for stream {stream.name} must be "
            f"{'longer' if longer else 'shorter'} than the existing one ({present} hours) and "
            f"between {low} and {high} hours.",
        )
    for shard_id in stream.shards:
        stream.shard(shard_id, now)
    stream.retention_hours = hours
    stream.settle(now)
    return {}


def change_encryption(
    account: Account, request: Mapping[str, Any], now: float, *, start: bool
) -> dict[str, Any]:
    if request["EncryptionType"] != "KMS":
        raise ServiceError("InvalidArgumentException", "The only valid EncryptionType is KMS.")
    stream = account.active(account.stream(request, now), now)

    def encrypt(_now_ms: int) -> None:
        stream.key_id = request["KeyId"] if start else None

    stream.change(now, encrypt)
    return {}


def _resharded(account: Account, request: Mapping[str, Any], now: float) -> Stream:
    """Return the stream that a request names if its shards may be changed; else refuse."""
    stream = account.active(account.stream(request, now), now)
    if stream.mode != "PROVISIONED":
        raise ServiceError(
            "ValidationException",
            f"Stream {stream.name} under account {account.settings.account_id} is on-demand; only "
            "streams with the provisioned capacity mode can be resharded.",
        )
    return stream


def _open_shard(account: Account, stream: Stream, shard_id: str) -> Shard:
    shard = stream.shards.get(shard_id)
    where = f"stream {stream.name} under account {account.settings.account_id}"
    if shard is None:
        raise ServiceError(
            "ResourceNotFoundException", f"Could not find shard {shard_id} in {where}."
        )
    if shard.ending is not None:
        raise ServiceError(
            "InvalidArgumentException",
            f"Shard {shard_id} in {where} has already been merged or split, and thus is not "
            "eligible for merging or splitting.",
        )
    return shard
