"""Register, find, await and deregister the consumers of a stream (enhanced fan-out)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.control import control_call, reading_answer
from kinesis_ds.errors import (
    ConsumerError,
    KinesisConnectorError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import CONSUMERS_PER_STREAM
from kinesis_ds.plan.stream import StreamId, StreamInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

# How often the state of a consumer is looked up. DescribeStreamConsumer allows 20 calls a second
# per stream, RegisterStreamConsumer 5 per account; after a throttled call the pause doubles up to
# the second value, with jitter.
# https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html
_CONSUMER_POLL_S = 0.5
_CONSUMER_POLL_CAP_S = 4.0
# A wait that takes longer than this is told, whatever it is for.
_TOLD_AFTER_S = 15.0
# Names that are made up end like this, whatever prefix the user gave.
_MADE_UP = re.compile(r"[0-9a-f]{12}$")
_NAMED = 5


async def ensure_consumer(
    connection: Connection, info: StreamInfo, consumer: str, timeout_s: float, clock: Clock
) -> str:
    """Register the consumer if it is missing, wait until it is ACTIVE, and return its ARN.

    Tries again when registration is throttled, not answered, or another process registers the same
    consumer. Waits for a consumer that is being deleted to be gone and registers it again, because
    its old ARN is of no use.

    Raises:
        ConsumerError: The consumer was not ACTIVE within ``timeout_s``.
    """
    wait = _ConsumerWait(timeout_s, clock)
    refused = False
    while True:
        try:
            refused = False
            described = await _describe(connection, info, ConsumerName=consumer)
            if described is None:
                wait.state = "not registered"
                refused = True
                await control_call(
                    connection.client.register_stream_consumer,
                    StreamId(arn=info.arn),
                    StreamARN=info.arn,
                    ConsumerName=consumer,
                )
                logger.info("consumer registered stream=%s consumer=%s", info.name, consumer)
                continue
            wait.state = described.status
            if described.status == "ACTIVE":
                return described.arn
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            wait.note_failure(exc)
            refused = refused and isinstance(exc, ThrottledError)
        if refused and not wait.told and (full := await _consumers_if_full(connection, info)):
            wait.tell(consumer, info, full)
        elif wait.is_long:
            wait.tell(consumer, info)
        if wait.is_over:
            full = await _consumers_if_full(connection, info) if refused else ""
            raise ConsumerError(
                f"The consumer {consumer} of stream {info.name} was not ACTIVE within "
                f"{timeout_s:g}s (last seen: {wait.state}).{full}",
                f"Look at the stream's consumers (at most {CONSUMERS_PER_STREAM} a stream), remove "
                "unused ones, or raise registerConsumerTimeoutInterval.",
            )
        await wait.pause()


async def registered_consumer(
    connection: Connection, info: StreamInfo, given: str, timeout_s: float, clock: Clock
) -> str:
    """Wait until a consumer that somebody else has registered is ACTIVE, and return its ARN.

    Never registers and never deregisters it.

    Args:
        given: Its name or its ARN. AWS finds a consumer of another account by its ARN only.

    Raises:
        ConsumerError: The consumer does not exist, belongs to another stream, is being deleted, or
            was not ACTIVE within ``timeout_s``.
    """
    by_arn = given.startswith("arn:")
    if by_arn:
        _check_owner(given, given.rpartition("/consumer/")[0], info)
    member = {"ConsumerARN" if by_arn else "ConsumerName": given}
    wait = _ConsumerWait(timeout_s, clock)
    while True:
        try:
            described = await _describe(connection, info, **member)
            if described is None:
                raise await _not_registered(connection, info, given)
            _check_owner(given, described.stream_arn, info)
            wait.state = described.status
            if described.status == "ACTIVE":
                return described.arn
            if described.status == "DELETING":
                raise ConsumerError(
                    f"The consumer {given} of stream {info.name} is being deleted.",
                    "Register it again when it is gone, or leave registeredConsumerId out and the "
                    "query registers one of its own.",
                )
        except (ThrottledError, TransientError, ResourceInUseError) as exc:
            wait.note_failure(exc)
        if wait.is_over:
            raise ConsumerError(
                f"The consumer {given} of stream {info.name} was not ACTIVE within {timeout_s:g}s "
                f"(last seen: {wait.state}).",
                "Look at its state with DescribeStreamConsumer, or raise "
                "registerConsumerTimeoutInterval.",
            )
        if wait.is_long:
            wait.tell(given, info)
        await wait.pause()


async def serving_consumer(connection: Connection, info: StreamInfo, arn: str) -> bool:
    """Return True if the consumer with this ARN exists and is ACTIVE.

    A consumer of the same name that was registered later has another ARN and does not count.
    """
    described = await _describe(connection, info, ConsumerARN=arn)
    return described is not None and described.arn == arn and described.status == "ACTIVE"


async def deregister_consumer(connection: Connection, info: StreamInfo, consumer: str) -> None:
    """Deregister the consumer; do nothing if it is gone already.

    Repeats a call that is throttled or not answered until the caller cancels it.
    """
    while True:
        try:
            await control_call(
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


class _ConsumerWait:
    """The wait for a consumer to become ACTIVE: its deadline, its pauses, the last seen state."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self.state = "unknown"
        self.told = False
        self._timeout_s = timeout_s
        self._began = clock.monotonic()
        self._deadline = clock.monotonic() + timeout_s
        self._clock = clock
        self._pause_s = _CONSUMER_POLL_S

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    @property
    def is_long(self) -> bool:
        return self._clock.monotonic() - self._began >= _TOLD_AFTER_S

    def tell(self, consumer: str, info: StreamInfo, why: str = "") -> None:
        """Warn, once, what is waited for."""
        if not self.told:
            self.told = True
            logger.warning(
                "the query waits up to %gs for its consumer %s of stream %s to be ACTIVE (last "
                "seen: %s).%s",
                self._timeout_s,
                consumer,
                info.name,
                self.state,
                why,
            )

    def note_failure(self, error: KinesisConnectorError) -> None:
        self.state = str(error)
        if isinstance(error, ThrottledError):
            self._pause_s = min(_CONSUMER_POLL_CAP_S, self._pause_s * 2)

    async def pause(self) -> None:
        jitter = random.uniform(0.5, 1.0) if self._pause_s > _CONSUMER_POLL_S else 1.0
        left = max(0.0, self._deadline - self._clock.monotonic())
        await asyncio.sleep(min(self._pause_s * jitter, left))


@dataclass(frozen=True)
class _Consumer:
    """A consumer as DescribeStreamConsumer describes it."""

    status: str
    arn: str
    stream_arn: str


async def _describe(connection: Connection, info: StreamInfo, **member: str) -> _Consumer | None:
    """Look up a consumer by ``ConsumerName`` or ``ConsumerARN``; None if there is none."""
    if "ConsumerName" in member:
        member["StreamARN"] = info.arn
    stream = StreamId(arn=info.arn)
    try:
        answer = await control_call(connection.client.describe_stream_consumer, stream, **member)
    except StreamNotFoundError:
        return None
    with reading_answer("DescribeStreamConsumer", stream):
        described = answer["ConsumerDescription"]
        return _Consumer(
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


async def _not_registered(connection: Connection, info: StreamInfo, given: str) -> ConsumerError:
    """Return the error for a missing consumer; it names a newer one of the same name, if any."""
    name = consumer_name(given)
    also = ""
    if name != given:
        with contextlib.suppress(KinesisConnectorError):
            namesake = await _describe(connection, info, ConsumerName=name)
            if namesake is not None:
                also = f" One of its name was registered since: {namesake.arn}."
    return ConsumerError(
        f"The consumer {given} is not registered with stream {info.name}.{also}",
        f"Register it (aws kinesis register-stream-consumer --stream-arn {info.arn} "
        f"--consumer-name {name}), or give consumerName instead of registeredConsumerId: then the "
        "query registers it.",
    )


def consumer_name(given: str) -> str:
    """Return the name inside a consumer's ARN; a name is returned as it is.

    The ARN ends with ``/consumer/<name>:<time of registration>``.
    """
    _, inside, name = given.rpartition("/consumer/")
    return name.rpartition(":")[0] or name if inside else given


async def _consumers_if_full(connection: Connection, info: StreamInfo) -> str:
    """Return sentences that list the stream's consumers if it has as many as it may have.

    They name those that may be unused, and how to remove them. Nobody can tell whether a consumer
    is used, but each new checkpoint leaves one behind whose name was made up.

    Returns "" if it has fewer: then registration is refused only because of other registrations in
    the account, and that passes.
    """
    stream = StreamId(arn=info.arn)
    found: list[Mapping[str, Any]] = []
    request: dict[str, Any] = {"StreamARN": info.arn}
    try:
        while True:
            answer = await control_call(connection.client.list_stream_consumers, stream, **request)
            with reading_answer("ListStreamConsumers", stream):
                found += answer["Consumers"]
            token = answer.get("NextToken")
            if not token:
                break
            request = {"StreamARN": info.arn, "NextToken": token}
    except KinesisConnectorError as exc:
        # Nothing else needs the permission to list, so it may be missing.
        logger.debug("the consumers of stream %s could not be listed: %s", info.name, exc)
        return ""
    if len(found) < CONSUMERS_PER_STREAM:
        return ""
    created = {str(c.get("ConsumerName")): c.get("ConsumerCreationTimestamp") for c in found}
    text = f" Stream {info.name} has {len(created)} consumers: {', '.join(sorted(created))}."
    made_up = [name for name in created if _MADE_UP.search(name)]
    made_up.sort(key=lambda name: str(created[name]))
    if made_up:
        oldest = ", ".join(f"{name}{_since(created[name])}" for name in made_up[:_NAMED])
        more = f" and {len(made_up) - _NAMED} more" if len(made_up) > _NAMED else ""
        text += (
            f" Queries made up the names of {len(made_up)} of them, oldest first: {oldest}{more}. "
            "A query that began again with a new checkpoint has left its old one unused."
        )
    return (
        f"{text} Remove what no query uses: aws kinesis deregister-stream-consumer "
        f"--stream-arn {info.arn} --consumer-name {made_up[0] if made_up else 'NAME'}"
    )


def _since(created: object) -> str:
    return f" (since {created:%Y-%m-%d %H:%M})" if isinstance(created, datetime) else ""
