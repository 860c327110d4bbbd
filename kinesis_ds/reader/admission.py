"""How much of what is there a batch takes, where a trigger has limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesis_ds.offsets import SourceOffset
from kinesis_ds.planning import ranges, share_out
from kinesis_ds.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Limits:
    """Bounds of one batch; None where there is none."""

    max_records: int | None = None
    max_bytes: int | None = None


class Held(Protocol):
    """As :class:`kinesis_ds.agent.buffer.Held`."""

    @property
    def records(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def end(self) -> Position: ...


class Buffer(Protocol):
    """What :class:`kinesis_ds.agent.buffer.ShardBuffer` tells of the records it holds."""

    def hold(
        self,
        start: Position,
        end: Position,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> Held | None: ...

    def first(self, start: Position, end: Position) -> Held | None: ...

    def oldest_ms(self, start: Position, end: Position) -> int | None: ...


class _Name(NamedTuple):
    stream_arn: str
    shard_id: str


@dataclass(frozen=True)
class _Backlog:
    buffer: Buffer
    start: Position
    end: Position
    records: int
    nbytes: int


def admit(
    base: SourceOffset,
    following: SourceOffset,
    limits: Limits,
    buffers: Mapping[str, Callable[[str], Buffer | None]],
) -> SourceOffset:
    """As much of the batch from ``base`` to ``following`` as the limits allow.

    Shared out fairly over the shards of all streams; where not each can have some, those come first
    whose records have waited longest. What shares a sequence number is not parted, and a record (or
    an aggregate) larger than a limit comes alone, or reading would stand still.

    Args:
        buffers: By stream, what holds the records of a shard.
    """
    if limits.max_records is None and limits.max_bytes is None:
        return following
    backlog, order = _backlog(base, following, buffers)
    records = _shares(limits.max_records, {n: b.records for n, b in backlog.items()}, order)
    nbytes = _shares(limits.max_bytes, {n: b.nbytes for n, b in backlog.items()}, order)
    ends: dict[_Name, Position] = {}
    took = False
    for name in order:
        span = backlog[name]
        held = span.buffer.hold(span.start, span.end, records[name], nbytes[name])
        ends[name] = held.end if held is not None else span.start
        took = took or (held is not None and held.records > 0)
    if order and not took:
        span = backlog[order[0]]
        alone = span.buffer.first(span.start, span.end)
        ends[order[0]] = alone.end if alone is not None else span.end
    streams = {}
    for arn, stream in following.streams.items():
        shards = dict(stream.shards)
        for shard_id in stream.shards:
            end = ends.get(_Name(arn, shard_id))
            if end is None:
                continue
            if end == TRIM_HORIZON and shard_id not in base.streams[arn].shards:
                del shards[shard_id]  # a new shard of which nothing is taken yet
            else:
                shards[shard_id] = end
        streams[arn] = stream.with_shards(shards)
    return SourceOffset(streams)


def _backlog(
    base: SourceOffset,
    following: SourceOffset,
    buffers: Mapping[str, Callable[[str], Buffer | None]],
) -> tuple[dict[_Name, _Backlog], list[_Name]]:
    """What each shard has, and the shards in the order in which their records came."""
    backlog: dict[_Name, _Backlog] = {}
    ages: dict[_Name, int] = {}
    for arn, stream in following.streams.items():
        if arn not in base.streams:
            continue
        for span in ranges(base.streams[arn], stream):
            buffer = buffers[arn](span.shard_id)
            held = buffer.hold(span.start, span.end) if buffer is not None else None
            if buffer is not None and held is not None and held.records:
                name = _Name(arn, span.shard_id)
                backlog[name] = _Backlog(buffer, span.start, span.end, held.records, held.nbytes)
                ages[name] = buffer.oldest_ms(span.start, span.end) or 0
    return backlog, sorted(backlog, key=lambda name: (ages[name], name))


def _shares(
    limit: int | None, wanted: Mapping[_Name, int], order: Sequence[_Name]
) -> Mapping[_Name, int | None]:
    return dict.fromkeys(wanted) if limit is None else dict(share_out(limit, wanted, order))
