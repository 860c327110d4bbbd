"""Print what arrives in the stream "orders", with the shard that it came from.

Region and credentials come from the AWS configuration; AWS_ENDPOINT_URL names another endpoint.
"""

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
query.awaitTermination()
# --8<-- [end:read]
