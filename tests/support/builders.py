"""Build what tests give to the connector: records, events, frames with checksums, shards."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.plan.shards import Shard
from kinesis_ds.testing.frames import event_message
from kinesis_ds.wire.decode import Records, decode_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# A record's arrival time where the test does not care, in seconds since the epoch.
ARRIVED_S = 1_700_000_000.0
# Sequence numbers of the service have 56 digits; tests count from here in readable steps.
BASE = 49_600_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000


def number(n: int) -> str:
    """Return the ``n``-th sequence number, as the service writes it."""
    return str(BASE + n)


def record(
    sequence_number: int | str,
    data: bytes = b"data",
    key: str | None = "key",
    arrived_s: float = ARRIVED_S,
) -> dict[str, Any]:
    """Return a record as it is in JSON."""
    raw: dict[str, Any] = {
        "SequenceNumber": str(sequence_number),
        "Data": base64.b64encode(data).decode(),
        "ApproximateArrivalTimestamp": arrived_s,
    }
    if key is not None:
        raw["PartitionKey"] = key
    return raw


def records(numbers: Iterable[int], data: bytes = b"data") -> Records:
    """Return decoded records with these sequence numbers."""
    decoded = decode_records([record(n, data) for n in numbers], TRIM_HORIZON)
    assert decoded is not None
    return decoded


def event(
    items: Sequence[Mapping[str, Any]],
    continuation: int | str | None,
    behind_ms: int = 0,
    children: Sequence[str] = (),
) -> bytes:
    """Return the payload of a SubscribeToShardEvent."""
    raw: dict[str, Any] = {"Records": list(items), "MillisBehindLatest": behind_ms}
    if continuation is not None:
        raw["ContinuationSequenceNumber"] = str(continuation)
    if children:
        raw["ChildShards"] = [
            {"ShardId": child, "ParentShards": [], "HashKeyRange": {}} for child in children
        ]
    return orjson.dumps(raw)


def event_frame(
    items: Sequence[Mapping[str, Any]],
    continuation: int | str | None,
    behind_ms: int = 0,
    children: Sequence[str] = (),
) -> bytes:
    """Return a SubscribeToShardEvent as it crosses the network."""
    return event_message(event(items, continuation, behind_ms, children))


def shard(
    shard_id: str,
    *parents: str,
    closed: bool = False,
    first: str = "0",
    hashes: tuple[int, int] = (0, MAX_HASH_KEY),
) -> Shard:
    """Return a shard as it is listed."""
    return Shard(shard_id, parents, first, closed, hashes)


def listing(*shards: Shard) -> dict[str, Shard]:
    """Return shards by id, as the result of ListShards is kept."""
    return {s.shard_id: s for s in shards}
