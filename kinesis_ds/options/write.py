"""The options of a sink, as they come out of parsing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.stream import StreamId


@dataclass(frozen=True)
class AggregationOptions:
    """How rows are put together to one Kinesis record, and whether each carries an id."""

    max_bytes: int
    max_records: int
    ids: bool = False


@dataclass(frozen=True)
class WriteOptions:
    """Options of a sink. Durations in seconds, sizes in bytes.

    Attributes:
        stream: Where rows go that name none themselves; None when each has to.
        ordered: Whether records of one partition key are stored in row order.
        aggregation: None: each row is a record of its own.
        skip_oversized: Leave out rows that are too large, instead of failing.
        ledger: Whether to keep account of finished batches.
        checkpoint: The query's checkpoint location, where Spark tells it.
    """

    stream: StreamId | None
    aws: AwsOptions
    max_in_flight_records: int
    max_in_flight_bytes: int
    max_in_flight_requests: int
    batch_max_records: int
    batch_max_bytes: int
    linger_s: float
    ordered: bool
    aggregation: AggregationOptions | None
    skip_oversized: bool
    retry_timeout_s: float
    diagnostics_dir: str | None
    ledger: bool = True
    checkpoint: str | None = None
    without_effect: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What is written to, for messages."""
        return f"stream {self.stream.label}" if self.stream else "the streams of column stream"
