"""Answer ListShards. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.tokens import page_of, seal

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream

_EXCLUDED_BY_TOKEN = (
    "StreamName",
    "ExclusiveStartShardId",
    "StreamCreationTimestamp",
    "ShardFilter",
)


def list_shards(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream, after, chosen = _asked(account, request, now)
    account.throttle("ListShards", 1000, now, stream.name)
    if stream.status(now) != "UPDATING":  # the shards of a stream that is being changed are listed
        account.active(stream, now)
    wanted = _filter(stream, chosen, now)
    if chosen is not None and chosen["Type"] == "AFTER_SHARD_ID":
        after = max(after or "", chosen["ShardId"])
    limit = min(request.get("MaxResults") or 1000, 1000)
    shown: list[dict[str, Any]] = []
    for shard in stream.shards_after(after):
        if not wanted(shard):
            continue
        if len(shown) == limit:
            fields = {
                "stream": stream.name,
                "created": stream.created_s,
                "after": shown[-1]["ShardId"],
                "filter": chosen,
                "issued": now,
            }
            return {"Shards": shown, "NextToken": seal("shards", fields)}
        shown.append(shard.description())
    return {"Shards": shown}


def _asked(
    account: Account, request: Mapping[str, Any], now: float
) -> tuple[Stream, str | None, Mapping[str, Any] | None]:
    """Return the stream, the shard after which to start, and the filter that a request names."""
    token = request.get("NextToken")
    if token is None:
        stream = account.stream(request, now)
        created = request.get("StreamCreationTimestamp")
        if created is not None and int(created) != stream.created_s:
            raise account.no_stream(stream.name)
        return stream, request.get("ExclusiveStartShardId"), request.get("ShardFilter")
    both = [name for name in _EXCLUDED_BY_TOKEN if request.get(name) is not None]
    if both:
        raise ServiceError(
            "InvalidArgumentException",
            f"NextToken and {' and '.join(both)} cannot be given together.",
        )
    fields = page_of(account, "shards", token, now)
    stream = account.stream_named(fields["stream"], now)
    if stream.created_s != fields["created"]:
        raise account.no_stream(stream.name)
    return stream, fields["after"], fields["filter"]


def _filter(
    stream: Stream, chosen: Mapping[str, Any] | None, now: float
) -> Callable[[Shard], bool]:
    """Return a function that says whether a ``ShardFilter`` lets a shard through."""
    if chosen is None:
        return lambda shard: True
    kind = chosen["Type"]
    _check_filter(chosen)
    horizon_ms = max(stream.horizon_ms(now), stream.created_ms)
    if kind == "AT_LATEST":
        return lambda shard: shard.closed_ms is None
    if kind == "AT_TRIM_HORIZON":
        return lambda shard: _open_at(shard, horizon_ms)
    if kind in ("FROM_TRIM_HORIZON", "AFTER_SHARD_ID"):
        return lambda shard: True
    time_ms = round(chosen["Timestamp"] * 1000)
    if kind == "AT_TIMESTAMP":
        return lambda shard: _open_at(shard, time_ms)
    from_ms = max(time_ms, horizon_ms)
    return lambda shard: shard.closed_ms is None or shard.closed_ms >= from_ms


def _open_at(shard: Shard, time_ms: int) -> bool:
    return shard.created_ms <= time_ms and (shard.closed_ms is None or shard.closed_ms >= time_ms)


def _check_filter(chosen: Mapping[str, Any]) -> None:
    kind = chosen["Type"]
    needs = {
        "AFTER_SHARD_ID": "ShardId",
        "AT_TIMESTAMP": "Timestamp",
        "FROM_TIMESTAMP": "Timestamp",
    }
    for name in ("ShardId", "Timestamp"):
        given, needed = chosen.get(name) is not None, needs.get(kind) == name
        if given != needed:
            verb = "needs" if needed else "takes no"
            raise ServiceError("InvalidArgumentException", f"ShardFilter {kind} {verb} {name}.")
