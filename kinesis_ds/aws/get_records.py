"""The calls GetShardIterator and GetRecords: their requests, and the shape of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.starting_position import shard_iterator_position
from kinesis_ds.errors import ProtocolError
from kinesis_ds.wire.decode import millis_behind

if TYPE_CHECKING:
    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.plan.position import Position


@dataclass(frozen=True)
class Page:
    """An answer of GetRecords.

    Attributes:
        records: The records as JSON objects.
        following: The next iterator; None at the end of the shard.
        behind_ms: How far behind the tip of the shard, in milliseconds.
        has_children: True if the answer names child shards, as the last one of a shard does.
    """

    records: list[Any]
    following: str | None
    behind_ms: int
    has_children: bool = False


def parse_page(raw: dict[str, Any], label: str) -> Page:
    """Return an answer of GetRecords as a page.

    A member that is missing never counts as the end of the shard, or as its tip.

    Raises:
        ProtocolError: The answer is not as Kinesis documents it.
    """
    records, following = raw.get("Records"), raw.get("NextShardIterator")
    if not isinstance(records, list):
        raise ProtocolError(f"GetRecords for {label} answered without records.")
    if following is not None and not isinstance(following, str):
        raise ProtocolError(f"GetRecords for {label} answered an iterator that is no text.")
    try:
        return Page(records, following or None, millis_behind(raw), _names_children(raw))
    except TypeError as exc:
        raise ProtocolError(f"GetRecords for {label} answered {exc}.") from exc


def _names_children(raw: dict[str, Any]) -> bool:
    children = raw.get("ChildShards")
    return isinstance(children, list) and bool(children)


def get_records_request(stream_arn: str, iterator: str, limit: int) -> dict[str, Any]:
    """Return the members of GetRecords. A stream of another account needs its ARN in there."""
    return {"StreamARN": stream_arn, "ShardIterator": iterator, "Limit": limit}


async def shard_iterator(
    connection: Connection, stream_arn: str, shard_id: str, position: Position, label: str
) -> str:
    """Return a new iterator that starts at ``position``; it expires after five minutes.

    Raises:
        KinesisConnectorError: The call was refused, or the network failed.
    """
    answer = await connection.call(
        "GetShardIterator",
        {"StreamARN": stream_arn, "ShardId": shard_id, **shard_iterator_position(position)},
        label,
    )
    iterator = answer.get("ShardIterator")
    if not isinstance(iterator, str):
        raise ProtocolError(f"GetShardIterator for {label} answered without an iterator.")
    return iterator
