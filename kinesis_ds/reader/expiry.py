"""Whether records expired behind a checkpoint while nobody read.

Sources disagree on what Kinesis does with a sequence number older than its oldest record: it
refuses it, or it starts at the oldest record without a word. The refusal is told by whoever meets
it. The silent start has to be found out before the shard is read, from what can be known:

* A position carries the moment up to which it had seen the shard (``After.seen_ms``). While that is
  within the stream's retention, nothing behind it can have expired. That costs no call.
* Otherwise the oldest record is looked at. If it lies at or before the position, so does everything
  that has expired, and nothing was lost.
* Otherwise records may have been lost: those that arrived after the position was seen, and expired.
  A shard that was idle for all that time cannot be told from one that was not (sequence numbers
  have gaps), so it counts as a loss, and ``failOnDataLoss`` decides. A query that runs keeps the
  positions of idle shards young, so it takes one that was down for longer than the retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.aws.get_records import read_range
from kinesis_ds.errors import DataLossError
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, Position

if TYPE_CHECKING:
    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock
    from kinesis_ds.plan.stream import StreamInfo

_HOUR_MS = 3_600_000
# AWS refuses requests signed with a clock that is further off, and reading begins soon after.
_MARGIN_MS = 300_000


def may_have_expired(position: Position, now_ms: int, retention_hours: int) -> bool:
    """Whether a record behind a checkpointed position may be older than the stream's retention.

    A position from an offset of version 1 does not say when it was seen: it is taken to be young.

    Args:
        now_ms: Milliseconds since the epoch by a clock that is right to a few minutes.
    """
    if isinstance(position, After):
        seen_ms = position.seen_ms
    else:
        seen_ms = position.ms if isinstance(position, AtTimestamp) else None
    return seen_ms is not None and seen_ms < now_ms - retention_hours * _HOUR_MS + _MARGIN_MS


async def lost_before_start(
    connection: Connection, info: StreamInfo, shard_id: str, position: Position, clock: Clock
) -> DataLossError | None:
    """The error for records that may have expired behind a checkpointed position, or None.

    Asks Kinesis only where :func:`may_have_expired`.

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
    return DataLossError(
        f"{label[0].upper()}{label[1:]} was last read up to {position}, longer ago than the "
        f"{info.retention_hours} hours that the stream keeps records, and its oldest record lies "
        "behind that. Records in between may have expired unread.",
        "Set failOnDataLoss=false to go on at the oldest record, or start with a new "
        "checkpointLocation. If nothing was written to the shard in all that time, nothing is "
        "missing.",
    )
