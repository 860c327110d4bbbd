"""How much of what is there a batch takes, where a trigger has limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import (
    TRIM_HORIZON,
    Position,
)
from kinesis_ds.plan.ranges import ShardRange, ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Name = TypeVar("Name")


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


class Holder(Protocol):
    """What an agent tells of the records it holds, as :class:`kinesis_ds.agent.interface.Agent`."""

    def hold(
        self,
        ranges: Sequence[ShardRange],
        limits: Sequence[tuple[int | None, int | None]] = (),
    ) -> Sequence[Held | None]: ...

    def oldest_ms(self, ranges: Sequence[ShardRange]) -> Sequence[int | None]: ...

    def first(self, wanted: ShardRange) -> Held | None: ...


class _Name(NamedTuple):
    stream_arn: str
    shard_id: str


@dataclass(frozen=True)
class _Backlog:
    span: ShardRange
    records: int
    nbytes: int


def admit(
    base: SourceOffset,
    following: SourceOffset,
    limits: Limits,
    holders: Mapping[str, Holder],
) -> SourceOffset:
    """As much of the batch from ``base`` to ``following`` as the limits allow.

    Shared out fairly over the shards of all streams; where not each can have some, those come first
    whose records have waited longest. What shares a sequence number is not parted, and a record (or
    an aggregate) larger than a limit comes alone, or reading would stand still. Of a range that is
    not held (any more) nothing is taken: how much it is, nobody knows.

    Args:
        holders: By stream, who holds the records of its shards.
    """
    if limits.max_records is None and limits.max_bytes is None:
        return following
    backlog, order, unknown = _backlog(base, following, holders)
    records = _shares(limits.max_records, {n: b.records for n, b in backlog.items()}, order)
    nbytes = _shares(limits.max_bytes, {n: b.nbytes for n, b in backlog.items()}, order)
    ends: dict[_Name, Position] = dict(unknown)
    took = False
    for arn, names in _by_stream(order).items():
        held = holders[arn].hold(
            [backlog[name].span for name in names],
            [(records[name], nbytes[name]) for name in names],
        )
        for name, part in zip(names, held, strict=True):
            ends[name] = part.end if part is not None else backlog[name].span.start
            took = took or (part is not None and part.records > 0)
    if order and not took:
        span = backlog[order[0]].span
        alone = holders[order[0].stream_arn].first(span)
        ends[order[0]] = alone.end if alone is not None else span.start
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
    base: SourceOffset, following: SourceOffset, holders: Mapping[str, Holder]
) -> tuple[dict[_Name, _Backlog], list[_Name], dict[_Name, Position]]:
    """What each shard has, the shards in the order in which their records came, and where those
    stay of which that is not known.
    """
    backlog: dict[_Name, _Backlog] = {}
    ages: dict[_Name, int] = {}
    unknown: dict[_Name, Position] = {}
    for arn, stream in following.streams.items():
        if arn not in base.streams:
            continue
        spans = ranges(base.streams[arn], stream)
        filled = []
        for span, held in zip(spans, holders[arn].hold(spans), strict=True):
            name = _Name(arn, span.shard_id)
            if held is None:
                unknown[name] = span.start
            elif held.records:
                backlog[name] = _Backlog(span, held.records, held.nbytes)
                filled.append(span)
        for span, oldest in zip(filled, holders[arn].oldest_ms(filled), strict=True):
            ages[_Name(arn, span.shard_id)] = oldest or 0
    return backlog, sorted(backlog, key=lambda name: (ages[name], name)), unknown


def _by_stream(names: Sequence[_Name]) -> dict[str, list[_Name]]:
    found: dict[str, list[_Name]] = {}
    for name in names:
        found.setdefault(name.stream_arn, []).append(name)
    return found


def _shares(
    limit: int | None, wanted: Mapping[_Name, int], order: Sequence[_Name]
) -> Mapping[_Name, int | None]:
    return dict.fromkeys(wanted) if limit is None else dict(share_out(limit, wanted, order))


def share_out(limit: int, wanted: Mapping[Name, int], order: Sequence[Name]) -> dict[Name, int]:
    """Divide a limit among those who want parts of it: nobody gets more than he wants, nor less
    than another who wants more, but for the remainder, which goes to the first in ``order``.

    Args:
        order: All of ``wanted``, the most urgent first.
    """
    shares: dict[Name, int] = {}
    left = limit
    unserved = sorted(order, key=lambda name: wanted[name])
    while unserved and wanted[unserved[0]] * len(unserved) <= left:
        modest = unserved.pop(0)
        shares[modest] = wanted[modest]
        left -= wanted[modest]
    equal, remainder = divmod(left, len(unserved)) if unserved else (0, 0)
    for name in order:
        if name not in shares:
            shares[name] = equal + (remainder > 0)
            remainder -= remainder > 0
    return shares
