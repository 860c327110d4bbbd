"""The offset that Spark writes into its checkpoint: a file format that users keep for years.

Version 2 is one JSON object of strings, integers and nested objects::

    {"v": 2,
     "streams": {"<stream ARN>": {
         "name": "orders",
         "created": 1700000000000,           # creation of the stream, ms since the epoch
         "consumer": "kinesis_ds_1f0c...",   # the enhanced fan-out consumer of this query
         "from": {"shardId-000000000000": "TRIM_HORIZON"},   # only where the start is not logged
         "shards": {"shardId-000000000000": "AFTER:4964...@1700000000123",
                    "shardId-000000000001": "SHARD_END"}}},
     "crc32": "5c0a31f7"}                    # of "streams", as :func:`_checksum` writes them

What follows the ``@`` is ``After.seen_ms``. ``from`` is where the batch that ends here starts, if
the offset before it does not say: the first batch of a query that reads records at once
(``Trigger.Once``). Version 1 had neither. The first offsets of version 2 had no ``crc32``: they are
read unchecked, and a program that does not know the member passes over it.

``{"v": 2, "initial": 1}`` is what ``initialOffset`` returns: *before anything was decided*. PySpark
gives a source no place to store its initial offset, so it must be the same value every time it is
asked. The first batch of a query runs from there to the first real offset and usually holds no
records: it exists to write the resolved start positions and the consumer's name into the
checkpoint before either is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.codecs import crc32
from kinesis_ds.errors import OffsetError, shown
from kinesis_ds.plan.position import Position, ShardEnd, parse_position

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 2


@dataclass(frozen=True)
class InitialOffset:
    """The offset before the first batch of a query."""


@dataclass(frozen=True)
class StreamOffset:
    """Positions in one stream.

    Attributes:
        name: The stream's name.
        arn: The stream's ARN.
        created_ms: When the stream was created, in milliseconds since the epoch. A stream that was
            deleted and created again differs here.
        consumer: Name or ARN of the enhanced fan-out consumer.
        shards: Position by shard id. A shard at its end stays in it while the stream lists it.
        start: Where the batch that ends here starts, by shard id, if no offset before it says so;
            else None.
    """

    name: str
    arn: str
    created_ms: int
    consumer: str
    shards: Mapping[str, Position] = field(default_factory=dict)
    start: Mapping[str, Position] | None = None

    def with_shards(self, shards: Mapping[str, Position]) -> StreamOffset:
        """Return an offset of the same stream with other positions."""
        return replace(self, shards=dict(shards), start=None)

    def ended(self, shard_id: str) -> bool:
        """Return True if a shard was read to its end."""
        return isinstance(self.shards.get(shard_id), ShardEnd)


@dataclass(frozen=True)
class SourceOffset:
    """Positions in all streams of a source.

    Attributes:
        streams: The positions in each stream, by its ARN.
    """

    streams: Mapping[str, StreamOffset]


Offset = InitialOffset | SourceOffset


def encode_offset(offset: Offset) -> dict[str, Any]:
    """Return an offset as a dictionary of strings, integers and dictionaries, for JSON."""
    if isinstance(offset, InitialOffset):
        return {"v": VERSION, "initial": 1}
    streams = {
        arn: {
            "name": s.name,
            "created": s.created_ms,
            "consumer": s.consumer,
            **({} if s.start is None else {"from": _encode_positions(s.start)}),
            "shards": _encode_positions(s.shards),
        }
        for arn, s in sorted(offset.streams.items())
    }
    return {"v": VERSION, "streams": streams, "crc32": _checksum(streams)}


def decode_offset(raw: object) -> Offset:
    """Return the offset that :func:`encode_offset` of this or an older version wrote.

    Raises:
        OffsetError: It is no offset of this connector, or damaged, or of a newer version.
    """
    if not isinstance(raw, dict) or type(raw.get("v")) is not int or raw["v"] < 1:
        raise OffsetError(
            f"The checkpoint holds {shown(raw)}, which no version of this connector wrote.",
            "Was it made by another source? Start with a new checkpointLocation.",
        )
    if raw["v"] > VERSION:
        raise OffsetError(
            f"The checkpoint was written in offset format {shown(raw['v'])}; this version of "
            f"kinesis_ds reads up to {VERSION}.",
            "Upgrade kinesis_ds to the version that wrote it.",
        )
    if "initial" in raw:
        if type(raw["initial"]) is not int or raw["initial"] != 1 or "streams" in raw:
            raise _damaged(f"'initial' is not 1, or not alone, in {shown(raw)}")
        return InitialOffset()
    try:
        offset = SourceOffset(
            {
                arn: StreamOffset(
                    name=_typed(s["name"], str),
                    arn=_typed(arn, str),
                    created_ms=_typed(s["created"], int),
                    consumer=_typed(s["consumer"], str),
                    shards=_decode_positions(s["shards"]),
                    start=_decode_positions(s["from"]) if "from" in s else None,
                )
                for arn, s in raw["streams"].items()
            }
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise _damaged(f"{exc!r} in {shown(raw)}") from exc
    _check(raw)
    return offset


def _check(raw: dict[str, Any]) -> None:
    """Raise OffsetError if the positions are not those that were written.

    A digit that changed is still a digit: without a checksum, records would be left out or repeated
    without a word.
    """
    if "crc32" not in raw:
        return
    try:
        found = _checksum(raw["streams"])
    except (ValueError, TypeError, RecursionError) as exc:
        raise _damaged(f"{type(exc).__name__} in {shown(raw)}") from exc
    if raw["crc32"] != found:
        raise OffsetError(
            f"The checkpoint's offset is damaged: its checksum crc32 is {shown(raw['crc32'])} and "
            f"should be {found} in {shown(raw)}.",
            "Restore the checkpoint from a copy, or start with a new checkpointLocation. If you "
            "changed the offset yourself, leave crc32 out.",
        )


def _checksum(streams: Mapping[str, object]) -> str:
    """Return the CRC-32, in eight hex digits, of the JSON of ``streams``.

    In it the members of each object are sorted, there are no spaces, and what is not ASCII is
    escaped: whoever passes an offset on may write it in another way.
    """
    text = json.dumps(streams, sort_keys=True, separators=(",", ":"))
    return f"{crc32(text.encode()):08x}"


def _encode_positions(positions: Mapping[str, Position]) -> dict[str, str]:
    return {shard: str(positions[shard]) for shard in sorted(positions)}


def _decode_positions(raw: Mapping[str, object]) -> dict[str, Position]:
    return {_typed(shard, str): parse_position(text) for shard, text in raw.items()}


def _damaged(why: str) -> OffsetError:
    return OffsetError(
        f"The checkpoint's offset is damaged: {why}.",
        "Restore the checkpoint from a copy, or start with a new checkpointLocation.",
    )


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{shown(value)} is no {kind.__name__}")
    return value
