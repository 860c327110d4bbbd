"""Plan the ranges of a micro-batch in one stream: which records, and who holds them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.lineage import lineage_groups
from kinesis_ds.plan.loss import shard_gone
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.ranges import ranges

if TYPE_CHECKING:
    from kinesis_ds.agent.interface import Agent
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.held import Held
    from kinesis_ds.plan.offsets import StreamOffset
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.stream import StreamInfo
    from kinesis_ds.plan.ticket import AgentAddress

logger = logging.getLogger(__name__)


def plan_stream(
    origin: StreamOffset,
    end: StreamOffset,
    listed: ShardMap,
    options: ReadOptions,
    agent: Agent | None = None,
) -> list[PlannedRange]:
    """Return the ranges of the batch from ``origin`` to ``end``, parents before their children.

    Args:
        origin: Where the batch starts in the stream.
        end: Where it ends.
        listed: The shards of the stream.
        options: What the user asked for.
        agent: Reads the stream. None: nothing is read yet, and all ranges come from Kinesis.

    Raises:
        DataLossError: A shard is gone, and the query is to fail then.
    """
    found = ranges(origin, end)
    tied = _tied([r.shard_id for r in found], listed) if options.parents_first else {}
    holds = agent.plan(found) if agent is not None and found else [None] * len(found)
    planned = []
    for one, held in zip(found, holds, strict=True):
        if held is not None and not held.records:
            continue
        if held is None and is_lost(one.shard_id, one.start, listed, end.name, options):
            continue
        address = agent.address_of(one.shard_id) if agent is not None and held is not None else None
        group = tied.get(one.shard_id, "")
        planned.append(planned_range(one, end, listed, options, group, held, address))
    order = {shard_id: i for i, shard_id in enumerate(tied)}
    return sorted(planned, key=lambda p: order.get(p.shard_id, -1)) if order else planned


def planned_range(
    one: ShardRange,
    stream: StreamInfo | StreamOffset,
    listed: ShardMap,
    options: ReadOptions,
    lineage: str,
    held: Held | None = None,
    agent: AgentAddress | None = None,
) -> PlannedRange:
    """Return a range as a task reads it; :class:`PlannedRange` explains the arguments."""
    shard = listed.get(one.shard_id)
    return PlannedRange(
        stream=stream.name,
        stream_arn=stream.arn,
        shard_id=one.shard_id,
        start=one.start,
        end=one.end,
        records=held.records if held is not None else None,
        agent=agent,
        fail_on_data_loss=options.fail_on_data_loss,
        nbytes=held.nbytes if held is not None else None,
        lineage=lineage,
        decoding=Decoding(
            shard.hash_range if shard is not None else None, options.deaggregate, options.metadata
        ),
    )


def is_lost(
    shard_id: str, start: Position, listed: ShardMap, stream: str, options: ReadOptions
) -> bool:
    """Return True if the stream no longer lists a shard that is still to be read. Logs that.

    Raises:
        DataLossError: It is so, and the query is to fail then.
    """
    if shard_id in listed:
        return False
    loss = shard_gone(stream, shard_id, start)
    logger.warning("%s", loss.accept(fail_on_data_loss=options.fail_on_data_loss))
    return True


def _tied(shard_ids: list[str], listed: ShardMap) -> dict[str, str]:
    """Group the shards that one task reads in order: a parent and its child in one batch."""
    among = set(shard_ids)
    related = any(not among.isdisjoint(listed[s].parents) for s in shard_ids if s in listed)
    return lineage_groups(listed, among) if related else {}
