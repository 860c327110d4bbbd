"""Check options against each other. Each contradiction is a sentence for the user. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.options.positions import backwards
from kinesis_ds.options.table import OPTIONS
from kinesis_ds.plan.start import InitialPosition, Latest, ShardPositions
from kinesis_ds.plan.stream import region_of, same_stream

if TYPE_CHECKING:
    from kinesis_ds.options.given import GivenOptions
    from kinesis_ds.options.option import Kind

_MAX_NAME_CHARS = 128
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  # refused, not listened on


def access_problems(options: GivenOptions, *, needs_stream: bool = True) -> Iterator[str]:
    """Yield contradictions between the streams, the region and the credentials."""
    given, v = options.given, options.values
    both = "streamName" in given and "streamARN" in given
    if both or (needs_stream and "streamName" not in given and "streamARN" not in given):
        if given:
            yield "give streamName or streamARN (exactly one of them)"
        else:
            yield (
                "give streamName or streamARN (exactly one of them); a table's own options do not "
                "reach the source, give them where it is used"
            )
    if ("awsAccessKey" in given) != ("awsSecretKey" in given):
        yield "awsAccessKey and awsSecretKey go together; one of them is missing"
    if "sessionToken" in given and "awsAccessKey" not in given:
        yield "sessionToken needs awsAccessKey and awsSecretKey"
    for key in ("roleExternalId", "roleSessionName", "stsEndpoint"):
        if key in given and "roleArn" not in given:
            yield f"{options.name_of(key)} needs roleArn"
    region = v["region"]
    if region and not given["region"][0].is_weak:
        for key, other in (("streamARN", _arn_region(v)), ("endpoint", _endpoint_region(v))):
            # A local server may call itself any region.
            local = key == "streamARN" and v["endpoint"] and not _endpoint_region(v)
            if other and other != region and not local:
                yield f"region is {region!r}, and {key} is in {other}; leave region out"


def reading_problems(options: GivenOptions, kind: Kind | None) -> Iterator[str]:
    """Yield contradictions in what is read and how.

    Options that are not for this query, which is no contradiction, are added to
    ``options.without_effect``.
    """
    yield from _out_of_place(options, kind)
    yield from _consumers(options)
    if "shardsPerTask" in options.given and "maxPartitions" in options.given:
        yield "give shardsPerTask or maxPartitions, not both"
    endpoint = (options.values["endpoint"] or "").lower()
    if options.values["transport"] == "http2" and endpoint.startswith("http:"):
        yield (
            "transport is http2, and endpoint is without TLS; give an https:// endpoint or leave "
            "transport out"
        )
    yield from _agent_address(options)
    yield from _positions(options, kind)


def writing_problems(options: GivenOptions) -> Iterator[str]:
    """Yield contradictions in what is written and how."""
    given, v = options.given, options.values
    if len(named_streams(v)) > 1:
        yield (
            "a sink writes to one stream, or to the stream that the column stream names in each "
            "row; leave the others out"
        )
    if v["recordIds"] and "aggregation" in given and not v["aggregation"]:
        yield "recordIds writes aggregates, so aggregation cannot be false; leave aggregation out"
    if not (v["aggregation"] or v["recordIds"]):
        for key in ("aggregationMaxBytes", "aggregationMaxRecords"):
            if key in given:
                yield f"{key} needs aggregation=true"


def _out_of_place(options: GivenOptions, kind: Kind | None) -> Iterator[str]:
    """Yield options for the other kind of read or the other consumer mode, or note them."""
    mode = options.values["consumerMode"]
    for option in OPTIONS:
        for given in options.given.get(option.key, []):
            if kind == "batch" and option.kind == "stream":
                options.without_effect[given.name] = "an option of streaming queries"
            elif kind == "stream" and option.kind == "batch":
                yield f"{given.name} is an option of batch reads (spark.read) only"
            elif mode and option.consumer not in (None, mode):
                why = f"an option of consumerMode {option.consumer}, and this query's is {mode}"
                if given.is_lenient or "consumerMode" not in options.given:
                    options.without_effect[given.name] = why
                else:
                    yield f"{given.name} is {why}"


def _consumers(options: GivenOptions) -> Iterator[str]:
    given, v = options.given, options.values
    streams = named_streams(v)
    registered = v["registeredConsumerId"]
    for key in ("consumerName", "consumerNamePrefix"):
        if key in given and "registeredConsumerId" in given:
            yield f"give {options.name_of(key)} or registeredConsumerId, not both"
    if v["requireConsumerDeregistration"] and "registeredConsumerId" in given:
        yield (
            "requireConsumerDeregistration is for consumers that the query registers, and with "
            "registeredConsumerId it registers none; leave one of the two out"
        )
    if "registeredConsumerIdType" in given and "registeredConsumerId" not in given:
        yield "registeredConsumerIdType needs registeredConsumerId"
    names = v["consumerName"]
    if names and streams and len(names) not in (1, len(streams)):
        yield f"consumerName lists {len(names)} names; give one, or one for each of the streams"
    if names and any(len(name) > _MAX_NAME_CHARS for name in consumer_names(v, 1)):
        yield (
            "consumerNamePrefix and consumerName are together longer than "
            f"{_MAX_NAME_CHARS} characters"
        )
    if not registered:
        return
    if streams and len(registered) != len(streams):
        yield (
            f"registeredConsumerId lists {len(registered)} consumers for {len(streams)} streams; "
            "give one for each, in the order of the streams"
        )
    is_arn = registered[0].startswith("arn:")
    if v["registeredConsumerIdType"] == ("name" if is_arn else "ARN"):
        yield (
            f"registeredConsumerIdType is {v['registeredConsumerIdType']}, and "
            f"registeredConsumerId holds {'ARNs' if is_arn else 'names'}"
        )
    if is_arn:
        for consumer, stream in zip(registered, streams, strict=False):
            of = consumer.split("/consumer/")[0]
            if not same_stream(of, stream):
                yield f"the consumer {consumer} belongs to another stream than {stream}"


def _agent_address(options: GivenOptions) -> Iterator[str]:
    v = options.values
    if v["agentHost"] in _ALL_ADDRESSES and not v["agentAdvertisedHost"]:
        yield (
            f"agentHost is {v['agentHost']}, to which no task can connect; give an address of the "
            "driver, or agentAdvertisedHost too"
        )
    if v["agentAdvertisedHost"] in _ALL_ADDRESSES:
        yield (
            f"agentAdvertisedHost is {v['agentAdvertisedHost']}, to which no task can connect; "
            "give the address by which executors reach the driver"
        )
    if v["agentPort"] and v["agentProcesses"]:
        first, last = v["agentPort"]
        streams = max(1, len(named_streams(v)))
        needed, given = v["agentProcesses"] * streams, last - first + 1
        if given < needed:
            yield (
                f"agentPort has {given} port{'s' if given > 1 else ''}, and the query needs "
                f"{needed}: one for each stream in each agent process"
            )


def _positions(options: GivenOptions, kind: Kind | None) -> Iterator[str]:
    start, end = options.values["initialPosition"], options.values["endingPosition"]
    for key, position in (("initialPosition", start), ("endingPosition", end)):
        if isinstance(position, ShardPositions):
            yield from _streams_of(position, options.name_of(key), named_streams(options.values))
    if kind == "batch" and (isinstance(start, Latest) or _has_latest(start)):
        yield (
            f"{options.name_of('initialPosition')} is latest, and nothing comes after it in a "
            "batch read; give earliest, at_timestamp or a position by shard"
        )
    if start is not None and end is not None and kind != "stream":
        for problem in backwards(start, end):
            yield f"endingPosition lies before initialPosition: {problem}"


def _streams_of(positions: ShardPositions, option: str, streams: tuple[str, ...]) -> Iterator[str]:
    if None in positions.by_stream:
        if len(streams) > 1:
            yield (
                f"{option} has shards without their stream, and the query reads {len(streams)} "
                'streams; write {"<stream>": {"<shard id>": ...}, ...}'
            )
        return
    for key in positions.by_stream:
        if key is not None and streams and not any(same_stream(key, s) for s in streams):
            yield f"{option} has positions of the stream {key}, which the query does not read"
    for stream in streams:
        keys = positions.keys(stream)
        if len(keys) != 1:
            how_many = "more than one" if keys else "no"
            yield f"{option} has {how_many} entry for the stream {stream}"


def _has_latest(start: InitialPosition) -> bool:
    return isinstance(start, ShardPositions) and any(
        isinstance(position, Latest)
        for shards in start.by_stream.values()
        for position in shards.values()
    )


# --- values of several options ------------------------------------------------------------------


def named_streams(v: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the streams as the user named them: ARNs or names."""
    return v["streamARN"] or v["streamName"] or ()


def consumer_names(v: Mapping[str, Any], streams: int) -> tuple[str, ...]:
    """Return the names of the consumers to register, one a stream; none if the user gave none."""
    names = tuple((v["consumerNamePrefix"] or "") + name for name in v["consumerName"] or ())
    return names * streams if len(names) == 1 else names


def _arn_region(v: Mapping[str, Any]) -> str | None:
    return region_of(v["streamARN"][0]) if v["streamARN"] else None


# kinesis.<region>.amazonaws.com, with a prefix (an account's or a VPC's) or another domain of AWS.
_AWS_ENDPOINT = re.compile(
    r"https?://(?:[a-z0-9-]+\.){0,3}?(?:[a-z]+-)?kinesis(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+)+-[0-9])\."
    r"(?:vpce\.)?(?:amazonaws\.com|amazonaws\.com\.cn|api\.aws|api\.amazonwebservices\.com\.cn)"
    r"(?::[0-9]+)?",
    re.IGNORECASE,
)


def _endpoint_region(v: Mapping[str, Any]) -> str | None:
    found = _AWS_ENDPOINT.fullmatch(v["endpoint"] or "")
    return found[1].lower() if found else None


def region_of_streams(options: GivenOptions) -> str | None:
    """Return the region that the options give; None to take it from the environment."""
    v = options.values
    found = _arn_region(v) or _endpoint_region(v)
    strong = v["region"] and not options.given["region"][0].is_weak
    return v["region"] if strong or not found else found
