"""Parse the options of a query and check them together.

Names are camelCase and case-insensitive; :mod:`kinesis_ds.options.table` lists them. All problems
are reported in one error. For each it says the option, the value given and the form expected, and
for an unknown name the nearest known one. Secret values never appear in a message or a ``repr``.

A job of another connector should run when only the name of the format is changed. So the options of
other connectors are accepted, and those that mean nothing here are named in one warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import OptionError
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.given import GivenOptions
from kinesis_ds.options.read import PollingOptions, ReadOptions
from kinesis_ds.options.rules import (
    access_problems,
    consumer_names,
    reading_problems,
    region_of_streams,
    writing_problems,
)
from kinesis_ds.options.values import stream_arns, stream_names
from kinesis_ds.options.write import AggregationOptions, WriteOptions
from kinesis_ds.plan.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.options.option import Kind

logger = logging.getLogger(__name__)


def parse_read_options(raw: Mapping[str, str], kind: Kind | None = None) -> ReadOptions:
    """Parse the options of ``readStream`` or ``read``.

    Args:
        raw: The options as the user gave them.
        kind: How Spark runs the read. None when Spark asks for the schema: it does not say then.

    Raises:
        OptionError: Options are wrong. The message names every problem.
    """
    options = GivenOptions(raw, "read", kind)
    v = options.values
    problems = [*options.problems, *access_problems(options), *reading_problems(options, kind)]
    _refuse(problems)
    streams = _streams(v)
    return ReadOptions(
        streams=streams,
        aws=_aws(options),
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
        agent_advertised_host=v["agentAdvertisedHost"] or v["agentHost"],
        agent_ports=v["agentPort"] or (0, 0),
        diagnostics_dir=v["diagnosticsDirectory"],
        without_effect=options.without_effect_texts(),
    )


def parse_write_options(raw: Mapping[str, str], *, routed: bool = False) -> WriteOptions:
    """Parse the options of ``writeStream`` or ``write``.

    Args:
        raw: The options as the user gave them.
        routed: Whether there is a column ``stream``, by which each row may name its stream.

    Raises:
        OptionError: Options are wrong. The message names every problem.
    """
    options = GivenOptions(raw, "write", None)
    v = options.values
    access = access_problems(options, needs_stream=not routed)
    _refuse([*options.problems, *access, *writing_problems(options)])
    aggregation = None
    if v["aggregation"] or v["recordIds"]:
        aggregation = AggregationOptions(
            v["aggregationMaxBytes"], v["aggregationMaxRecords"], v["recordIds"]
        )
    checkpoint = next((x for k, x in raw.items() if k.lower() == "checkpointlocation"), None)
    return WriteOptions(
        stream=next(iter(_streams(v)), None),
        aws=_aws(options),
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
        without_effect=options.without_effect_texts(),
    )


def stream_named(text: str) -> StreamId:
    """Return the stream that a row names, by name or by ARN.

    Raises:
        ValueError: The text is neither. The message says what is expected.
    """
    if "," in text:
        raise ValueError("one stream")
    if text.startswith("arn:"):
        return StreamId(arn=stream_arns(text)[0])
    return StreamId(stream_names(text)[0])


def log_without_effect(options: ReadOptions | WriteOptions) -> None:
    """Log one line with the options that have no effect on this query.

    Called by the one object that Spark makes once a query. Spark has the options of a query parsed
    many times, in processes that do not know of each other.
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


def _aws(options: GivenOptions) -> AwsOptions:
    v = options.values
    return AwsOptions(
        region=region_of_streams(options),
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


def _refuse(problems: list[str]) -> None:
    if problems:
        listed = "; ".join(f"({i}) {p}" for i, p in enumerate(problems, 1))
        raise OptionError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} with the options: "
            f"{listed}{'' if listed.endswith('?') else '.'}",
            "All options: docs/reference/options.md.",
        )
