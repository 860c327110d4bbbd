"""What the driver plans and a task reads: a closed range of one shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from kinesis_ds.plan.planned_range import PlannedRange


class RangePartition(InputPartition):
    """What one task reads, one range after the other, as Spark carries it."""

    def __init__(self, *ranges: PlannedRange) -> None:
        super().__init__(ranges)
        self.ranges = ranges
