"""Answer GetShardIterator and GetRecords. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.limits import GET_RECORDS_MAX_RECORDS, MIB
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.positions import start_after
from kinesis_ds.testing.sequence import time_ms
from kinesis_ds.testing.tokens import seal, unseal
from kinesis_ds.testing.validation import dry_run

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream

_CALLS_PER_S = 5
_ANSWER_BYTES = 10 * MIB


def get_shard_iterator(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    stream = account.usable(account.stream(request, now), now)
    shard = stream.shard(request["ShardId"], now)
    _throttle(account, "GetShardIterator", stream, shard, now)
    position = {
        "Type": request["ShardIteratorType"],
        "SequenceNumber": request.get("StartingSequenceNumber"),
        "Timestamp": request.get("Timestamp"),
    }
    after = start_after(stream, shard, "GetShardIterator", position, now, account.settings)
    dry_run(request)
    return {"ShardIterator": _iterator(stream, shard, after, now)}


def get_records(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    limit = request.get("Limit") or GET_RECORDS_MAX_RECORDS
    if limit > GET_RECORDS_MAX_RECORDS:
        raise ServiceError("InvalidArgumentException", f"Limit {limit} is more than 10000.")
    fields = unseal("iterator", request["ShardIterator"])
    if fields is None:
        raise ServiceError("InvalidArgumentException", "Invalid ShardIterator.")
    stream = account.usable(account.stream_named(fields["stream"], now), now)
    if request.get("StreamARN") not in (None, stream.arn):
        raise ServiceError("InvalidArgumentException", "ShardIterator is of another stream.")
    if stream.created_s != fields["created"]:
        raise account.no_stream(stream.name)
    _refuse_expired(account, fields["issued"], now)
    shard = stream.shard(fields["shard"], now)
    account.check_key(stream)
    _throttle(account, "GetRecords", stream, shard, now)
    if account.limited and shard.bytes_out.level(now) < 0:
        raise account.too_fast(stream, shard)
    dry_run(request)
    return _answer(account, stream, shard, int(fields["after"]), limit, now)


def _answer(
    account: Account, stream: Stream, shard: Shard, after: int, limit: int, now: float
) -> dict[str, Any]:
    log = shard.log
    now_ms = round(now * 1000)
    # What retention took since the iterator was made is skipped without a word.
    place = log.after(after)
    looked_ms = _looked_ms(account, shard, after)
    shown, closed = _shown(account, shard, now_ms)
    if place >= shown and (shown < log.stop or closed != (shard.ending is not None)):
        return _empty(stream, shard, after, 0, now)
    stop = min(log.fitting(place, limit, _ANSWER_BYTES), max(shown, place))
    if looked_ms is not None and place < (beyond := log.since(looked_ms + 1)):
        stop = min(stop, beyond)
    elif looked_ms is not None and place < log.stop:
        behind_ms = max(1, now_ms - looked_ms)
        return _empty(stream, shard, shard.clock.moment(looked_ms), behind_ms, now)
    _count_bytes(shard, log.size(place, stop), now)
    answer: dict[str, Any] = {
        "Records": orjson.Fragment(log.json(place, stop)),
        "MillisBehindLatest": 0 if stop == shown else shard.behind_ms(place, stop, now_ms),
    }
    if stop < log.stop or (shard.ending is not None and not closed):
        after = log.number(stop - 1)
    elif not closed:
        after = shard.here(now_ms)
    else:
        return {
            **answer,
            "NextShardIterator": None,
            "ChildShards": shard.child_descriptions(),
        }
    return {**answer, "NextShardIterator": _iterator(stream, shard, after, now)}


def _empty(stream: Stream, shard: Shard, after: int, behind_ms: int, now: float) -> dict[str, Any]:
    return {
        "Records": [],
        "MillisBehindLatest": behind_ms,
        "NextShardIterator": _iterator(stream, shard, after, now),
    }


def _shown(account: Account, shard: Shard, now_ms: int) -> tuple[int, bool]:
    """Return the place after the records that GetRecords shows, and whether it shows the end."""
    lag_ms = round(account.settings.get_records_lag_s * 1000)
    if not lag_ms:
        return shard.log.stop, shard.ending is not None
    closed_ms = shard.closed_ms
    closed = closed_ms is not None and closed_ms + lag_ms <= now_ms
    return shard.log.since(now_ms - lag_ms + 1), closed


def _looked_ms(account: Account, shard: Shard, after: int) -> int | None:
    """Return the time up to which one answer looks for records; None if there is no such bound."""
    if account.settings.stretch_s is None:
        return None
    return max(time_ms(after), shard.created_ms) + round(account.settings.stretch_s * 1000)


def _count_bytes(shard: Shard, size: int, now: float) -> None:
    """Take an answer's bytes from the shard's allowance.

    An answer above one second's allowance is paid back in full, even if allowance was saved up: an
    answer of 10 MiB blocks the shard for 5 s, as AWS says.
    """
    level = shard.bytes_out.level(now)
    shard.bytes_out.borrow(size + max(level, 0) if size > shard.bytes_out.rate else size, now)


def _iterator(stream: Stream, shard: Shard, after: int, now: float) -> str:
    return seal(
        "iterator",
        {
            "stream": stream.name,
            "created": stream.created_s,
            "shard": shard.shard_id,
            "after": str(after),
            "issued": now,
        },
    )


def _refuse_expired(account: Account, issued: float, now: float) -> None:
    life_s = account.settings.iterator_life_s
    if now - issued > life_s:
        raise ServiceError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created at time {issued} while right now it is "
            f"{now} which is further in the future than the tolerated delay of "
            f"{round(life_s * 1000)} milliseconds.",
        )


def _throttle(account: Account, operation: str, stream: Stream, shard: Shard, now: float) -> None:
    what = (operation, stream.name, str(stream.created_s), shard.shard_id)
    if account.limit(what, _CALLS_PER_S, now):
        raise account.too_fast(stream, shard)
