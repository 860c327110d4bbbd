"""Every option: its names, the form of its value, its default, where it applies and what it does.

Parsing, error texts and the reference page all come from here. Pure.
"""

from __future__ import annotations

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
from kinesis_ds.options.option import ForeignName, Mode, Option
from kinesis_ds.options.positions import ending_position, initial_position

_READ: frozenset[Mode] = frozenset({"read"})
_WRITE: frozenset[Mode] = frozenset({"write"})

# Names by which other connectors give the region, and which there yield to that of the endpoint.
WEAK_REGION_NAMES = frozenset({"kinesis.region", "regionname"})

_WHERE_AND_WHO: tuple[Option, ...] = (
    Option(
        "streamName",
        kinds.stream_names,
        "Name of the stream. A source reads several: names with commas between them.",
        aliases=("kinesis.streamName",),
    ),
    Option(
        "streamARN",
        kinds.stream_arns,
        "ARN of the stream, instead of its name; for a source several of one region, with commas.",
        aliases=("kinesis.streamARN",),
    ),
    Option(
        "region",
        kinds.text,
        "AWS region; by default that of `streamARN`, of an `endpoint` of AWS, or of the "
        "environment. `kinesis.region` and `regionName` yield to each of the first two, and to "
        "`kinesis.kinesisRegion`.",
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
        "roleArn",
        kinds.role_arn,
        "ARN of a role to assume, with the credentials above. Renewed before it expires.",
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
    ),
    Option(
        "roleExternalId",
        kinds.text,
        "External id that the role asks for.",
        secret=True,
    ),
    Option(
        "roleSessionName",
        kinds.session_name,
        "Name of the session, as CloudTrail shows it.",
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"),
    ),
    Option(
        "stsEndpoint",
        kinds.endpoint,
        "Endpoint of STS, which gives out the role's credentials.",
        aliases=("kinesis.stsEndpointUrl",),
    ),
)

_WHAT_IS_READ: tuple[Option, ...] = (
    Option(
        "initialPosition",
        initial_position,
        "Where a new query starts: `latest`, `trim_horizon` (`earliest`), `at_timestamp` with a "
        "time, or JSON by shard; see [positions](positions.md). A query with a checkpoint goes on "
        "from there.",
        default="latest",
        batch_default="earliest",
        aliases=("startingPosition", "kinesis.startingPosition"),
        modes=_READ,
    ),
    Option(
        "endingPosition",
        ending_position,
        "Where a batch read ends: `latest`, which is the moment it is planned, `at_timestamp` with "
        "a time, or JSON by shard; see [positions](positions.md).",
        default="latest",
        modes=_READ,
        kind="batch",
    ),
    Option(
        "failOnDataLoss",
        kinds.boolean,
        "Fail when Kinesis says that records which are needed are gone. With `false`, warn and go "
        "on at the oldest record.",
        default="true",
        aliases=("kinesis.failOnDataLoss",),
        modes=_READ,
    ),
    Option(
        "maxRecordsPerTrigger",
        kinds.count(1),
        "Records in one micro-batch, at most, shared out over the shards. Records that the "
        "Kinesis Producer Library has aggregated are not parted.",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "maxBytesPerTrigger",
        kinds.size(1),
        "Bytes in one micro-batch, at most, shared out over the shards.",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "parentsFirst",
        kinds.boolean,
        "Read a shard only when its parents are read to the end, so that records of one key stay "
        "in order across a reshard. With `false` both are read at once.",
        default="true",
        modes=_READ,
    ),
    Option(
        "deaggregate",
        kinds.boolean,
        "Take apart the records that the Kinesis Producer Library has aggregated. With `false` "
        "they come as they are.",
        default="true",
        modes=_READ,
    ),
    Option(
        "includeMetadata",
        kinds.boolean,
        "Add the columns `subSequenceNumber`, `explicitHashKey`, `encryptionType` and `recordId`.",
        default="false",
        modes=_READ,
    ),
    Option(
        "shardsPerTask",
        kinds.count(1),
        "Shards that one Spark task reads, at most. By default they are packed by bytes. Not with "
        "`maxPartitions`.",
        modes=_READ,
    ),
    Option(
        "maxPartitions",
        kinds.count(1),
        "Spark tasks in one batch, at most. Not with `shardsPerTask`.",
        modes=_READ,
    ),
    Option(
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
        modes=_READ,
        kind="stream",
    ),
)

_HOW_IT_IS_READ: tuple[Option, ...] = (
    Option(
        "consumerMode",
        kinds.consumer_mode,
        "How the source reads: `efo`, enhanced fan-out, or `polling`; also called "
        "`SubscribeToShard` and `GetRecords`.",
        default="efo",
        aliases=("kinesis.consumerType",),
        modes=_READ,
        kind="stream",
    ),
    Option(
        "consumerName",
        kinds.consumer_names,
        "Name of the enhanced fan-out consumer, registered when missing: one for all streams, or "
        "one for each, with commas. By default each query makes up a name and keeps it in its "
        "checkpoint.",
        aliases=("kinesis.consumerName",),
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "consumerNamePrefix",
        kinds.name_prefix,
        "What goes before the consumer's name. By default nothing before a `consumerName`, and "
        "`kinesis_ds_` before one that is made up.",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "registeredConsumerId",
        kinds.consumer_ids,
        "Name or ARN of a consumer that is registered already: one for each stream, in order, "
        "with commas. Nothing is registered or deregistered.",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "registeredConsumerIdType",
        kinds.consumer_id_type,
        "`name` or `ARN`: what `registeredConsumerId` holds. May be left out; it is checked.",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "registerConsumerTimeoutInterval",
        kinds.duration(1, 3600),
        "How long to wait for the consumer to become ACTIVE.",
        default="300s",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "requireConsumerDeregistration",
        kinds.boolean,
        "Deregister the consumer when the query is stopped (not when it is killed). Idle consumers "
        "are billed by AWS.",
        default="false",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "deregisterConsumerTimeoutInterval",
        kinds.duration(1, 3600),
        "How long stopping may wait for that.",
        default="300s",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "consumerRefreshInterval",
        kinds.duration(1, 3600),
        "How often the registration of the consumer is looked at.",
        default="300s",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "minFetchPeriod",
        kinds.duration(GET_RECORDS_MIN_INTERVAL_S, 3600),
        "Time between two reads of a shard, at least. Kinesis allows five a second, to all readers "
        "of a shard together.",
        default="200ms",
        foreign_names=(
            ForeignName(
                "kinesis.getRecords.fetchIntervalMs",
                kinds.jvm_duration(GET_RECORDS_MIN_INTERVAL_S, 3600),
                "milliseconds",
            ),
        ),
        modes=_READ,
        kind="stream",
        consumer="polling",
    ),
    Option(
        "maxFetchRate",
        kinds.rate(0.1, GET_RECORDS_BYTES_PER_S / MIB, MIB),
        "MB a second that are read from a shard, at most. Kinesis allows 2, to all readers of a "
        "shard together.",
        default="2.0",
        modes=_READ,
        kind="stream",
        consumer="polling",
    ),
    Option(
        "maxRecordsPerFetch",
        kinds.count(1, GET_RECORDS_MAX_RECORDS),
        "Records in one answer, at most.",
        default=str(GET_RECORDS_MAX_RECORDS),
        aliases=(
            "kinesis.getRecords.numberOfRecordsPerFetch",
            "kinesis.executor.maxRecordPerRead",
        ),
        modes=_READ,
        kind="stream",
        consumer="polling",
    ),
    Option(
        "fetchBufferSize",
        kinds.size(1 * MIB),
        "Hard bound, in bytes, of everything received and not yet committed.",
        default="256mb",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "subscriptionIdleTimeout",
        kinds.duration(1, 3600),
        "A subscription whose buffer has been full this long is given back and opened again when "
        "there is room.",
        default="30s",
        modes=_READ,
        kind="stream",
        consumer="efo",
    ),
    Option(
        "transport",
        kinds.transport,
        "How subscriptions travel. `http2` carries many on one connection; it needs the package "
        "`awscrt` (`pip install 'kinesis-ds[http2]'`) and an https endpoint that offers HTTP/2. "
        "`auto` is `http2` where that can be had and no proxy is to be used, else `http1`, and the "
        "driver's log says so.",
        default="auto",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "agentPlacement",
        kinds.agent_placement,
        "Where the shard agents run. This version knows `driver`.",
        default="driver",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "agentProcesses",
        kinds.count(1, MAX_AGENT_PROCESSES),
        "How many processes on the driver read the shards, each with an equal part of "
        "`fetchBufferSize`. 1 is the source's own process, which uses about one core. Above that "
        "the source starts them, spreads the shards over them and replaces one that dies.",
        default="1",
        modes=_READ,
        kind="stream",
    ),
    Option(
        "agentHost",
        kinds.text,
        "Address of the driver on which the shard agent listens, and which read tasks connect to. "
        "With the default only tasks on the driver's machine reach it; others read their ranges "
        "from Kinesis.",
        default="127.0.0.1",
        modes=_READ,
        kind="stream",
    ),
)

_WRITING: tuple[Option, ...] = (
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
        "linger",
        kinds.duration(0, 60),
        "How long a record waits for others of its shard to fill a request or an aggregate with. "
        "The end of a task's rows ends the wait.",
        default="100ms",
        foreign_names=(
            ForeignName(
                "kinesis.sink.recordMaxBufferedTimeMs", kinds.jvm_duration(0, 60), "milliseconds"
            ),
            ForeignName(
                "kinesis.executor.recordMaxBufferedTime", kinds.jvm_duration(0, 60), "milliseconds"
            ),
        ),
        modes=_WRITE,
    ),
    Option(
        "ordering",
        kinds.choice({"none": False, "key": True}, "none or key"),
        "`none`, or `key`: records of one partition key are stored in the order of the rows of "
        "their task. That costs a round trip a record of a key, or an aggregate of a shard.",
        default="none",
        modes=_WRITE,
    ),
    Option(
        "aggregation",
        kinds.boolean,
        "Write many rows as one Kinesis record, in the format of the KPL. Readers must take such "
        "records apart, as this source, the KCL and `aws-kinesis-agg` do. On with `recordIds`.",
        default="false",
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        modes=_WRITE,
    ),
    Option(
        "aggregationMaxBytes",
        kinds.size(1024, RECORD_MAX_BYTES),
        "Bytes in one aggregate, at most; and never more than the stream takes a record.",
        default="50kb",
        modes=_WRITE,
    ),
    Option(
        "aggregationMaxRecords",
        kinds.count(1),
        "Rows in one aggregate, at most.",
        default="100000",
        modes=_WRITE,
    ),
    Option(
        "recordIds",
        kinds.boolean,
        "Give each row an id that is the same when Spark writes it again. Our source shows it as "
        "`recordId`, and `kinesis_ds.drop_repeats` leaves repeats out.",
        default="false",
        modes=_WRITE,
    ),
    Option(
        "onOversizedRecord",
        kinds.choice({"fail": False, "skip": True}, "fail or skip"),
        "What becomes of a row that is larger than the stream takes: `fail` ends the task and "
        "names the row, `skip` leaves it out, counts it, and warns once a task.",
        default="fail",
        modes=_WRITE,
    ),
    Option(
        "ledger",
        kinds.boolean,
        "Keep account of finished batches in the query's checkpoint, so that none is written again "
        "when Spark runs it again.",
        default="true",
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
        foreign_names=(
            ForeignName("kinesis.sink.recordTtl", kinds.jvm_duration(1, 3600), "milliseconds"),
        ),
        modes=_WRITE,
    ),
)

OPTIONS: tuple[Option, ...] = (
    *_WHERE_AND_WHO,
    *_WHAT_IS_READ,
    *_HOW_IT_IS_READ,
    *_WRITING,
    Option(
        "diagnosticsDirectory",
        kinds.text,
        "A local directory into which counters are written once a second, as JSON.",
    ),
)

# Keys that Spark itself puts among a source's or sink's options.
FROM_SPARK = frozenset({"checkpointlocation", "path", "queryname"})
