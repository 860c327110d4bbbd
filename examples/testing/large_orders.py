"""The job: orders of 1,000 and more go on into a stream of their own."""

# --8<-- [start:job]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def large_orders(
    spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: str
) -> StreamingQuery:
    orders = spark.readStream.format("kinesis").options(**source).load()
    large = (
        orders.selectExpr("partitionKey", "CAST(data AS STRING) AS data")
        .where("CAST(get_json_object(data, '$.total') AS DOUBLE) >= 1000")
        .writeStream.format("kinesis")
        .options(**sink)
        .option("checkpointLocation", checkpoint)
    )
    return large.start()


# --8<-- [end:job]
