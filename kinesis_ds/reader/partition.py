"""What the driver plans and a task reads: a closed range of one shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kinesis_ds.agent.decode import Decoding

if TYPE_CHECKING:
    from kinesis_ds.agent.server import AgentAddress
    from kinesis_ds.position import Position


@dataclass(frozen=True)
class PlannedRange:
    """The records of a shard in ``(start, end]`` and who may hold them.

    Attributes:
        records: How many there are, where the agent knew when it was planned.
        agent: The agent that holds the range, or None when it is to be read from Kinesis.
        fail_on_data_loss: Whether the task fails when Kinesis no longer holds all of the range, or
            warns and returns what is left.
        nbytes: How large they are, where the agent knew.
        lineage: Ranges of one stream with the same name here are read by one task, in the order in
            which they were planned. Empty: the range goes anywhere.
        decoding: In what form records come that are read from Kinesis; an agent knows by itself.
    """

    stream: str
    stream_arn: str
    shard_id: str
    start: Position
    end: Position
    records: int | None
    agent: AgentAddress | None
    fail_on_data_loss: bool = True
    nbytes: int | None = None
    lineage: str = ""
    decoding: Decoding = field(default_factory=Decoding)

    @property
    def label(self) -> str:
        return f"shard {self.shard_id} of stream {self.stream}"


class RangePartition(InputPartition):
    """What one task reads, one range after the other, as Spark carries it."""

    def __init__(self, *ranges: PlannedRange) -> None:
        super().__init__(ranges)
        self.ranges = ranges
