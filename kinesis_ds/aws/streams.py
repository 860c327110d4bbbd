"""Describe a stream and list its shards."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.control import control_call, reading_answer
from kinesis_ds.errors import InvalidRequestError, StreamNotFoundError
from kinesis_ds.limits import KIB, RECORD_MAX_BYTES_DEFAULT, RETENTION_HOURS_DEFAULT
from kinesis_ds.plan.shards import Shard
from kinesis_ds.plan.stream import StreamId, StreamInfo

if TYPE_CHECKING:
    from kinesis_ds.aws.connection import Connection

# A slow answer can make the token for the next page expire; the listing is then started again.
# More expired tokens in a row than this are an error.
_MAX_LISTING_RESTARTS = 5


async def describe_stream(connection: Connection, stream: StreamId) -> StreamInfo:
    """Look a stream up by name or ARN.

    Raises:
        StreamNotFoundError: The stream does not exist, or it is being deleted.
    """
    try:
        answer = await control_call(
            connection.client.describe_stream_summary, stream, **stream.request()
        )
    except StreamNotFoundError as exc:
        raise StreamNotFoundError(
            f"There is no stream {stream.label} in region {connection.client.meta.region_name} at "
            f"{connection.endpoint_label}.",
            exc.remedy,
        ) from exc
    with reading_answer("DescribeStreamSummary", stream):
        summary = answer["StreamDescriptionSummary"]
        info = StreamInfo(
            name=summary["StreamName"],
            arn=summary["StreamARN"],
            created_ms=round(summary["StreamCreationTimestamp"].timestamp() * 1000),
            status=summary["StreamStatus"],
            server_time=_server_time(answer),
            # Servers and SDKs older than UpdateMaxRecordSize do not send it.
            max_record_bytes=summary.get("MaxRecordSizeInKiB", 0) * KIB or RECORD_MAX_BYTES_DEFAULT,
            retention_hours=int(summary.get("RetentionPeriodHours") or RETENTION_HOURS_DEFAULT),
            distributes=summary.get("RecordDistributionStrategy") == "AUTO",
        )
    if info.status == "DELETING":
        raise StreamNotFoundError(f"The stream {stream.label} is being deleted.")
    return info


async def list_shards(
    connection: Connection, stream: StreamId, after: str | None = None
) -> dict[str, Shard]:
    """List all shards of a stream, open and closed, by shard id.

    Args:
        after: List only shards whose ids come after this one.
    """
    expired = 0
    while True:
        try:
            return await _all_pages(connection, stream, after)
        except InvalidRequestError as exc:
            expired += 1
            if exc.code != "ExpiredNextTokenException" or expired > _MAX_LISTING_RESTARTS:
                raise


async def _all_pages(
    connection: Connection, stream: StreamId, after: str | None
) -> dict[str, Shard]:
    shards: dict[str, Shard] = {}
    request: dict[str, Any] = stream.request()
    if after is not None:
        request["ExclusiveStartShardId"] = after
    while True:
        answer = await control_call(connection.client.list_shards, stream, **request)
        with reading_answer("ListShards", stream):
            for raw in answer["Shards"]:
                shard = _shard(raw)
                shards[shard.shard_id] = shard
        token = answer.get("NextToken")
        if not token:
            return shards
        request = {"NextToken": token}


def _shard(raw: dict[str, Any]) -> Shard:
    numbers = raw["SequenceNumberRange"]
    hashes = raw["HashKeyRange"]
    return Shard(
        shard_id=raw["ShardId"],
        parents=tuple(raw[k] for k in ("ParentShardId", "AdjacentParentShardId") if raw.get(k)),
        first_sequence_number=numbers["StartingSequenceNumber"],
        closed=numbers.get("EndingSequenceNumber") is not None,
        hash_range=(int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])),
    )


def _server_time(answer: dict[str, Any]) -> float | None:
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (TypeError, ValueError):
        return None
