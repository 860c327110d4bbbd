"""Find the sequence number at which a read starts, from the position in the request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.sequence import origin
from kinesis_ds.testing.shard import Shard, shard_id

if TYPE_CHECKING:
    from kinesis_ds.testing.settings import Settings
    from kinesis_ds.testing.stream import Stream

BY_NUMBER = ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")


def start_after(
    stream: Stream,
    shard: Shard,
    operation: str,
    position: Mapping[str, Any],
    now: float,
    settings: Settings,
) -> int:
    """Return the sequence number after which a read of this shard starts.

    Args:
        operation: The operation's name, for error texts.
        position: ``Type`` with ``SequenceNumber`` or ``Timestamp``, as SubscribeToShard names them.

    Raises:
        ServiceError: InvalidArgumentException if there is no such position.
    """
    kind: str = position["Type"]
    number: str | None = position.get("SequenceNumber")
    time: float | None = position.get("Timestamp")
    if (number is not None) != (kind in BY_NUMBER) or (time is not None) != (
        kind == "AT_TIMESTAMP"
    ):
        raise _invalid(
            "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and a sequence "
            "number, (2) AT_TIMESTAMP and a timestamp or (3) TRIM_HORIZON or LATEST and neither. "
            f"Request specified {kind} and sequence number {number}, timestamp {time}."
        )
    now_ms = round(now * 1000)
    if kind == "TRIM_HORIZON":
        return shard.oldest()
    if kind == "LATEST":
        return shard.here(now_ms)
    if kind == "AT_TIMESTAMP":
        assert time is not None
        return _at_time(shard, round(time * 1000), now_ms)
    after = int(number or 0) - (kind == "AT_SEQUENCE_NUMBER")
    _check_origin(stream, shard, operation, str(number), now_ms)
    if after < shard.log.forgotten:
        if settings.expired_position == "refuse":
            raise _invalid(
                f"StartingSequenceNumber {number} used in {operation} on shard {shard.shard_id} "
                f"in stream {stream.name} is older than the oldest record of the shard."
            )
        return shard.oldest()
    return after


def _at_time(shard: Shard, time_ms: int, now_ms: int) -> int:
    # AWS refuses a time to come, in these words; clients with a fast clock meet it.
    if time_ms > now_ms:
        raise _invalid(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {time_ms}, currentTimestampInMillis: {now_ms}"
        )
    place = shard.log.since(time_ms)
    return shard.here(now_ms) if place == shard.log.stop else shard.log.number(place) - 1


def _check_origin(stream: Stream, shard: Shard, operation: str, number: str, now_ms: int) -> None:
    """Refuse numbers of other shards or streams, and numbers that no record has yet.

    The texts for the first two are those of AWS. AWS does not document the last case.
    """
    found = origin(int(number))
    if found is not None and found.index != shard.origin.index:
        raise _invalid(
            f"Invalid StartingSequenceNumber. It encodes {shard_id(found.index)}, while it was "
            f"used in a call to a shard with {shard.shard_id}"
        )
    highest = max(shard.here(now_ms), shard.clock.first) + 1
    if found != shard.origin or int(number) > highest:
        raise _invalid(
            f"StartingSequenceNumber {number} used in {operation} on shard {shard.shard_id} in "
            f"stream {stream.name} under account {stream.arn.split(':')[4]} is invalid because it "
            "did not come from this stream."
        )


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidArgumentException", message)
