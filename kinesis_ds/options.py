"""The options users type: one table, from which parsing, error texts and the reference page come.

Keys are camelCase and case-insensitive. All problems of a query's options are reported together,
each with the option, the value given, the form expected and, for an unknown key, the nearest known
one. Secret values never appear in a message or a ``repr``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kinesis_ds import option_values as kinds
from kinesis_ds.errors import OptionError
from kinesis_ds.limits import MIB, PUT_RECORDS_MAX_BYTES, PUT_RECORDS_MAX_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_ds.option_values import InitialPosition

Mode = Literal["read", "write"]


@dataclass(frozen=True)
class Option:
    """One option: its names, how its text becomes a value, and what it does."""

    key: str
    parse: Callable[[str], Any]
    doc: str
    default: str | None = None
    aliases: tuple[str, ...] = ()
    modes: frozenset[Mode] = field(default_factory=lambda: frozenset({"read", "write"}))
    secret: bool = False


_READ: frozenset[Mode] = frozenset({"read"})
_WRITE: frozenset[Mode] = frozenset({"write"})

OPTIONS: tuple[Option, ...] = (
    Option("streamName", kinds.stream_name, "Name of the stream.", aliases=("kinesis.streamName",)),
    Option(
        "streamARN",
        kinds.stream_arn,
        "ARN of the stream, instead of its name.",
        aliases=("kinesis.streamARN",),
    ),
    Option(
        "region",
        kinds.text,
        "AWS region; by default that of the environment.",
        aliases=("kinesis.region",),
    ),
    Option(
        "endpoint",
        kinds.url,
        "Endpoint of Kinesis, for a local server or a VPC endpoint.",
        aliases=("endpointUrl", "kinesis.endpointUrl"),
    ),
    Option(
        "awsAccessKey",
        kinds.text,
        "Access key id; by default the AWS credential chain is used.",
        aliases=("awsAccessKeyId", "kinesis.awsAccessKeyId"),
        secret=True,
    ),
    Option(
        "awsSecretKey",
        kinds.text,
        "Secret key of `awsAccessKey`.",
        aliases=("kinesis.awsSecretKey",),
        secret=True,
    ),
    Option(
        "sessionToken",
        kinds.text,
        "Session token of `awsAccessKey`.",
        aliases=("kinesis.sessionToken",),
        secret=True,
    ),
    Option(
        "consumerMode",
        kinds.consumer_mode,
        "How the source reads. This version knows `efo`, enhanced fan-out.",
        default="efo",
        aliases=("kinesis.consumerType",),
        modes=_READ,
    ),
    Option(
        "transport",
        kinds.transport,
        "How subscriptions travel. This version knows `http1`.",
        default="auto",
        modes=_READ,
    ),
    Option(
        "initialPosition",
        kinds.initial_position,
        "Where a new query starts: `latest`, `trim_horizon` (`earliest`), or `at_timestamp` with "
        "an ISO 8601 "
        "time or epoch seconds. A query with a checkpoint goes on from there.",
        default="latest",
        aliases=("startingPosition", "kinesis.startingPosition"),
        modes=_READ,
    ),
    Option(
        "consumerName",
        kinds.stream_name,
        "Name of the enhanced fan-out consumer, registered when missing. By default each query "
        "makes up a name "
        "and keeps it in its checkpoint.",
        aliases=("kinesis.consumerName",),
        modes=_READ,
    ),
    Option(
        "registerConsumerTimeoutInterval",
        kinds.duration(1, 3600),
        "How long to wait for the consumer to become ACTIVE.",
        default="300s",
        modes=_READ,
    ),
    Option(
        "requireConsumerDeregistration",
        kinds.boolean,
        "Deregister the consumer when the query is stopped (not when it is killed). Idle consumers "
        "are billed by AWS.",
        default="false",
        modes=_READ,
    ),
    Option(
        "failOnDataLoss",
        kinds.boolean,
        "Fail when Kinesis says that records the checkpoint needs are gone. With `false`, warn "
        "and go on at the "
        "oldest record.",
        default="true",
        aliases=("kinesis.failOnDataLoss",),
        modes=_READ,
    ),
    Option(
        "fetchBufferSize",
        kinds.size(1 * MIB),
        "Hard bound, in bytes, of everything received and not yet committed.",
        default="256mb",
        modes=_READ,
    ),
    Option(
        "shardFetchInterval",
        kinds.duration(1, 3600),
        "How often the list of shards is refreshed.",
        default="10s",
        aliases=("kinesis.describeShardInterval",),
        modes=_READ,
    ),
    Option(
        "subscriptionIdleTimeout",
        kinds.duration(1, 3600),
        "A subscription whose buffer has been full this long is given back and opened again when "
        "there is room.",
        default="30s",
        modes=_READ,
    ),
    Option(
        "agentHost",
        kinds.text,
        "Address of the driver on which the shard agent listens, and which read tasks connect to. "
        "With the "
        "default only tasks on the driver's machine reach it; others read their ranges from "
        "Kinesis.",
        default="127.0.0.1",
        modes=_READ,
    ),
    Option(
        "maxInFlightRecords",
        kinds.count(1),
        "Hard bound of records accepted and not yet acknowledged, per task. `write` blocks when "
        "it is reached.",
        default="10000",
        modes=_WRITE,
    ),
    Option(
        "maxInFlightBytes",
        kinds.size(1 * MIB),
        "The same bound in bytes (data and partition keys).",
        default="32mb",
        modes=_WRITE,
    ),
    Option(
        "maxInFlightRequests",
        kinds.count(1, 1000),
        "PutRecords requests under way at once, per task.",
        default="16",
        modes=_WRITE,
    ),
    Option(
        "batchMaxRecords",
        kinds.count(1, PUT_RECORDS_MAX_RECORDS),
        "Records in one PutRecords request, at most.",
        default=str(PUT_RECORDS_MAX_RECORDS),
        modes=_WRITE,
    ),
    Option(
        "batchMaxBytes",
        kinds.size(1024, PUT_RECORDS_MAX_BYTES),
        "Bytes in one PutRecords request, at most, partition keys included.",
        default="5mb",
        modes=_WRITE,
    ),
    Option(
        "retryTimeout",
        kinds.duration(1, 3600),
        "How long one record is retried before its task fails.",
        default="120s",
        modes=_WRITE,
    ),
    Option(
        "diagnosticsDirectory",
        kinds.text,
        "A local directory into which counters are written once a second, as JSON.",
    ),
)

# Keys that Spark itself puts among a source's or sink's options.
_FROM_SPARK = frozenset({"checkpointlocation", "path", "queryname"})
_BY_NAME = {name.lower(): o for o in OPTIONS for name in (o.key, *o.aliases)}


@dataclass(frozen=True)
class AwsOptions:
    """Where Kinesis is and who asks. ``repr`` shows no secret."""

    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class StreamId:
    """How the user named the stream: by name or by ARN (exactly one is given)."""

    name: str | None = None
    arn: str | None = None

    @property
    def label(self) -> str:
        return self.arn or self.name or "?"

    def request(self) -> dict[str, str]:
        """The members that name the stream in an API request."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name or ""}


@dataclass(frozen=True)
class ReadOptions:
    """Options of a source. Durations in seconds, sizes in bytes."""

    stream: StreamId
    aws: AwsOptions
    initial_position: InitialPosition
    consumer_name: str | None
    register_timeout_s: float
    deregister: bool
    fail_on_data_loss: bool
    buffer_bytes: int
    discovery_interval_s: float
    idle_timeout_s: float
    agent_host: str
    diagnostics_dir: str | None


@dataclass(frozen=True)
class WriteOptions:
    """Options of a sink. Durations in seconds, sizes in bytes."""

    stream: StreamId
    aws: AwsOptions
    max_in_flight_records: int
    max_in_flight_bytes: int
    max_in_flight_requests: int
    batch_max_records: int
    batch_max_bytes: int
    retry_timeout_s: float
    diagnostics_dir: str | None


def parse_read_options(raw: Mapping[str, str]) -> ReadOptions:
    """Options of ``readStream``.

    Raises:
        OptionError: Naming every problem at once.
    """
    v, problems = _parse(raw, "read")
    _raise(problems)
    return ReadOptions(
        stream=StreamId(v["streamName"], v["streamARN"]),
        aws=_aws(v),
        initial_position=v["initialPosition"],
        consumer_name=v["consumerName"],
        register_timeout_s=v["registerConsumerTimeoutInterval"],
        deregister=v["requireConsumerDeregistration"],
        fail_on_data_loss=v["failOnDataLoss"],
        buffer_bytes=v["fetchBufferSize"],
        discovery_interval_s=v["shardFetchInterval"],
        idle_timeout_s=v["subscriptionIdleTimeout"],
        agent_host=v["agentHost"],
        diagnostics_dir=v["diagnosticsDirectory"],
    )


def parse_write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Options of ``writeStream``.

    Raises:
        OptionError: Naming every problem at once.
    """
    v, problems = _parse(raw, "write")
    _raise(problems)
    return WriteOptions(
        stream=StreamId(v["streamName"], v["streamARN"]),
        aws=_aws(v),
        max_in_flight_records=v["maxInFlightRecords"],
        max_in_flight_bytes=v["maxInFlightBytes"],
        max_in_flight_requests=v["maxInFlightRequests"],
        batch_max_records=v["batchMaxRecords"],
        batch_max_bytes=v["batchMaxBytes"],
        retry_timeout_s=v["retryTimeout"],
        diagnostics_dir=v["diagnosticsDirectory"],
    )


def _aws(v: Mapping[str, Any]) -> AwsOptions:
    arn = v["streamARN"]
    return AwsOptions(
        region=v["region"] or (arn.split(":")[3] if arn else None),
        endpoint=v["endpoint"],
        access_key=v["awsAccessKey"],
        secret_key=v["awsSecretKey"],
        session_token=v["sessionToken"],
    )


def _parse(raw: Mapping[str, str], mode: Mode) -> tuple[dict[str, Any], list[str]]:
    problems: list[str] = []
    given: dict[str, tuple[str, str]] = {}
    for key, text in raw.items():
        option = _BY_NAME.get(key.lower())
        if option is None:
            if key.lower() not in _FROM_SPARK:
                problems.append(_unknown(key, mode))
        elif mode not in option.modes:
            other = "reading" if mode == "write" else "writing"
            problems.append(f"{option.key} is an option of {other} only")
        elif option.key in given and given[option.key][1] != text:
            problems.append(f"{key} and {given[option.key][0]} both set {option.key}; give one")
        else:
            given[option.key] = (key, text)

    values: dict[str, Any] = {}
    for option in OPTIONS:
        chosen = given[option.key][1] if option.key in given else option.default
        values[option.key] = None
        if chosen is not None and mode in option.modes:
            try:
                values[option.key] = option.parse(chosen)
            except ValueError as exc:
                # A password in an endpoint is refused, and not shown either.
                shown = "(hidden)" if option.secret or "@" in chosen else repr(chosen)
                problems.append(f"{option.key} is {shown}, expected {exc}")
    problems += _contradictions(given)
    return values, problems


def _contradictions(given: Mapping[str, object]) -> list[str]:
    problems = []
    if ("streamName" in given) == ("streamARN" in given):
        problems.append("give streamName or streamARN (exactly one of them)")
    if ("awsAccessKey" in given) != ("awsSecretKey" in given):
        problems.append("awsAccessKey and awsSecretKey go together; one of them is missing")
    if "sessionToken" in given and "awsAccessKey" not in given:
        problems.append("sessionToken needs awsAccessKey and awsSecretKey")
    return problems


def _unknown(key: str, mode: Mode) -> str:
    known = {n.lower(): n for o in OPTIONS if mode in o.modes for n in (o.key, *o.aliases)}
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.6)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    return f"unknown option {key!r}{hint}"


def _raise(problems: list[str]) -> None:
    if problems:
        listed = "; ".join(f"({i}) {p}" for i, p in enumerate(problems, 1))
        raise OptionError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} with the options: "
            f"{listed}{'' if listed.endswith('?') else '.'}",
            "All options: docs/reference/options.md.",
        )
