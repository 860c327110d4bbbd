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
    ): "records are not fetched ahead by Spark jobs; fetchBufferSize bounds what is buffered",
    ("maxShardsPerDescribe",): "the list of shards is read to its end, page by page",
    (
        "kinesis.maxFetchRecordsPerShard",
        "kinesis.executor.maxFetchRecordsPerShard",
    ): "maxRecordsPerTrigger and maxBytesPerTrigger bound a batch, over all shards",
    (
        "kinesis.maxFetchTimePerShardSec",
        "kinesis.executor.maxFetchTimeInMs",
    ): "a batch holds what has been received when it is planned and waits for nothing",
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
    ): "where a batch ends is in Spark's own checkpoint, and nowhere else",
    (
        "kinesis.clientNumRetries",
        "kinesis.clientRetryIntervalsMs",
        "kinesis.clientMaxRetryIntervalMs",
        "kinesis.client.numRetries",
        "kinesis.client.retryIntervalMs",
        "kinesis.client.maxRetryIntervalMs",
        "kinesis.subscribeToShard.timeoutSec",
        "kinesis.subscribeToShard.maxRetries",
    ): "what may pass is retried, with growing pauses",
    (
        "kinesis.checkNewRecordThreads",
        "kinesis.client.maxParallelThreads",
        "kinesis.internal.avoidEmptyBatches",
        "kinesis.client.avoidEmptyBatches",
    ): "whether there are new records is known without asking the service",
    (
        "kinesis.internal.dataQueueCapacity",
        "kinesis.internal.maxDataQueueEmptyCount",
        "kinesis.internal.dataQueueWaitTimeoutSec",
    ): "a task reads the range it was given and waits for no more; fetchBufferSize bounds memory",
    (
        "kinesis.executor.addIdleTimeBetweenReads",
        "kinesis.executor.idleTimeBetweenReadsInMs",
    ): "a shard without new records is polled less and less often; minFetchPeriod is the least",
    ("awsUseInstanceProfile",): "the AWS credential chain asks the instance's profile",
    (
        "kinesis.sink.flushWaitTimeMs",
        "kniesis.executor.flushwaittimemillis",
    ): "a task ends as soon as all its records are acknowledged",
    (
        "kinesis.sink.maxConnections",
        "kinesis.executor.maxConnections",
    ): "maxInFlightRequests bounds the requests under way",
}

REFUSED: Mapping[tuple[str, ...], str] = {
    ("serviceCredential",): (
        "it is known to Databricks only; give roleArn, or keys, or leave it to the AWS credential"
        " chain"
    ),
    ("kinesis.credentialProviderClass", "kinesis.credentialProviderParam"): (
        "it names a class on the JVM; give roleArn, or keys, or leave it to the AWS credential "
        "chain, which takes a credential_process from the AWS config file"
    ),
    (
        "kinesis.sink.proxyAddress",
        "kinesis.sink.proxyPort",
        "kinesis.sink.proxyUsername",
        "kinesis.sink.proxyPassword",
    ): "set HTTPS_PROXY in the environment of driver and executors",
}
