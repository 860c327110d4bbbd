"""Answer PutRecord and PutRecords. Pure."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pybase64

from kinesis_ds.limits import KIB, MAX_HASH_KEY, PUT_RECORDS_MAX_BYTES
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.fields import FIELDS
from kinesis_ds.testing.hashing import hash_of
from kinesis_ds.testing.sequence import origin
from kinesis_ds.testing.validation import check, dry_run

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream

_ENTRY = {name: FIELDS["PutRecord"][name] for name in ("Data", "PartitionKey", "ExplicitHashKey")}


class Entry(NamedTuple):
    """A record to be put.

    Attributes:
        data: Its data in base64.
        size: Bytes of its data and its key.
        key: Its partition key, if it has one.
        explicit: Its explicit hash key, if it has one.
    """

    data: str
    size: int
    key: str | None
    explicit: str | None


def put_record(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    entry = _entry(request)
    stream = account.usable(account.stream(request, now), now)
    ordering = request.get("SequenceNumberForOrdering")
    if ordering is not None and origin(int(ordering)) is None:
        raise ServiceError(
            "InvalidArgumentException",
            f"ExclusiveMinimumSequenceNumber {ordering} used in PutRecord on stream {stream.name} "
            f"under account {account.settings.account_id} is invalid.",
        )
    _check(stream, [entry])
    account.check_key(stream)
    dry_run(request)
    shard = _shard(stream, entry)
    if account.limited and not shard.admits(entry.size, now):
        raise account.too_fast(stream, shard)
    number = shard.append(*entry, round(now * 1000), _extra(stream))
    return {"ShardId": shard.shard_id, "SequenceNumber": number, **_encryption(stream)}


def put_records(account: Account, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    entries = [_entry(raw, at) for at, raw in enumerate(request["Records"], 1)]
    stream = account.usable(account.stream(request, now), now)
    _check(stream, entries)
    total = sum(entry.size for entry in entries)
    if total > PUT_RECORDS_MAX_BYTES:
        raise ServiceError("InvalidArgumentException", "Records size exceeds 10 MB limit")
    account.check_key(stream)
    dry_run(request)
    limited = account.limited
    results: list[dict[str, str]] = []
    failed = 0
    now_ms, extra = round(now * 1000), _extra(stream)
    for entry in entries:
        shard = _shard(stream, entry)
        if limited and not shard.admits(entry.size, now):
            failed += 1
            error = account.too_fast(stream, shard)
            results.append({"ErrorCode": error.code, "ErrorMessage": error.message})
        else:
            number = shard.append(*entry, now_ms, extra)
            results.append({"SequenceNumber": number, "ShardId": shard.shard_id})
    return {"FailedRecordCount": failed, "Records": results, **_encryption(stream)}


def _entry(raw: Any, at: int | None = None) -> Entry:
    """Check one record of a request; ``at`` is its place in PutRecords, from 1."""
    path = "" if at is None else f"records.{at}.member."
    if not isinstance(raw, dict):
        raise ServiceError("SerializationException", f"{path} is no structure")
    data, key, explicit = raw.get("Data"), raw.get("PartitionKey"), raw.get("ExplicitHashKey")
    # The common case is checked quickly; for all others the table has the error texts.
    if not (
        isinstance(data, str)
        and explicit is None
        and (key is None or (isinstance(key, str) and 1 <= len(key) <= 256))
    ):
        check(_ENTRY, raw, path)
    assert isinstance(data, str)
    if explicit is not None and int(explicit) > MAX_HASH_KEY:
        raise ServiceError(
            "InvalidArgumentException",
            "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
            f"Specified value was {explicit}",
        )
    try:
        size = len(pybase64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise ServiceError("SerializationException", f"{path}data is no base64") from None
    if key is not None:
        size += len(key.encode())
    return Entry(data, size, key, explicit)


def _check(stream: Stream, entries: list[Entry]) -> None:
    """Refuse the whole request if the stream does not take one of its records.

    For single records the API has only the errors ProvisionedThroughputExceededException and
    InternalFailure, so a record that is too large or has no key fails the call.
    """
    limit = stream.max_record_kib * KIB
    keys_needed = stream.strategy != "AUTO"
    for at, entry in enumerate(entries, 1):
        if keys_needed and entry.key is None:
            raise ServiceError(
                "InvalidArgumentException",
                f"Record {at} has no PartitionKey, which stream {stream.name} needs.",
            )
        if entry.size > limit:
            raise ServiceError(
                "InvalidArgumentException",
                f"Record {at} has {entry.size} bytes with its PartitionKey; stream {stream.name} "
                f"takes records of up to {limit} bytes.",
            )


def _shard(stream: Stream, entry: Entry) -> Shard:
    if stream.strategy == "AUTO":
        return stream.next_in_turn()
    if entry.explicit is not None:
        return stream.shard_for(int(entry.explicit))
    assert entry.key is not None
    return stream.shard_for(hash_of(entry.key))


def store(stream: Stream, entry: Entry, now: float) -> str:
    """Put a record without limits of rates, and return its sequence number."""
    return _shard(stream, entry).append(*entry, round(now * 1000), _extra(stream))


def _extra(stream: Stream) -> str:
    """Return the JSON that is added to a record of an encrypted stream."""
    return "" if stream.key_id is None else ',"EncryptionType":"KMS"'


def _encryption(stream: Stream) -> dict[str, str]:
    return {} if stream.key_id is None else {"EncryptionType": "KMS"}
