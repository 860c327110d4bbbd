"""The options of a source, as the parser returns them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING

from kinesis_ds.limits import (
    GET_RECORDS_BYTES_PER_S,
    GET_RECORDS_MAX_RECORDS,
    GET_RECORDS_MIN_INTERVAL_S,
)

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.options.option import ConsumerMode
    from kinesis_ds.plan.start import EndingPosition, InitialPosition
    from kinesis_ds.plan.stream import StreamId


@dataclass(frozen=True)
class StreamChoice:
    """One stream of a source, with the consumer that the user chose for it.

    Attributes:
        stream: The stream, by name or ARN.
        consumer: The name of the consumer to register; None to make one up.
        registered: The name or ARN of a consumer that exists; None to register one.
    """

    stream: StreamId
    consumer: str | None = None
    registered: str | None = None


@dataclass(frozen=True)
class PollingOptions:
    """The pace at which one shard is polled.

    Attributes:
        min_period_s: Minimum time between two calls of GetRecords, in seconds.
        max_records: Maximum number of records in one answer.
        bytes_per_s: Maximum number of bytes read in a second.
    """

    min_period_s: float = GET_RECORDS_MIN_INTERVAL_S
    max_records: int = GET_RECORDS_MAX_RECORDS
    bytes_per_s: int = GET_RECORDS_BYTES_PER_S


@dataclass(frozen=True)
class ReadOptions:
    """The options of a source. ``options/table.py`` documents each option for users.

    Attributes:
        streams: The streams to read, in the order given; at least one.
        aws: Access to AWS.
        mode: ``efo`` or ``polling``.
        initial_position: Where a new query, or a batch read, starts.
        ending_position: Where a batch read ends.
        consumer_names: The names of the consumers to register, one a stream, in order; empty if
            names are made up.
        consumer_prefix: Put before a consumer name that is made up.
        registered_consumers: The names or ARNs of consumers that are already registered, one a
            stream, in order; else empty.
        register_timeout_s: How long to wait for a consumer to become ACTIVE, in seconds.
        deregister: Whether to deregister the consumers when the query is stopped.
        deregister_timeout_s: How long stopping may wait for the deregistration, in seconds.
        consumer_refresh_s: Seconds between two checks of a consumer's registration.
        fail_on_data_loss: Whether to fail, not warn, if needed records are no longer in the stream.
        max_records: Maximum number of records in one micro-batch; None without a limit.
        max_bytes: Maximum number of bytes in one micro-batch; None without a limit.
        parents_first: Whether to read a shard only after its parents are read to the end.
        deaggregate: Whether to take apart aggregates of the KPL.
        metadata: Whether to add the columns of ``includeMetadata``.
        polling: How fast shards are polled.
        shards_per_task: Maximum number of shards in one Spark task; None to pack them by bytes.
        max_tasks: Maximum number of Spark tasks in one batch; None without a limit.
        buffer_bytes: Hard limit for all records received and not yet committed, in bytes.
        agent_processes: The number of processes on the driver that read shards.
        discovery_interval_s: Seconds between two refreshes of the list of shards.
        idle_timeout_s: Close a subscription whose buffer has been full for so many seconds.
        agent_host: The address on the driver at which the shard agent listens.
        agent_advertised_host: The address at which read tasks reach it.
        agent_ports: The first and the last port at which it may listen; zeros for any port.
        diagnostics_dir: The directory into which counters are written; None to write none.
        without_effect: The options that have no effect on this query, each with the reason.
    """

    streams: tuple[StreamId, ...]
    aws: AwsOptions
    mode: ConsumerMode
    initial_position: InitialPosition
    ending_position: EndingPosition
    consumer_names: tuple[str, ...]
    consumer_prefix: str
    registered_consumers: tuple[str, ...]
    register_timeout_s: float
    deregister: bool
    deregister_timeout_s: float
    consumer_refresh_s: float
    fail_on_data_loss: bool
    max_records: int | None
    max_bytes: int | None
    parents_first: bool
    deaggregate: bool
    metadata: bool
    polling: PollingOptions
    shards_per_task: int | None
    max_tasks: int | None
    buffer_bytes: int
    agent_processes: int
    discovery_interval_s: float
    idle_timeout_s: float
    agent_host: str
    agent_advertised_host: str
    agent_ports: tuple[int, int]
    diagnostics_dir: str | None
    without_effect: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[StreamChoice, ...]:
        """Each stream with its consumer."""
        rows = zip_longest(self.streams, self.consumer_names, self.registered_consumers)
        return tuple(starmap(StreamChoice, rows))
