"""Decide how much a batch takes of what is there, when a trigger has limits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesis_ds.plan.held import Limits
from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import TRIM_HORIZON, Position
from kinesis_ds.plan.ranges import ShardRange, ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_ds.plan.held import Held, Hold

Name = TypeVar("Name")


class _Name(NamedTuple):
    stream_arn: str
    shard_id: str


class _Backlog(NamedTuple):
    span: ShardRange
    held: Held


def admit(
    base: SourceOffset,
    following: SourceOffset,
    limits: Limits,
    holds: Mapping[str, Hold],
) -> SourceOffset:
    """Return as much of the batch from ``base`` to ``following`` as the limits allow.

    The limits are shared out fairly over the shards of all streams; where not each can have some,
    those come first whose records have waited longest. What shares a sequence number is not parted,
    and a record (or an aggregate) larger than a limit comes alone, or reading would stand still.
    Nothing is taken of a range that is not held (any more): nobody knows how much it is.

    The agents of a stream are asked twice at most.

    Args:
        holds: By stream ARN, what asks the agents of the stream.
    """
    if limits.max_records is None and limits.max_bytes is None:
        return following
    backlog, ends = _backlog(base, following, holds)
    order = list(backlog)
    records = _shares(limits.max_records, {n: b.held.records for n, b in backlog.items()})
    nbytes = _shares(limits.max_bytes, {n: b.held.nbytes for n, b in backlog.items()})
    # The first may take a record that is larger than its share. It counts if nobody takes another.
    shares = {n: Limits(records[n], nbytes[n], at_least_one=n == order[0]) for n in order}
    taken: dict[_Name, Held | None] = {}
    for arn in dict.fromkeys(name.stream_arn for name in order):
        names = [name for name in order if name.stream_arn == arn]
        spans = [backlog[name].span for name in names]
        answers = holds[arn](spans, [shares[name] for name in names])
        taken.update(zip(names, answers, strict=True))
    others_took = any((held := taken[name]) is not None and held.records for name in order[1:])
    for name, held in taken.items():
        if held is None or (others_took and _exceeds(held, shares[name])):
            ends[name] = backlog[name].span.start
        else:
            ends[name] = held.end
    shards = {arn: dict(stream.shards) for arn, stream in following.streams.items()}
    for (arn, shard_id), end in ends.items():
        if end == TRIM_HORIZON and shard_id not in base.streams[arn].shards:
            del shards[arn][shard_id]  # a new shard of which nothing is taken yet
        else:
            shards[arn][shard_id] = end
    return SourceOffset({arn: s.with_shards(shards[arn]) for arn, s in following.streams.items()})


def _exceeds(held: Held, limits: Limits) -> bool:
    return (limits.max_records is not None and held.records > limits.max_records) or (
        limits.max_bytes is not None and held.nbytes > limits.max_bytes
    )


def _backlog(
    base: SourceOffset, following: SourceOffset, holds: Mapping[str, Hold]
) -> tuple[dict[_Name, _Backlog], dict[_Name, Position]]:
    """Return what each shard has, those first whose records came first; and where those shards
    stay of which that is not known.
    """
    backlog: dict[_Name, _Backlog] = {}
    unknown: dict[_Name, Position] = {}
    for arn, stream in following.streams.items():
        if arn not in base.streams:
            continue
        spans = ranges(base.streams[arn], stream)
        for span, held in zip(spans, holds[arn](spans), strict=True):
            name = _Name(arn, span.shard_id)
            if held is None:
                unknown[name] = span.start
            elif held.records:
                backlog[name] = _Backlog(span, held)
    oldest_first = sorted(backlog, key=lambda name: (backlog[name].held.oldest_ms or 0, name))
    return {name: backlog[name] for name in oldest_first}, unknown


def _shares(limit: int | None, wanted: Mapping[_Name, int]) -> Mapping[_Name, int | None]:
    return dict.fromkeys(wanted) if limit is None else dict(share_out(limit, wanted, list(wanted)))


def share_out(limit: int, wanted: Mapping[Name, int], order: Sequence[Name]) -> dict[Name, int]:
    """Divide a limit among those who want parts of it.

    Nobody gets more than he wants, nor less than another who wants more. The remainder of the
    division goes to the first in ``order``, one each.

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
