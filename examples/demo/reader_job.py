"""The reading job: a Spark query that reads the stream by enhanced fan-out, a file for each batch.

Run by the conductor: `python -m examples.demo.reader_job '<JobSettings as JSON>'`. Runs until it is
killed (then the next run goes on from the checkpoint) or asked to end with SIGTERM.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.batches import BatchFolder
from examples.demo.session import StopSignal, die_with, small_spark, wait
from examples.demo.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def main(job: JobSettings) -> None:
    """Read until stopped."""
    die_with(job.conductor)
    stop = StopSignal()
    spark = small_spark("demo reader", job.folder)
    query = read(spark, job)
    while not stop.asked:
        wait(query, 0.2)
    query.stop()
    spark.stop()


def read(spark: SparkSession, job: JobSettings) -> StreamingQuery:
    """The part that a user of the connector writes."""
    out = BatchFolder(Path(job.folder) / "batches")

    def keep(batch: DataFrame, batch_id: int) -> None:
        table = batch.toArrow()
        out.write(batch_id, table, seen_ms=round(time.time() * 1000))

    return (
        spark.readStream.format("kinesis")
        .options(**job.source)
        .option("initialPosition", "trim_horizon")
        .option("fetchBufferSize", "4mb")
        .option("shardFetchInterval", "5s")
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", job.checkpoint)
        .start()
    )


if __name__ == "__main__":
    main(JobSettings(**json.loads(sys.argv[1])))
