"""The writing job: a Spark query that makes numbered events and writes them into Kinesis.

Run by the conductor: `python -m examples.demo.writer_job '<JobSettings as JSON>'`. Ends by itself,
with status 0, when exactly the events 0 to N-1 are written.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from examples.demo.session import die_with, small_spark, wait
from examples.demo.settings import KEYS, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

EVENT = f"""to_json(named_struct(
    'id', value,
    'key', value % {KEYS},
    'n', value div {KEYS},
    'created_ms', unix_millis(current_timestamp()),
    'note', repeat('.', 100)
))"""


def main(job: JobSettings) -> None:
    """Write the events at the rate wanted, then end."""
    die_with(job.conductor)
    spark = small_spark("demo writer", job.folder)
    ticks = (
        # A fixed number of rows a trigger: a slow machine writes more slowly, never in gusts.
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", job.rate)
        .option("numPartitions", 2)
        .load()
        .where(f"value < {job.records}")
    )
    query = write(ticks, job)
    while _emitted(query) < job.records:
        wait(query, 0.2)
    query.stop()
    spark.stop()


def write(ticks: DataFrame, job: JobSettings) -> StreamingQuery:
    """The part that a user of the connector writes."""
    return (
        ticks.selectExpr(
            f"{EVENT} AS data", f"concat('key-', lpad(value % {KEYS}, 3, '0')) AS partitionKey"
        )
        .writeStream.format("kinesis")
        .options(**job.source)
        .option("checkpointLocation", job.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


def _emitted(query: StreamingQuery) -> int:
    # Progress is told of committed batches only, so all values below this number are written.
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    return int(json.loads(end)["offset"]) if end else 0


if __name__ == "__main__":
    main(JobSettings(**json.loads(sys.argv[1])))
