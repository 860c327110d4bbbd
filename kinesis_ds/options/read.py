"""The options of a source, as they come out of parsing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
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
    """What the user says of one stream of a source.

    Attributes:
        consumer: Name of the consumer to register, or None to make one up.
        registered: Name or ARN of a consumer that exists, or None to register one.
    """

    stream: StreamId
    consumer: str | None = None
    registered: str | None = None


@dataclass(frozen=True)
class PollingOptions:
    """How fast one shard is polled."""

    min_period_s: float = GET_RECORDS_MIN_INTERVAL_S
    max_records: int = GET_RECORDS_MAX_RECORDS
    bytes_per_s: int = GET_RECORDS_BYTES_PER_S


@dataclass(frozen=True)
class ReadOptions:
    """Options of a source. Durations in seconds, sizes in bytes.

    Attributes:
        consumer_names: What to register, one a stream, in order; empty when names are made up.
        consumer_prefix: Goes before a name that is made up.
        registered_consumers: Names or ARNs of consumers registered already, one a stream, in order.
        max_records: Admitted to one micro-batch, and so ``max_bytes``.
        without_effect: Options that were given and mean nothing to this query, and why.
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
    diagnostics_dir: str | None
    without_effect: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[StreamChoice, ...]:
        """The streams, each with its consumer."""
        none: tuple[None, ...] = (None,) * len(self.streams)
        return tuple(
            StreamChoice(stream, named, registered)
            for stream, named, registered in zip(
                self.streams,
                self.consumer_names or none,
                self.registered_consumers or none,
                strict=True,
            )
        )
