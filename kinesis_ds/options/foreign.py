"""Options of other connectors that this connector does not have: ignored, or refused. Pure.

Each row has the names of some options, and why they are not needed or what to use instead. Users
see that text.
"""

from __future__ import annotations

from collections.abc import Mapping

IGNORED: Mapping[tuple[str, ...], str] = {
    (
        "maxFetchDuration",
        "coalesceThresholdBlockSize",
        "coalesceBinSize",
    ): "no Spark job fetches records ahead; fetchBufferSize limits what is buffered",
    ("maxShardsPerDescribe",): "the list of shards is read to its end, page by page",
    (
        "kinesis.maxFetchRecordsPerShard",
        "kinesis.executor.maxFetchRecordsPerShard",
    ): "maxRecordsPerTrigger and maxBytesPerTrigger limit a batch, over all shards",
    (
        "kinesis.maxFetchTimePerShardSec",
        "kinesis.executor.maxFetchTimeInMs",
    ): "a batch contains what was received before it is planned, and does not wait",
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
    ): "the end of a batch is stored in Spark's checkpoint only",
    (
        "kinesis.clientNumRetries",
        "kinesis.clientRetryIntervalsMs",
        "kinesis.clientMaxRetryIntervalMs",
        "kinesis.client.numRetries",
        "kinesis.client.retryIntervalMs",
        "kinesis.client.maxRetryIntervalMs",
        "kinesis.subscribeToShard.timeoutSec",
        "kinesis.subscribeToShard.maxRetries",
    ): "temporary errors are retried, with growing pauses",
    (
        "kinesis.checkNewRecordThreads",
        "kinesis.client.maxParallelThreads",
        "kinesis.internal.avoidEmptyBatches",
        "kinesis.client.avoidEmptyBatches",
    ): "the source knows without a call whether there are new records",
    (
        "kinesis.internal.dataQueueCapacity",
        "kinesis.internal.maxDataQueueEmptyCount",
        "kinesis.internal.dataQueueWaitTimeoutSec",
    ): "a task reads a fixed range and does not wait for more; fetchBufferSize limits memory",
    (
        "kinesis.executor.addIdleTimeBetweenReads",
        "kinesis.executor.idleTimeBetweenReadsInMs",
    ): "a shard without new records is polled less often; minFetchPeriod is the shortest pause",
    ("awsUseInstanceProfile",): "the AWS credential chain asks the instance's profile",
    (
        "kinesis.sink.flushWaitTimeMs",
        "kniesis.executor.flushwaittimemillis",
    ): "a task ends as soon as all its records are acknowledged",
    (
        "kinesis.sink.maxConnections",
        "kinesis.executor.maxConnections",
    ): "maxInFlightRequests limits the requests in flight",
}

REFUSED: Mapping[tuple[str, ...], str] = {
    ("serviceCredential",): (
        "it exists on Databricks only; use roleArn, or keys, or neither (the AWS credential chain)"
    ),
    ("kinesis.credentialProviderClass", "kinesis.credentialProviderParam"): (
        "it names a class on the JVM; use roleArn, or keys, or neither (the AWS credential chain, "
        "which also runs a credential_process of the AWS config file)"
    ),
    (
        "kinesis.sink.proxyAddress",
        "kinesis.sink.proxyPort",
        "kinesis.sink.proxyUsername",
        "kinesis.sink.proxyPassword",
    ): "set HTTPS_PROXY in the environment of driver and executors",
}
