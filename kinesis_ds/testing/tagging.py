"""Operations on the tags of streams. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account

_MAX_TAGS = 50


def add_tags(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.active(account.stream(request, now), now)
    tags = {**stream.tags, **request["Tags"]}
    if len(tags) > _MAX_TAGS:
        raise ServiceError("InvalidArgumentException", f"A stream has at most {_MAX_TAGS} tags.")
    stream.tags = tags
    return {}


def remove_tags(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.active(account.stream(request, now), now)
    for key in request["TagKeys"]:
        stream.tags.pop(key, None)
    return {}


def list_tags(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.stream(request, now)
    after = request.get("ExclusiveStartTagKey") or ""
    keys = [key for key in sorted(stream.tags) if key > after]
    limit = request.get("Limit") or _MAX_TAGS
    return {
        "Tags": [{"Key": key, "Value": stream.tags[key] or ""} for key in keys[:limit]],
        "HasMoreTags": len(keys) > limit,
    }
