"""Control calls: what a stream is, which shards it has, and the consumer that reads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.faults import translate
from kinesis_ds.errors import (
    ConsumerError,
    KinesisConnectorError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
    shown,
)
from kinesis_ds.limits import KIB, RECORD_MAX_BYTES_DEFAULT
from kinesis_ds.options import StreamId
from kinesis_ds.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# DescribeStreamConsumer allows 20 calls a second per stream, RegisterStreamConsumer 5 per account.
_CONSUMER_POLL_S = 0.5


@dataclass(frozen=True)
class StreamInfo:
    """A stream as DescribeStreamSummary tells it.

    Attributes:
        server_time: The service's clock at the answer, seconds since the epoch, or None.
        max_record_bytes: Largest record the stream takes, partition key included.
    """

    name: str
    arn: str
    created_ms: int
    status: str
    server_time: float | None
    max_record_bytes: int = RECORD_MAX_BYTES_DEFAULT


async def describe_stream(connection: Connection, stream: StreamId) -> StreamInfo:
    """Look a stream up by name or ARN.

    Raises:
        StreamNotFoundError: There is none, or it is being deleted.
    """
    try:
        answer = await _control(
            connection.client.describe_stream_summary, stream, **stream.request()
        )
    except StreamNotFoundError as exc:
        raise StreamNotFoundError(
            f"There is no stream {stream.label} in region {connection.client.meta.region_name} at "
            f"{connection.endpoint_label}.",
            exc.remedy,
        ) from exc
    with _reading("DescribeStreamSummary", stream):
        summary = answer["StreamDescriptionSummary"]
        info = StreamInfo(
            name=summary["StreamName"],
            arn=summary["StreamARN"],
            created_ms=round(summary["StreamCreationTimestamp"].timestamp() * 1000),
            status=summary["StreamStatus"],
            server_time=_server_time(answer),
            # Servers (and SDKs) from before UpdateMaxRecordSize do not say.
            max_record_bytes=summary.get("MaxRecordSizeInKiB", 0) * KIB or RECORD_MAX_BYTES_DEFAULT,
        )
    if info.status == "DELETING":
        raise StreamNotFoundError(f"The stream {stream.label} is being deleted.")
    return info


async def list_shards(connection: Connection, stream: StreamId) -> dict[str, Shard]:
    """All shards of a stream, open and closed, over all pages."""
    shards: dict[str, Shard] = {}
    request: dict[str, Any] = stream.request()
    while True:
        answer = await _control(connection.client.list_shards, stream, **request)
        with _reading("ListShards", stream):
            for raw in answer["Shards"]:
                shard = _shard(raw)
                shards[shard.shard_id] = shard
        token = answer.get("NextToken")
        if not token:
            return shards
        request = {"NextToken": token}


async def ensure_consumer(
    connection: Connection, info: StreamInfo, consumer: str, timeout_s: float, clock: Clock
) -> str:
    """Register the consumer if it is missing and wait until it is ACTIVE; returns its ARN.

    Registration that is throttled, raced by another process or not answered is waited for. A
    consumer that is being deleted is waited for and registered again: its old ARN is of no use.

    Raises:
        ConsumerError: Not ACTIVE before the time-out.
    """
    deadline = clock.monotonic() + timeout_s
    state = "unknown"
    while True:
        try:
            described = await _consumer(connection, info, consumer)
            if described is None:
                state = "not registered"
                await _control(
                    connection.client.register_stream_consumer,
                    StreamId(arn=info.arn),
                    StreamARN=info.arn,
                    ConsumerName=consumer,
                )
                logger.info("consumer registered stream=%s consumer=%s", info.name, consumer)
                continue
            state = described["ConsumerStatus"]
            if state == "ACTIVE":
                return described["ConsumerARN"]
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            state = str(exc)
        if clock.monotonic() >= deadline:
            raise ConsumerError(
                f"The consumer {consumer} of stream {info.name} was not ACTIVE within "
                f"{timeout_s:g}s "
                f"(last seen: {state}).",
                "Look at the stream's consumers (at most 20 a stream), remove unused ones, or "
                "raise "
                "registerConsumerTimeoutInterval.",
            )
        await asyncio.sleep(_CONSUMER_POLL_S)


async def active_consumer(connection: Connection, info: StreamInfo, consumer: str) -> str | None:
    """The ARN of the consumer, if it exists and serves subscriptions.

    The ARN tells a consumer from an earlier one of the same name.
    """
    described = await _consumer(connection, info, consumer)
    if described is None or described["ConsumerStatus"] != "ACTIVE":
        return None
    return described["ConsumerARN"]


async def deregister_consumer(connection: Connection, info: StreamInfo, consumer: str) -> None:
    """Remove the consumer; one that is gone already is fine."""
    try:
        await _control(
            connection.client.deregister_stream_consumer,
            StreamId(arn=info.arn),
            StreamARN=info.arn,
            ConsumerName=consumer,
        )
    except StreamNotFoundError:
        return
    logger.info("consumer deregistered stream=%s consumer=%s", info.name, consumer)


async def _consumer(
    connection: Connection, info: StreamInfo, consumer: str
) -> dict[str, str] | None:
    try:
        answer = await _control(
            connection.client.describe_stream_consumer,
            StreamId(arn=info.arn),
            StreamARN=info.arn,
            ConsumerName=consumer,
        )
    except StreamNotFoundError:
        return None
    with _reading("DescribeStreamConsumer", StreamId(arn=info.arn)):
        described = answer["ConsumerDescription"]
        return {member: str(described[member]) for member in ("ConsumerStatus", "ConsumerARN")}


async def _control(method: Callable[..., Awaitable[Any]], stream: StreamId, **request: Any) -> Any:
    try:
        return await method(**request)
    except Exception as exc:
        operation = "".join(word.capitalize() for word in method.__name__.split("_"))
        error: KinesisConnectorError = translate(exc, operation, f"stream {stream.label}")
        raise error from exc


@contextlib.contextmanager
def _reading(operation: str, stream: StreamId) -> Iterator[None]:
    """Members that are missing or of another kind are the answer's fault, and said to be."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise ProtocolError(
            f"{operation} for stream {stream.label} was answered without what Kinesis promises "
            f"({type(exc).__name__}: {shown(exc.args[0] if exc.args else '')}).",
            "Is the endpoint a Kinesis endpoint?",
        ) from exc


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
