"""A job written for Databricks' connector, whose format has the same name as ours.

Everything that its options of that kind allow is given, so that nothing would have to be changed in
a job that gives less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SOURCE: dict[str, Any] = {
    "region": "us-east-1",
    "awsAccessKey": "test",
    "awsSecretKey": "test",
    "initialPosition": '{"at_timestamp": "06/25/2020 10:23:45 PDT", '
    '"format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
    "fetchBufferSize": "2gb",
    "maxFetchDuration": "10s",
    "shardsPerTask": 5,
    "shardFetchInterval": "1s",
    "maxShardsPerDescribe": 100,
    "coalesceThresholdBlockSize": 10_000_000,
    "coalesceBinSize": 128_000_000,
}
POLLING: dict[str, Any] = {
    "consumerMode": "polling",
    "maxFetchRate": 1.5,
    "minFetchPeriod": "400ms",
    "maxRecordsPerFetch": 5_000,
}
EFO: dict[str, Any] = {
    "consumerMode": "efo",
    "consumerName": "clickstream-bronze",
    "consumerNamePrefix": "databricks_",
    "registerConsumerTimeoutInterval": "300s",
    "requireConsumerDeregistration": True,
    "deregisterConsumerTimeoutInterval": "300s",
    "consumerRefreshInterval": "300s",
}


def start(
    spark: SparkSession,
    endpoint: str,
    streams: str,
    how: dict[str, Any],
    keep: Callable[[DataFrame, int], None],
    checkpoint: str,
) -> StreamingQuery:
    """Read streams, named with commas between them, by polling or by enhanced fan-out."""
    kinesis = (
        spark.readStream.format("kinesis")
        .options(**SOURCE)
        .options(**how)
        .option("streamName", streams)
        .option("endpoint", endpoint)
        .load()
    )
    return (
        kinesis.selectExpr(
            "partitionKey",
            "cast(data as string)",
            "stream",
            "shardId",
            "sequenceNumber",
            "approximateArrivalTimestamp",
        )
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .start()
    )
