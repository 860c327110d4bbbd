"""Print what arrives in the stream "orders", with the shard that it came from.

Region and credentials come from the AWS configuration; AWS_ENDPOINT_URL names another endpoint.
"""

import signal
import threading

# --8<-- [start:read]
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders").getOrCreate()
orders = (
    spark.readStream.format("kinesis")
    .option("streamName", "orders")
    .option("initialPosition", "trim_horizon")
    .load()
)
shown = orders.selectExpr("shardId", "partitionKey", "CAST(data AS STRING) AS data")
query = shown.writeStream.format("console").option("checkpointLocation", "checkpoints/read").start()

# --8<-- [end:read]

# Ctrl-C stops the query. The handler that Spark has set would break off a call to the JVM, and
# print a hundred lines of traces.
stopped = threading.Event()
signal.signal(signal.SIGINT, lambda *_: stopped.set())
while not stopped.is_set() and not query.awaitTermination(1):
    pass
query.stop()
