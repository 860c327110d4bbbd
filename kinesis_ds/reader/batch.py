"""The batch reader that PySpark calls. It plans the records between two positions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.aws.service_clock import LONGEST_WAIT_S, passed_second, wait_until_passed
from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import OptionError
from kinesis_ds.options.parse import log_without_effect
from kinesis_ds.plan.batch import batch_ranges
from kinesis_ds.plan.lineage import lineage_groups
from kinesis_ds.plan.position import After, AtTimestamp
from kinesis_ds.plan.start import Latest, ShardPositions
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.plan.tasks import pack
from kinesis_ds.reader.expiry import lost_before_start
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.planning import planned_range
from kinesis_ds.reader.task import read_all
from kinesis_ds.reader.without_traceback import without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.planned_range import PlannedRange
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import EndingPosition, InitialPosition

logger = logging.getLogger(__name__)

_PLAN_TIMEOUT_S = 120.0 + LONGEST_WAIT_S


class KinesisBatchReader(DataSourceReader):
    """A batch read of one or several streams, from ``initialPosition`` to ``endingPosition``.

    Spark plans each action in a process of its own, and pickles this reader for the tasks before it
    asks for the partitions. So it holds only the options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of the read. Takes one to two seconds if it ends at ``latest``.

        Raises:
            OptionError: A position belongs to no shard of the stream, or lies in the future.
            KinesisConnectorError: A stream cannot be looked up.
        """
        options = self._options
        log_without_effect(options)
        tasks = pack(plan_batch(options), options.shards_per_task, options.max_tasks)
        return [RangePartition(*ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark makes one of its own.
        ranges = partition.ranges if isinstance(partition, RangePartition) else ()
        return read_all(ranges, self._options.aws)


def plan_batch(
    options: ReadOptions,
    clock: Clock | None = None,
    new_network: Callable[[AwsOptions], NetworkLoop] = NetworkLoop,
) -> list[PlannedRange]:
    """Return the ranges of a batch read, in the order in which one task would have to read them.

    They are fixed: no record is written into them any more.

    Args:
        options: What the user asked for.
        clock: For deadlines, and for the time if the service does not send it.
        new_network: Makes the network loop; a test may let its time pass faster.

    Raises:
        OptionError: A position belongs to no shard of the stream, or lies in the future.
        DataLossError: Records behind a start may have expired, and the read is to fail then.
        KinesisConnectorError: A stream cannot be looked up.
    """
    network = new_network(options.aws)
    try:
        label = ", ".join(stream.label for stream in options.streams)
        planning = _plan(options, network.connection, clock or SystemClock())
        return network.run(planning, _PLAN_TIMEOUT_S, f"Planning a batch of stream {label}")
    finally:
        network.close()


async def _plan(options: ReadOptions, connection: Connection, clock: Clock) -> list[PlannedRange]:
    infos = await asyncio.gather(*(describe_stream(connection, s) for s in options.streams))
    now_ms = await _pass(options, infos[0], connection, clock)
    # Listed after that moment, or a shard that opened before it might be missing.
    listings = await asyncio.gather(
        *(list_shards(connection, StreamId(arn=info.arn)) for info in infos)
    )
    planned = [
        planned
        for info, listed in zip(infos, listings, strict=True)
        for planned in _ranges(options, info, listed, now_ms)
    ]
    infos_by_arn = {info.arn: info for info in infos}
    losses = await asyncio.gather(
        *(
            lost_before_start(connection, infos_by_arn[r.stream_arn], r.shard_id, r.start, clock)
            for r in planned
            if isinstance(r.start, After)  # a time of the user's may be as old as he likes
        )
    )
    for loss in filter(None, losses):
        logger.warning("%s", loss.accept(fail_on_data_loss=options.fail_on_data_loss))
    logger.info("batch planned streams=%d ranges=%d until=%d", len(infos), len(planned), now_ms)
    return planned


async def _pass(
    options: ReadOptions, info: StreamInfo, connection: Connection, clock: Clock
) -> int:
    """Wait until all moments that end the batch have passed; return what ``latest`` means."""
    stream = StreamId(arn=info.arn)
    ends, starts = _moments(options.ending_position), _moments(options.initial_position)
    ahead = max((end.ms for end in ends if isinstance(end, AtTimestamp)), default=0)
    told_ms = int((info.server_time or clock.wall()) * 1000)
    if ahead - told_ms > (LONGEST_WAIT_S - 2) * 1000:
        raise OptionError(
            f"endingPosition is {(ahead - told_ms) // 1000} seconds in the future by the clock of "
            "the service, and a batch reads what is there.",
            "Use an earlier time, or latest.",
        )
    if ahead:
        await wait_until_passed(connection, stream, clock, ahead)
    if any(isinstance(moment, Latest) for moment in (*ends, *starts)):
        return await passed_second(connection, stream, clock)
    return told_ms


def _moments(position: InitialPosition | EndingPosition) -> list[Latest | AtTimestamp]:
    named: list[object] = [position]
    if isinstance(position, ShardPositions):
        named = [p for positions in position.by_stream.values() for p in positions.values()]
    return [p for p in named if isinstance(p, (Latest, AtTimestamp))]


def _ranges(
    options: ReadOptions, info: StreamInfo, listed: ShardMap, now_ms: int
) -> list[PlannedRange]:
    """Return the ranges in one stream, parents before children."""
    here = (info.arn, listed, info.created_ms)
    initial, ending = options.initial_position, options.ending_position
    found = batch_ranges(
        initial.of(*here) if isinstance(initial, ShardPositions) else initial,
        ending.of(*here) if isinstance(ending, ShardPositions) else ending,
        listed,
        now_ms,
    )
    ranges = {one.shard_id: one for one in found}
    return [
        planned_range(
            ranges[shard_id], info, listed, options, group if options.parents_first else ""
        )
        for shard_id, group in lineage_groups(listed, ranges).items()
    ]
