"""The options of a query, read from what the user typed and checked as a whole.

Keys are camelCase and case-insensitive. All problems of a query's options are reported together,
each with the option, the value given, the form expected and, for an unknown key, the nearest known
one. Secret values never appear in a message or a ``repr``. What there is to type is in
:mod:`kinesis_ds.options.table`.

Jobs of other connectors are to run with nothing changed but the format's name, so their options are
taken as they are; those that mean nothing here are named in one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import OptionError
from kinesis_ds.limits import (
    GET_RECORDS_BYTES_PER_S,
    GET_RECORDS_MAX_RECORDS,
    GET_RECORDS_MIN_INTERVAL_S,
)
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.given import Typed
from kinesis_ds.options.rules import consumer_names, of_both, of_reading, of_writing, region
from kinesis_ds.options.values import stream_arns, stream_names
from kinesis_ds.plan.stream import StreamId

if TYPE_CHECKING:
    from kinesis_ds.options.table import ConsumerMode, Kind
    from kinesis_ds.plan.start import EndingPosition, InitialPosition

logger = logging.getLogger(__name__)


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


def parse_read_options(raw: Mapping[str, str], kind: Kind | None = None) -> ReadOptions:
    """Options of ``readStream`` or ``read``.

    Args:
        raw: As the user gave them.
        kind: What reads. None when Spark asks for the schema and does not say.

    Raises:
        OptionError: Naming every problem at once.
    """
    typed = Typed(raw, "read", kind)
    v = typed.values
    problems = [*typed.problems, *of_both(typed), *of_reading(typed, kind)]
    _raise(problems)
    streams = _streams(v)
    return ReadOptions(
        streams=streams,
        aws=_aws(typed),
        mode=v["consumerMode"],
        initial_position=v["initialPosition"],
        ending_position=v["endingPosition"],
        consumer_names=consumer_names(v, len(streams)),
        consumer_prefix=v["consumerNamePrefix"] or _MADE_UP_PREFIX,
        registered_consumers=v["registeredConsumerId"] or (),
        register_timeout_s=v["registerConsumerTimeoutInterval"],
        deregister=v["requireConsumerDeregistration"],
        deregister_timeout_s=v["deregisterConsumerTimeoutInterval"],
        consumer_refresh_s=v["consumerRefreshInterval"],
        fail_on_data_loss=v["failOnDataLoss"],
        max_records=v["maxRecordsPerTrigger"],
        max_bytes=v["maxBytesPerTrigger"],
        parents_first=v["parentsFirst"],
        deaggregate=v["deaggregate"],
        metadata=v["includeMetadata"],
        polling=PollingOptions(
            min_period_s=v["minFetchPeriod"],
            max_records=v["maxRecordsPerFetch"],
            bytes_per_s=v["maxFetchRate"],
        ),
        shards_per_task=v["shardsPerTask"],
        max_tasks=v["maxPartitions"],
        buffer_bytes=v["fetchBufferSize"],
        agent_processes=v["agentProcesses"],
        discovery_interval_s=v["shardFetchInterval"],
        idle_timeout_s=v["subscriptionIdleTimeout"],
        agent_host=v["agentHost"],
        diagnostics_dir=v["diagnosticsDirectory"],
        without_effect=typed.explained(),
    )


def parse_write_options(raw: Mapping[str, str], *, routed: bool = False) -> WriteOptions:
    """Options of ``writeStream`` or ``write``.

    Args:
        raw: As the user gave them.
        routed: Whether the rows may name their streams themselves.

    Raises:
        OptionError: Naming every problem at once.
    """
    typed = Typed(raw, "write", None)
    v = typed.values
    _raise([*typed.problems, *of_both(typed, needs_stream=not routed), *of_writing(typed)])
    aggregation = None
    if v["aggregation"] or v["recordIds"]:
        aggregation = AggregationOptions(
            v["aggregationMaxBytes"], v["aggregationMaxRecords"], v["recordIds"]
        )
    checkpoint = next((x for k, x in raw.items() if k.lower() == "checkpointlocation"), None)
    return WriteOptions(
        stream=next(iter(_streams(v)), None),
        aws=_aws(typed),
        max_in_flight_records=v["maxInFlightRecords"],
        max_in_flight_bytes=v["maxInFlightBytes"],
        max_in_flight_requests=v["maxInFlightRequests"],
        batch_max_records=v["batchMaxRecords"],
        batch_max_bytes=v["batchMaxBytes"],
        linger_s=v["linger"],
        ordered=v["ordering"],
        aggregation=aggregation,
        skip_oversized=v["onOversizedRecord"],
        retry_timeout_s=v["retryTimeout"],
        diagnostics_dir=v["diagnosticsDirectory"],
        ledger=v["ledger"],
        checkpoint=checkpoint,
        without_effect=typed.explained(),
    )


def stream_named(text: str) -> StreamId:
    """The stream that a row names, by name or by ARN.

    Raises:
        ValueError: It is neither; says what is expected.
    """
    if "," in text:
        raise ValueError("one stream")
    if text.startswith("arn:"):
        return StreamId(arn=stream_arns(text)[0])
    return StreamId(stream_names(text)[0])


def log_without_effect(options: ReadOptions | WriteOptions) -> None:
    """Name the options that mean nothing to this query, in one line.

    Caller: whoever Spark makes once a query. It parses the options of a query many times over, in
    processes that do not know of each other.
    """
    if options.without_effect:
        logger.warning(
            "options without effect on this query: %s", "; ".join(options.without_effect)
        )


_MADE_UP_PREFIX = "kinesis_ds_"


def _streams(v: Mapping[str, Any]) -> tuple[StreamId, ...]:
    if v["streamARN"]:
        return tuple(StreamId(arn=arn) for arn in v["streamARN"])
    return tuple(StreamId(name) for name in v["streamName"] or ())


def _aws(typed: Typed) -> AwsOptions:
    v = typed.values
    return AwsOptions(
        region=region(typed),
        endpoint=v["endpoint"],
        access_key=v["awsAccessKey"],
        secret_key=v["awsSecretKey"],
        session_token=v["sessionToken"],
        role_arn=v["roleArn"],
        role_external_id=v["roleExternalId"],
        role_session_name=v["roleSessionName"],
        sts_endpoint=v["stsEndpoint"],
        transport=v.get("transport") or "auto",
    )


def _raise(problems: list[str]) -> None:
    if problems:
        listed = "; ".join(f"({i}) {p}" for i, p in enumerate(problems, 1))
        raise OptionError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} with the options: "
            f"{listed}{'' if listed.endswith('?') else '.'}",
            "All options: docs/reference/options.md.",
        )
