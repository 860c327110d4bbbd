"""Find out whether records expired behind a checkpoint while nobody read.

Servers differ in what they do with a sequence number older than their oldest record: some refuse
it, some start at the oldest record without a word. The reader that meets a refusal reports it.
The silent start has to be found out before the shard is read:

* A position carries the time up to which the shard had been seen (``After.seen_ms``). While that is
  within the stream's retention, nothing behind the position can have expired. This costs no call.
* Otherwise the oldest record is looked at. If it lies at or before the position, everything that
  has expired lies there too, and nothing was lost.
* Otherwise records may have been lost: those that arrived after the position was seen, and expired.
  A shard that was idle for all that time looks the same (sequence numbers have gaps), so it counts
  as a loss, and ``failOnDataLoss`` decides. A running query keeps the positions of idle shards
  young, so this happens only to a query that was down for longer than the retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.aws.read_range import read_range
from kinesis_ds.plan.loss import Loss, expired_unread, may_have_expired
from kinesis_ds.plan.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock
    from kinesis_ds.plan.stream import StreamInfo


async def lost_before_start(
    connection: Connection, info: StreamInfo, shard_id: str, position: Position, clock: Clock
) -> Loss | None:
    """Return the loss behind a checkpointed position, or None if nothing can have been lost.

    Calls Kinesis only where :func:`may_have_expired`.

    Raises:
        KinesisConnectorError: Kinesis refused to say, or gave no good answer for three minutes.
    """
    now_ms = int(clock.wall() * 1000)
    if not may_have_expired(position, now_ms, info.retention_hours):
        return None
    label = f"shard {shard_id} of stream {info.name}"
    up_to = read_range(connection, info.arn, shard_id, TRIM_HORIZON, position, label, clock)
    if await anext(up_to, None) is not None:
        return None  # the oldest record was there before the position
    return expired_unread(label, position, info.retention_hours)
