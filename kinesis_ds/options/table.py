"""The table of all options: names, form of value, default, where each applies, what it does. Pure.

The parser, the error texts and the reference page are all made from it. It is long because it is
one table, and contains nothing else.
"""

from __future__ import annotations

import functools

from kinesis_ds.limits import (
    GET_RECORDS_BYTES_PER_S,
    GET_RECORDS_MAX_RECORDS,
    GET_RECORDS_MIN_INTERVAL_S,
    MAX_AGENT_PROCESSES,
    MIB,
    PUT_RECORDS_MAX_BYTES,
    PUT_RECORDS_MAX_RECORDS,
    RECORD_MAX_BYTES,
)
from kinesis_ds.options import values as kinds
from kinesis_ds.options.option import ForeignName, Option
from kinesis_ds.options.positions import ending_position, initial_position

# Options for some queries only; `Option` itself makes one for all queries.
_writing = functools.partial(Option, modes=frozenset({"write"}))
_reading = functools.partial(Option, modes=frozenset({"read"}))
_streaming = functools.partial(_reading, kind="stream")
_efo = functools.partial(_streaming, consumer="efo")
_polling = functools.partial(_streaming, consumer="polling")


def _milliseconds(at_least_s: float, at_most_s: float, *names: str) -> tuple[ForeignName, ...]:
    """Return other connectors' names for a duration that they give in milliseconds."""
    parse = kinds.jvm_duration(at_least_s, at_most_s)
    return tuple(ForeignName(name, parse, "milliseconds") for name in names)


# Other connectors use these names for the region, and prefer the region of the endpoint to them.
WEAK_REGION_NAMES = frozenset({"kinesis.region", "regionname"})

OPTIONS: tuple[Option, ...] = (
    # --- where, and as whom
    Option(
        "streamName",
        kinds.stream_names,
        "Name of the stream. A source can read several: separate the names with commas.",
        aliases=("kinesis.streamName",),
    ),
    Option(
        "streamARN",
        kinds.stream_arns,
        "ARN of the stream, instead of its name. A source can read several of one region: "
        "separate the ARNs with commas.",
        aliases=("kinesis.streamARN",),
    ),
    Option(
        "region",
        kinds.text,
        "AWS region. By default it is taken from `streamARN`, from an `endpoint` of AWS, or "
        "from the environment. The aliases `kinesis.region` and `regionName` are only used if "
        "neither of the first two gives a region, and no other name of this option is given.",
        aliases=("kinesis.kinesisRegion", "kinesis.region", "regionName"),
    ),
    Option(
        "endpoint",
        kinds.endpoint,
        "Endpoint of Kinesis, for a local server or a VPC endpoint.",
        aliases=("endpointUrl", "kinesis.endpointUrl"),
    ),
    Option(
        "awsAccessKey",
        kinds.text,
        "Access key id. By default the AWS credential chain is used.",
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
        "roleArn",
        kinds.role_arn,
        "ARN of a role to assume, with the credentials above. Its credentials are renewed "
        "before they expire.",
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
    ),
    Option(
        "roleExternalId",
        kinds.text,
        "External id that the role requires.",
        secret=True,
    ),
    Option(
        "roleSessionName",
        kinds.session_name,
        "Name of the role's session, as CloudTrail shows it.",
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"),
    ),
    Option(
        "stsEndpoint",
        kinds.endpoint,
        "Endpoint of STS, which issues the role's credentials.",
        aliases=("kinesis.stsEndpointUrl",),
    ),
    # --- what is read
    _reading(
        "initialPosition",
        initial_position,
        "Where a new query starts: `latest`, `trim_horizon` (`earliest`), `at_timestamp` with a "
        "time, or JSON with a position for each shard; see [positions](positions.md). A query "
        "that has a checkpoint continues from the checkpoint.",
        default="latest",
        batch_default="earliest",
        aliases=("startingPosition", "kinesis.startingPosition"),
    ),
    _reading(
        "endingPosition",
        ending_position,
        "Where a batch read ends: `latest` (the moment at which it is planned), `at_timestamp` "
        "with a time, or JSON with a position for each shard; see [positions](positions.md).",
        default="latest",
        kind="batch",
    ),
    _reading(
        "failOnDataLoss",
        kinds.boolean,
        "Fail when Kinesis says that records which the query still needs are gone. With "
        "`false`, log a warning and continue at the oldest record.",
        default="true",
        aliases=("kinesis.failOnDataLoss",),
    ),
    _streaming(
        "maxRecordsPerTrigger",
        kinds.count(1),
        "Maximum number of records in one micro-batch, divided among the shards. A record that "
        "the Kinesis Producer Library has aggregated is never split.",
    ),
    _streaming(
        "maxBytesPerTrigger",
        kinds.size(1),
        "Maximum number of bytes in one micro-batch, divided among the shards.",
    ),
    _reading(
        "parentsFirst",
        kinds.boolean,
        "Read a shard only after its parents are read to the end, so that records of one key "
        "stay in order across a reshard. With `false`, parents and children are read at the "
        "same time.",
        default="true",
    ),
    _reading(
        "deaggregate",
        kinds.boolean,
        "Take apart the records that the Kinesis Producer Library has aggregated. With `false` "
        "they are returned whole.",
        default="true",
    ),
    _reading(
        "includeMetadata",
        kinds.boolean,
        "Add the columns `subSequenceNumber`, `explicitHashKey`, `encryptionType` and `recordId`.",
        default="false",
    ),
    _reading(
        "shardsPerTask",
        kinds.count(1),
        "Maximum number of shards that one Spark task reads. By default shards are distributed "
        "over tasks by their bytes. Cannot be combined with `maxPartitions`.",
    ),
    _reading(
        "maxPartitions",
        kinds.count(1),
        "Maximum number of Spark tasks in one batch. Cannot be combined with `shardsPerTask`.",
    ),
    _streaming(
        "shardFetchInterval",
        kinds.duration(1, 3600),
        "How often the list of shards is refreshed.",
        default="10s",
        foreign_names=tuple(
            ForeignName(
                name, kinds.jvm_duration(1, 3600), "milliseconds, or with a unit; at least 1s"
            )
            for name in ("kinesis.describeShardInterval", "kinesis.client.describeShardInterval")
        ),
    ),
    # --- how it is read
    _streaming(
        "consumerMode",
        kinds.consumer_mode,
        "How the source reads: `efo` (enhanced fan-out) or `polling`. `SubscribeToShard` and "
        "`GetRecords` are other names for the same two.",
        default="efo",
        aliases=("kinesis.consumerType",),
    ),
    _efo(
        "consumerName",
        kinds.consumer_names,
        "Name of the enhanced fan-out consumer, which is registered if it does not exist. Give "
        "one name for all streams, or one for each stream, separated by commas. By default each "
        "query makes up a name and keeps it in its checkpoint.",
        aliases=("kinesis.consumerName",),
    ),
    _efo(
        "consumerNamePrefix",
        kinds.name_prefix,
        "Put before the consumer's name. By default nothing is put before a `consumerName`, and "
        "`kinesis_ds_` before a name that the query makes up.",
    ),
    _efo(
        "registeredConsumerId",
        kinds.consumer_ids,
        "Name or ARN of a consumer that is already registered. For several streams give one for "
        "each, in the order of the streams, separated by commas. The query then registers and "
        "deregisters nothing.",
    ),
    _efo(
        "registeredConsumerIdType",
        kinds.consumer_id_type,
        "`name` or `ARN`: what `registeredConsumerId` contains. It may be left out; if given, "
        "it must be right.",
    ),
    _efo(
        "registerConsumerTimeoutInterval",
        kinds.duration(1, 3600),
        "How long to wait for the consumer to become ACTIVE.",
        default="300s",
    ),
    _efo(
        "requireConsumerDeregistration",
        kinds.boolean,
        "Deregister the consumer when the query is stopped (but not when it is killed). AWS "
        "bills idle consumers.",
        default="false",
    ),
    _efo(
        "deregisterConsumerTimeoutInterval",
        kinds.duration(1, 3600),
        "How long stopping the query may wait for the deregistration.",
        default="300s",
    ),
    _efo(
        "consumerRefreshInterval",
        kinds.duration(1, 3600),
        "How often the registration of the consumer is checked.",
        default="300s",
    ),
    _polling(
        "minFetchPeriod",
        kinds.duration(GET_RECORDS_MIN_INTERVAL_S, 3600),
        "Minimum time between two reads of a shard. Kinesis allows five reads a second, for all "
        "readers of a shard together.",
        default="200ms",
        foreign_names=_milliseconds(
            GET_RECORDS_MIN_INTERVAL_S, 3600, "kinesis.getRecords.fetchIntervalMs"
        ),
    ),
    _polling(
        "maxFetchRate",
        kinds.rate(0.1, GET_RECORDS_BYTES_PER_S / MIB, MIB),
        "Maximum number of MB a second read from a shard. Kinesis allows 2, for all readers of "
        "a shard together.",
        default="2.0",
    ),
    _polling(
        "maxRecordsPerFetch",
        kinds.count(1, GET_RECORDS_MAX_RECORDS),
        "Maximum number of records in one answer.",
        default=str(GET_RECORDS_MAX_RECORDS),
        aliases=(
            "kinesis.getRecords.numberOfRecordsPerFetch",
            "kinesis.executor.maxRecordPerRead",
        ),
    ),
    _streaming(
        "fetchBufferSize",
        kinds.size(1 * MIB),
        "Hard limit, in bytes, for all records that are received and not yet committed.",
        default="256mb",
    ),
    _efo(
        "subscriptionIdleTimeout",
        kinds.duration(1, 3600),
        "A subscription whose buffer has been full for this long is closed, and opened again "
        "when there is room.",
        default="30s",
    ),
    _streaming(
        "transport",
        kinds.transport,
        "How subscriptions travel. `http2` carries many of them on one connection; it needs the "
        "package `awscrt` (`pip install 'awscrt>=0.31.3'`) and an https endpoint that offers "
        "HTTP/2. `auto` is `http2` where that is possible and no proxy is configured, else "
        "`http1`; the driver's log says which.",
        default="auto",
    ),
    _streaming(
        "agentPlacement",
        kinds.agent_placement,
        "Where the shard agents run. This version only knows `driver`.",
        default="driver",
    ),
    _streaming(
        "agentProcesses",
        kinds.count(1, MAX_AGENT_PROCESSES),
        "How many processes on the driver read the shards, each with an equal part of "
        "`fetchBufferSize`. `1` is the source's own process, which uses about one core. With "
        "more, the source starts that many processes, distributes the shards over them, and "
        "replaces a process that dies.",
        default="1",
    ),
    _streaming(
        "agentHost",
        kinds.host,
        "Address of the driver on which the shard agent listens and to which read tasks "
        "connect. With the default, only tasks on the driver's machine reach it; all others "
        "read their ranges from Kinesis. Beyond the loopback address the connection is "
        "encrypted (TLS). `0.0.0.0` listens on all addresses; it needs "
        "`agentAdvertisedHost`.",
        default="127.0.0.1",
    ),
    _streaming(
        "agentAdvertisedHost",
        kinds.host,
        "Address to which read tasks connect, if it is another one than `agentHost`, as behind "
        "a network address translation.",
    ),
    _streaming(
        "agentPort",
        kinds.ports,
        "Port on which the shard agent listens, or a range of ports as `40000-40009`. Each "
        "stream of the query needs one, in each agent process. By default the system picks "
        "free ports.",
    ),
    # --- writing
    _writing(
        "maxInFlightRecords",
        kinds.count(1),
        "Hard limit for records accepted and not yet acknowledged, for each task. `write` "
        "blocks when it is reached.",
        default="10000",
    ),
    _writing(
        "maxInFlightBytes",
        kinds.size(1 * MIB),
        "The same limit in bytes (data and partition keys).",
        default="32mb",
    ),
    _writing(
        "maxInFlightRequests",
        kinds.count(1, 1000),
        "Maximum number of PutRecords requests in flight, for each task.",
        default="16",
    ),
    _writing(
        "linger",
        kinds.duration(0, 60),
        "How long a record waits for others of its shard to fill a request or an aggregate. "
        "When a task's rows end, so does the wait.",
        default="100ms",
        foreign_names=_milliseconds(
            0,
            60,
            "kinesis.sink.recordMaxBufferedTimeMs",
            "kinesis.executor.recordMaxBufferedTime",
        ),
    ),
    _writing(
        "ordering",
        kinds.choice({"none": False, "key": True}, "none or key"),
        "`none`, or `key`: records of one partition key are stored in the order of the rows in "
        "their task. This costs one round trip for each record of a key, or for each aggregate "
        "of a shard.",
        default="none",
    ),
    _writing(
        "aggregation",
        kinds.boolean,
        "Write many rows as one Kinesis record, in the format of the Kinesis Producer Library "
        "(KPL). Readers must take such records apart, as this source, the KCL and "
        "`aws-kinesis-agg` do. It is always on with `recordIds`.",
        default="false",
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
    ),
    _writing(
        "aggregationMaxBytes",
        kinds.size(1024, RECORD_MAX_BYTES),
        "Maximum number of bytes in one aggregate. The stream's own limit for a record applies "
        "too.",
        default="50kb",
    ),
    _writing(
        "aggregationMaxRecords",
        kinds.count(1),
        "Maximum number of rows in one aggregate.",
        default="100000",
    ),
    _writing(
        "recordIds",
        kinds.boolean,
        "Give each row an id, which is the same when Spark writes the row again. Our source "
        "returns it as `recordId`, and `kinesis_ds.drop_repeats` uses it to drop repeats.",
        default="false",
    ),
    _writing(
        "onOversizedRecord",
        kinds.choice({"fail": False, "skip": True}, "fail or skip"),
        "What to do with a row that is larger than the stream allows. `fail` ends the task and "
        "names the row; `skip` leaves the row out, counts it, and logs one warning for each "
        "task.",
        default="fail",
    ),
    _writing(
        "ledger",
        kinds.boolean,
        "Record finished batches in the query's checkpoint, so that a batch is not written a "
        "second time when Spark runs it again.",
        default="true",
    ),
    _writing(
        "batchMaxRecords",
        kinds.count(1, PUT_RECORDS_MAX_RECORDS),
        "Maximum number of records in one PutRecords request.",
        default=str(PUT_RECORDS_MAX_RECORDS),
    ),
    _writing(
        "batchMaxBytes",
        kinds.size(1024, PUT_RECORDS_MAX_BYTES),
        "Maximum number of bytes in one PutRecords request, partition keys included.",
        default="5mb",
    ),
    _writing(
        "retryTimeout",
        kinds.duration(1, 3600),
        "How long one record is retried before its task fails.",
        default="120s",
        foreign_names=_milliseconds(1, 3600, "kinesis.sink.recordTtl"),
    ),
    # --- everywhere
    Option(
        "diagnosticsDirectory",
        kinds.text,
        "A local directory into which counters are written once a second, as JSON.",
    ),
)

# Keys (in lower case) that Spark itself adds to the options of a source or sink.
FROM_SPARK = frozenset({"checkpointlocation", "path", "queryname"})
