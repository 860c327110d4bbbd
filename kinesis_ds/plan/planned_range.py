"""The closed range of a shard that the driver plans and a task reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_ds.plan.decoding import Decoding

if TYPE_CHECKING:
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ticket import AgentAddress


@dataclass(frozen=True)
class PlannedRange:
    """A range that a task reads: the records of a shard behind ``start``, up to and with ``end``.

    Attributes:
        stream: Name of the stream, as rows show it.
        stream_arn: ARN of the stream.
        shard_id: The shard.
        start: The range begins behind this position.
        end: Last position of the range, included.
        records: Number of records in the range, or None when it was not known at planning. A task
            that reads another number reports data loss.
        agent: The agent that holds the range, or None when it has to be read from Kinesis.
        fail_on_data_loss: True: the task fails when records are missing. False: it logs a warning
            and returns the records that are left.
        nbytes: Size of the records in bytes, or None when it was not known at planning.
        lineage: Ranges of one stream with the same name here go to one task, which reads them in
            the order of planning. Empty: the range may go to any task.
        decoding: How the task decodes records that it reads from Kinesis. An agent decodes by its
            own settings.
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
        """Name of the shard for messages."""
        return f"shard {self.shard_id} of stream {self.stream}"
