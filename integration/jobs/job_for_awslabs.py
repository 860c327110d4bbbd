"""A job written for the awslabs connector, as its pages show them; only the format's name is ours.

Everything that their options of that kind allow is given, so that nothing but the name would have
to be changed in a job that gives less. Where it says ``kinesis`` it said ``aws-kinesis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SOURCE = {
    "kinesis.region": "us-east-1",
    "kinesis.kinesisRegion": "us-east-1",
    "kinesis.consumerType": "SubscribeToShard",
    "kinesis.consumerName": "TestConsumer",
    "kinesis.startingposition": "AT_TIMESTAMP 2023-08-30T19:00:05-08:00",
    "kinesis.failOnDataLoss": "true",
    "kinesis.maxFetchRecordsPerShard": "100000",
    "kinesis.maxFetchTimePerShardSec": "10",
    "kinesis.describeShardInterval": "100ms",
    "kinesis.minBatchesToRetain": "100",
    "kinesis.checkNewRecordThreads": "8",
    "kinesis.metadataCommitterType": "DYNAMODB",
    "kinesis.dynamodb.tableName": "kinesisTestMetadata",
    "kinesis.metadataNumRetries": "5",
    "kinesis.metadataRetryIntervalsMs": "1000",
    "kinesis.metadataMaxRetryIntervalMs": "10000",
    "kinesis.clientNumRetries": "5",
    "kinesis.clientRetryIntervalsMs": "1000",
    "kinesis.clientMaxRetryIntervalMs": "10000",
    "kinesis.subscribeToShard.timeoutSec": "60",
    "kinesis.subscribeToShard.maxRetries": "10",
    "kinesis.getRecords.numberOfRecordsPerFetch": "10000",
    "kinesis.getRecords.fetchIntervalMs": "200",
    "kinesis.internal.dataQueueCapacity": "1000",
}
SINK = {
    "kinesis.region": "us-east-1",
    "kinesis.sink.flushWaitTimeMs": "100",
    "kinesis.sink.recordMaxBufferedTimeMs": "1000",
    "kinesis.sink.maxConnections": "1",
    "kinesis.sink.aggregationEnabled": "true",
    "kinesis.sink.recordTtl": "30000",
}


def start(
    spark: SparkSession, endpoint_url: str, from_stream: str, to_stream: str, checkpoint: str
) -> StreamingQuery:
    """Copy a stream into another one."""
    kinesis = (
        spark.readStream.format("kinesis")
        .options(**SOURCE)
        .option("kinesis.streamName", from_stream)
        .option("kinesis.endpointUrl", endpoint_url)
        .load()
    )
    return (
        kinesis.selectExpr("CAST(rand() AS STRING) as partitionKey", "CAST(data AS STRING)")
        .writeStream.format("kinesis")
        .outputMode("append")
        .options(**SINK)
        .option("kinesis.streamName", to_stream)
        .option("kinesis.endpointUrl", endpoint_url)
        .option("checkpointLocation", checkpoint)
        .start()
    )
