"""Positions as members of requests."""

from __future__ import annotations

from typing import Any

from kinesis_ds.plan.position import After, At, AtTimestamp, Position, TrimHorizon


def starting_position(position: Position) -> dict[str, Any]:
    """Return the StartingPosition of SubscribeToShard.

    https://docs.aws.amazon.com/kinesis/latest/APIReference/API_StartingPosition.html

    Raises:
        ValueError: Nothing can be read from this position on, for example the end of a shard.
    """
    if isinstance(position, At):
        return {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": position.sequence_number}
    if isinstance(position, After):
        return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position.sequence_number}
    if isinstance(position, AtTimestamp):
        return {"Type": "AT_TIMESTAMP", "Timestamp": position.ms / 1000}
    if isinstance(position, TrimHorizon):
        return {"Type": "TRIM_HORIZON"}
    raise ValueError(f"nothing can be read at {position}")


def shard_iterator_position(position: Position) -> dict[str, Any]:
    """Return the members of GetShardIterator that name a position."""
    members = starting_position(position)
    request = {"ShardIteratorType": members["Type"]}
    if "SequenceNumber" in members:
        request["StartingSequenceNumber"] = members["SequenceNumber"]
    if "Timestamp" in members:
        request["Timestamp"] = members["Timestamp"]
    return request
