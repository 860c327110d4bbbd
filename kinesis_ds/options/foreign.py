"""Options of other connectors that this connector does not have: ignored, or refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignOptions:
    """Some options of other connectors that do not exist here.

    Attributes:
        names: Their names.
        instead: Why they are not needed, or what to use instead. Users see it.
    """

    names: tuple[str, ...]
    instead: str


IGNORED: tuple[ForeignOptions, ...] = (
    ForeignOptions(
        ("maxFetchDuration", "coalesceThresholdBlockSize", "coalesceBinSize"),
        "records are not fetched ahead by Spark jobs; fetchBufferSize bounds what is buffered",
    ),
    ForeignOptions(
        ("maxShardsPerDescribe",), "the list of shards is read to its end, page by page"
    ),
    ForeignOptions(
        ("kinesis.maxFetchRecordsPerShard", "kinesis.executor.maxFetchRecordsPerShard"),
        "maxRecordsPerTrigger and maxBytesPerTrigger bound a batch, over all shards",
    ),
    ForeignOptions(
        ("kinesis.maxFetchTimePerShardSec", "kinesis.executor.maxFetchTimeInMs"),
        "a batch holds what has been received when it is planned and waits for nothing",
    ),
    ForeignOptions(
        (
            "kinesis.metadataCommitterType",
            "kinesis.metadataPath",
            "kinesis.metadataNumRetries",
            "kinesis.metadataRetryIntervalsMs",
            "kinesis.metadataMaxRetryIntervalMs",
            "kinesis.dynamodb.tableName",
            "kinesis.minBatchesToRetain",
            "kinesis.internal.maintenanceTaskIntervalSec",
            "kinesis.executor.metadata.committer",
            "kinesis.executor.metadata.path",
        ),
        "where a batch ends is in Spark's own checkpoint, and nowhere else",
    ),
    ForeignOptions(
        (
            "kinesis.clientNumRetries",
            "kinesis.clientRetryIntervalsMs",
            "kinesis.clientMaxRetryIntervalMs",
            "kinesis.client.numRetries",
            "kinesis.client.retryIntervalMs",
            "kinesis.client.maxRetryIntervalMs",
            "kinesis.subscribeToShard.timeoutSec",
            "kinesis.subscribeToShard.maxRetries",
        ),
        "what may pass is retried, with growing pauses",
    ),
    ForeignOptions(
        (
            "kinesis.checkNewRecordThreads",
            "kinesis.client.maxParallelThreads",
            "kinesis.internal.avoidEmptyBatches",
            "kinesis.client.avoidEmptyBatches",
        ),
        "whether there are new records is known without asking the service",
    ),
    ForeignOptions(
        (
            "kinesis.internal.dataQueueCapacity",
            "kinesis.internal.maxDataQueueEmptyCount",
            "kinesis.internal.dataQueueWaitTimeoutSec",
        ),
        "a task reads the range it was given and waits for no more; fetchBufferSize bounds memory",
    ),
    ForeignOptions(
        ("kinesis.executor.addIdleTimeBetweenReads", "kinesis.executor.idleTimeBetweenReadsInMs"),
        "a shard without new records is polled less and less often; minFetchPeriod is the least",
    ),
    ForeignOptions(
        ("awsUseInstanceProfile",), "the AWS credential chain asks the instance's profile"
    ),
    ForeignOptions(
        (
            "kinesis.sink.flushWaitTimeMs",
            "kniesis.executor.flushwaittimemillis",
        ),
        "a task ends as soon as all its records are acknowledged",
    ),
    ForeignOptions(
        ("kinesis.sink.maxConnections", "kinesis.executor.maxConnections"),
        "maxInFlightRequests bounds the requests under way",
    ),
)


REFUSED: tuple[ForeignOptions, ...] = (
    ForeignOptions(
        ("serviceCredential",),
        "it is known to Databricks only; give roleArn, or keys, or leave it to the AWS credential "
        "chain",
    ),
    ForeignOptions(
        ("kinesis.credentialProviderClass", "kinesis.credentialProviderParam"),
        "it names a class on the JVM; give roleArn, or keys, or leave it to the AWS credential "
        "chain, which takes a credential_process from the AWS config file",
    ),
    ForeignOptions(
        (
            "kinesis.sink.proxyAddress",
            "kinesis.sink.proxyPort",
            "kinesis.sink.proxyUsername",
            "kinesis.sink.proxyPassword",
        ),
        "set HTTPS_PROXY in the environment of driver and executors",
    ),
)
