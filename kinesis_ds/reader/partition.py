"""The partition that Spark carries from the driver to a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from kinesis_ds.plan.planned_range import PlannedRange


class RangePartition(InputPartition):
    """The ranges of one task, read one after the other.

    Attributes:
        ranges: In the order of reading.
    """

    def __init__(self, *ranges: PlannedRange) -> None:
        super().__init__(ranges)
        self.ranges = ranges
