"""Write an event a second into the stream "orders".

Region and credentials come from the AWS configuration; AWS_ENDPOINT_URL names another endpoint.
"""

# --8<-- [start:write]
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("events").getOrCreate()
events = spark.readStream.format("rate").load()
rows = events.selectExpr("to_json(struct(*)) AS data", "CAST(value AS STRING) AS partitionKey")
sink = rows.writeStream.format("kinesis").option("streamName", "orders")
sink.option("checkpointLocation", "checkpoints/write").start().awaitTermination()
# --8<-- [end:write]
