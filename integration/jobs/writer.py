"""Writing queries in a process of their own: JSON files to Kinesis, one query after the other.

``python -m integration.jobs.writer '{"result": ..., "queries": [{...}, ...]}'``

Each query reads everything that is there and ends. What became of each goes to the file ``result``
as a list of ``{"error": text or null, "seconds": ..., "batches": ...}``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    """Run the queries. Keys of a query:

    source: a folder of JSON files. schema: of those files. columns: what to select of them.
    options: of the sink. checkpoint: a folder.
    """
    job: dict[str, Any] = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kinesis_ds integration writer")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    results = [_run(spark, query) for query in job["queries"]]
    spark.stop()
    Path(job["result"]).write_text(json.dumps(results))


def _run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    error, batches = None, 0
    try:
        query = (
            spark.readStream.schema(job["schema"])
            .option("maxFilesPerTrigger", 2)
            .json(job["source"])
            .selectExpr(*job["columns"])
            .writeStream.format("kinesis")
            .options(**job["options"])
            .option("checkpointLocation", job["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = len([p for p in query.recentProgress if p["numInputRows"] > 0])
    except Exception as exc:
        error = str(exc)
    return {"error": error, "seconds": time.monotonic() - started, "batches": batches}


if __name__ == "__main__":
    main()
