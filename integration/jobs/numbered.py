"""Numbered rows to Kinesis, and back again, in processes of their own that a test kills.

``python -m integration.jobs.numbered '{"do": "write", ...}'``

The rows come from Spark's own ``rate-micro-batch``: batch ``n`` holds the numbers from
``n * rows_per_batch`` on, whenever it is run. The data of a row begins with its number.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from examples.demo.session import die_with, small_spark
from integration.jobs.stopping import StoppingDataSource, stop_at
from kinesis_ds import drop_repeats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = 4


def size_of(number: int) -> int:
    """How many bytes the data of a row has: mostly below 500, some 5,000, a few 200,000."""
    if number % 5000 == 7:
        return 200_000
    return 5_000 if number % 97 == 0 else 8 + number * 7919 % 500


_SIZE = (
    "CASE WHEN value % 5000 = 7 THEN 200000 WHEN value % 97 = 0 THEN 5000 "
    "ELSE 8 + value * 7919 % 500 END"
)
_COLUMNS = (
    f"CAST(rpad(lpad(value, 8, '0'), CAST({_SIZE} AS INT), '.') AS BINARY) AS data",
    "concat('key-', value % 1000) AS partitionKey",
)


def main() -> None:
    """Run until done or killed. Keys of the argument:

    do: ``write`` or ``read``. folder: for everything. options: of the connector. conductor: the
    process to die with. To write also ``rows``, ``rows_per_batch``, and ``stop``: a moment.
    """
    job: dict[str, Any] = json.loads(sys.argv[1])
    die_with(job["conductor"])
    stop_at(Path(job["folder"]), job.get("stop"))
    spark = small_spark("kinesis_ds numbers", job["folder"])
    # So many rows a piece that each task has several.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 250)
    {"write": _write, "read": _read}[job["do"]](spark, job)
    spark.stop()


def _write(spark: SparkSession, job: dict[str, Any]) -> None:
    """Write the rows, and end when Spark has noted the last batch as done."""
    spark.dataSource.register(StoppingDataSource)
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", job["rows_per_batch"])
        .option("numPartitions", TASKS)
        .load()
        .where(f"value < {job['rows']}")
        .selectExpr(*_COLUMNS)
        .writeStream.format("kinesis_stopping")
        .options(**job["options"])
        .option("checkpointLocation", f"{job['folder']}/checkpoint")
        .start()
    )
    last = (
        Path(job["folder"]) / "checkpoint/commits" / str(job["rows"] // job["rows_per_batch"] - 1)
    )
    while not last.exists():
        if query.awaitTermination(0.1):
            raise RuntimeError("the query ended by itself")
    query.stop()


def _read(spark: SparkSession, job: dict[str, Any]) -> None:
    """Read the stream, leave repeats out, and keep the numbers as text files in ``read``."""
    rows = spark.readStream.format("kinesis").options(**job["options"]).load()
    query = (
        drop_repeats(rows)
        .select(F.substring(F.col("data").cast("string"), 1, 8).alias("value"))
        .writeStream.format("text")
        .option("path", f"{job['folder']}/read")
        .option("checkpointLocation", f"{job['folder']}/checkpoint-read")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
