"""The options of a sink, as the parser returns them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.stream import StreamId


@dataclass(frozen=True)
class AggregationOptions:
    """Limits of an aggregate (one Kinesis record with many rows), and whether rows have ids.

    Attributes:
        max_bytes: Maximum size of an aggregate in bytes. The stream's own limit applies too.
        max_records: Maximum number of rows in an aggregate.
        ids: Whether each row has a record id (option ``recordIds``).
    """

    max_bytes: int
    max_records: int
    ids: bool = False


@dataclass(frozen=True)
class WriteOptions:
    """The options of a sink. ``options/table.py`` documents each option for users.

    Attributes:
        stream: The stream for rows that do not name one; None if each row has to name its stream.
        aws: Access to AWS.
        max_in_flight_records: Hard limit for records not yet acknowledged, in each task.
        max_in_flight_bytes: The same limit in bytes of data and partition keys.
        max_in_flight_requests: Maximum number of PutRecords requests in flight, in each task.
        batch_max_records: Maximum number of records in one PutRecords request.
        batch_max_bytes: Maximum size of one PutRecords request in bytes.
        linger_s: How long a record waits for others of its shard, in seconds.
        ordered: Whether records of one partition key are stored in row order.
        aggregation: How rows are aggregated; None to write each row as one Kinesis record.
        skip_oversized: Whether to leave out rows that are too large, instead of failing.
        retry_timeout_s: How long one record is retried, in seconds.
        diagnostics_dir: The directory into which counters are written; None to write none.
        ledger: Whether to record finished batches.
        checkpoint: The query's checkpoint location; None where Spark gives none.
        without_effect: The options that have no effect on this query, each with the reason.
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
        """The target of the sink, for messages."""
        return f"stream {self.stream.label}" if self.stream else "the streams of column stream"
