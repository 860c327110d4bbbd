"""Control calls: what a stream is, which shards it has, and the consumer that reads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.errors import translate
from kinesis_ds.errors import (
    ConsumerError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
    shown,
)
from kinesis_ds.limits import (
    CONSUMERS_PER_STREAM,
    KIB,
    RECORD_MAX_BYTES_DEFAULT,
    RETENTION_HOURS_DEFAULT,
)
from kinesis_ds.plan.shards import Shard
from kinesis_ds.plan.stream import StreamId, StreamInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# DescribeStreamConsumer allows 20 calls a second per stream, RegisterStreamConsumer 5 per account:
# whoever was told that it is too many looks again more and more rarely, and not all at once.
_CONSUMER_POLL_S = 0.5
_CONSUMER_POLL_CAP_S = 4.0
# A token that is too old for the next page comes from a slow answer. So many in a row do not.
_LISTINGS_BEGUN_AGAIN = 5


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
            retention_hours=int(summary.get("RetentionPeriodHours") or RETENTION_HOURS_DEFAULT),
            distributes=summary.get("RecordDistributionStrategy") == "AUTO",
        )
    if info.status == "DELETING":
        raise StreamNotFoundError(f"The stream {stream.label} is being deleted.")
    return info


async def list_shards(
    connection: Connection, stream: StreamId, after: str | None = None
) -> dict[str, Shard]:
    """The shards of a stream, open and closed, over all pages.

    Args:
        after: Only those whose ids come after this one; by default all.
    """
    expired = 0
    while True:
        try:
            return await _all_pages(connection, stream, after)
        except InvalidRequestError as exc:
            expired += 1
            if exc.code != "ExpiredNextTokenException" or expired > _LISTINGS_BEGUN_AGAIN:
                raise


async def _all_pages(
    connection: Connection, stream: StreamId, after: str | None
) -> dict[str, Shard]:
    shards: dict[str, Shard] = {}
    request: dict[str, Any] = stream.request()
    if after is not None:
        request["ExclusiveStartShardId"] = after
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
    patience = _Patience(timeout_s, clock)
    refused = told = False
    while True:
        try:
            refused = False
            described = await _consumer(connection, info, ConsumerName=consumer)
            if described is None:
                patience.state = "not registered"
                refused = True
                await _control(
                    connection.client.register_stream_consumer,
                    StreamId(arn=info.arn),
                    StreamARN=info.arn,
                    ConsumerName=consumer,
                )
                logger.info("consumer registered stream=%s consumer=%s", info.name, consumer)
                continue
            patience.state = described.status
            if described.status == "ACTIVE":
                return described.arn
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            patience.held_up(exc)
            refused = refused and isinstance(exc, ThrottledError)
        if refused and not told:
            told = True
            if crowd := await _crowd(connection, info):
                logger.warning("the consumer %s cannot be registered yet.%s", consumer, crowd)
        if patience.over:
            crowd = await _crowd(connection, info) if refused else ""
            raise ConsumerError(
                f"The consumer {consumer} of stream {info.name} was not ACTIVE within "
                f"{timeout_s:g}s (last seen: {patience.state}).{crowd}",
                f"Look at the stream's consumers (at most {CONSUMERS_PER_STREAM} a stream), remove "
                "unused ones, or raise registerConsumerTimeoutInterval.",
            )
        await patience.wait()


async def registered_consumer(
    connection: Connection, info: StreamInfo, given: str, timeout_s: float, clock: Clock
) -> str:
    """The ARN of a consumer that somebody else has registered, once it is ACTIVE.

    Args:
        given: Its name or its ARN. By ARN it is found in another account, too.

    Raises:
        ConsumerError: It is not there, belongs to another stream, is being deleted, or is not
            ACTIVE before the time-out. It is never registered here, and never deregistered.
    """
    by_arn = given.startswith("arn:")
    if by_arn:
        _check_owner(given, given.rpartition("/consumer/")[0], info)
    member = {"ConsumerARN" if by_arn else "ConsumerName": given}
    patience = _Patience(timeout_s, clock)
    while True:
        try:
            described = await _consumer(connection, info, **member)
            if described is None:
                raise await _missing(connection, info, given)
            _check_owner(given, described.stream_arn, info)
            patience.state = described.status
            if described.status == "ACTIVE":
                return described.arn
            if described.status == "DELETING":
                raise ConsumerError(
                    f"The consumer {given} of stream {info.name} is being deleted.",
                    "Register it again when it is gone, or leave registeredConsumerId out and the "
                    "query registers one of its own.",
                )
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            patience.held_up(exc)
        if patience.over:
            raise ConsumerError(
                f"The consumer {given} of stream {info.name} was not ACTIVE within {timeout_s:g}s "
                f"(last seen: {patience.state}).",
                "Look at its state with DescribeStreamConsumer, or raise "
                "registerConsumerTimeoutInterval.",
            )
        await patience.wait()


async def serving_consumer(connection: Connection, info: StreamInfo, arn: str) -> bool:
    """Whether the consumer with this ARN is there and serves subscriptions.

    One of the same name that was registered since has another ARN: this one stays gone.
    """
    described = await _consumer(connection, info, ConsumerARN=arn)
    return described is not None and described.arn == arn and described.status == "ACTIVE"


async def deregister_consumer(connection: Connection, info: StreamInfo, consumer: str) -> None:
    """Remove the consumer; one that is gone already is fine.

    A call that is throttled or not answered is made again, for as long as the caller waits.
    """
    while True:
        try:
            await _control(
                connection.client.deregister_stream_consumer,
                StreamId(arn=info.arn),
                StreamARN=info.arn,
                ConsumerName=consumer,
            )
            break
        except StreamNotFoundError:
            return
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            logger.debug("the consumer %s is not deregistered yet: %s", consumer, exc)
            await asyncio.sleep(_CONSUMER_POLL_S)
    logger.info("consumer deregistered stream=%s consumer=%s", info.name, consumer)


class _Patience:
    """How long a consumer is waited for, and what was last heard of it."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self.state = "unknown"
        self._deadline = clock.monotonic() + timeout_s
        self._clock = clock
        self._pause_s = _CONSUMER_POLL_S

    @property
    def over(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def held_up(self, error: KinesisConnectorError) -> None:
        self.state = str(error)
        if isinstance(error, ThrottledError):
            self._pause_s = min(_CONSUMER_POLL_CAP_S, self._pause_s * 2)

    async def wait(self) -> None:
        jitter = random.uniform(0.5, 1.0) if self._pause_s > _CONSUMER_POLL_S else 1.0
        left = max(0.0, self._deadline - self._clock.monotonic())
        await asyncio.sleep(min(self._pause_s * jitter, left))


@dataclass(frozen=True)
class _Described:
    """A consumer as DescribeStreamConsumer tells it."""

    status: str
    arn: str
    stream_arn: str


async def _consumer(connection: Connection, info: StreamInfo, **member: str) -> _Described | None:
    """A consumer by ``ConsumerName`` or ``ConsumerARN``; None where there is none.

    Across accounts AWS finds it by its ARN only.
    """
    if "ConsumerName" in member:
        member["StreamARN"] = info.arn
    stream = StreamId(arn=info.arn)
    try:
        answer = await _control(connection.client.describe_stream_consumer, stream, **member)
    except StreamNotFoundError:
        return None
    with _reading("DescribeStreamConsumer", stream):
        described = answer["ConsumerDescription"]
        return _Described(
            str(described["ConsumerStatus"]),
            str(described["ConsumerARN"]),
            str(described.get("StreamARN") or info.arn),
        )


def _check_owner(given: str, stream_arn: str, info: StreamInfo) -> None:
    if stream_arn != info.arn:
        owner = f"belongs to {stream_arn}" if stream_arn else "is not the ARN of a consumer"
        raise ConsumerError(
            f"The consumer {given} {owner}, and the query reads {info.arn}.",
            "Give the consumer of this stream as registeredConsumerId, one a stream and in the "
            "order of the streams.",
        )


async def _missing(connection: Connection, info: StreamInfo, given: str) -> ConsumerError:
    """The error for a consumer that is not registered, and what may have become of it."""
    name = consumer_name(given)
    also = ""
    if name != given:
        with contextlib.suppress(KinesisConnectorError):
            namesake = await _consumer(connection, info, ConsumerName=name)
            if namesake is not None:
                also = f" One of its name was registered since: {namesake.arn}."
    return ConsumerError(
        f"The consumer {given} is not registered with stream {info.name}.{also}",
        f"Register it (aws kinesis register-stream-consumer --stream-arn {info.arn} "
        f"--consumer-name {name}), or give consumerName instead of registeredConsumerId: then the "
        "query registers it.",
    )


def consumer_name(given: str) -> str:
    """The name in a consumer's ARN, which ends with the time of its registration; else itself."""
    _, inside, name = given.rpartition("/consumer/")
    return name.rpartition(":")[0] or name if inside else given


async def _crowd(connection: Connection, info: StreamInfo) -> str:
    """A sentence on which consumers a stream has, where they are as many as it may have.

    A stream with fewer is held up by the account's other registrations, and that passes.
    """
    stream = StreamId(arn=info.arn)
    names: list[str] = []
    request: dict[str, Any] = {"StreamARN": info.arn}
    try:
        while True:
            answer = await _control(connection.client.list_stream_consumers, stream, **request)
            with _reading("ListStreamConsumers", stream):
                names += [str(c["ConsumerName"]) for c in answer["Consumers"]]
            token = answer.get("NextToken")
            if not token:
                break
            request = {"StreamARN": info.arn, "NextToken": token}
    except KinesisConnectorError as exc:
        # The permission to list is not needed for anything else.
        logger.debug("the consumers of stream %s could not be listed: %s", info.name, exc)
        return ""
    if len(names) < CONSUMERS_PER_STREAM:
        return ""
    return f" Stream {info.name} has {len(names)} consumers: {', '.join(sorted(names))}."


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
