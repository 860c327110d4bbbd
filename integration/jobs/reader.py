"""A reading query, Kinesis to one file a batch; in a process of its own, for a test that kills it.

``python -m integration.jobs.reader '{"out": ..., "checkpoint": ..., "options": {...}, ...}'``

Each batch is written whole to ``<out>/batch-<id>.json`` under a temporary name and renamed: a batch
that Spark runs again finds its own file, and what it reads then must be the same records. If it is
not, ``<out>/mismatch-<id>.json`` says so.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.session import small_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def main() -> None:
    """Run until killed or stopped; see :func:`start` for the keys of the argument."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    folder = str(Path(job["checkpoint"]).parent)
    start(small_spark("kinesis_ds integration reader", folder), job).awaitTermination()


def start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start the query. Keys of the job:

    out, checkpoint: folders. options: of the source. hang_at: the batch id at which to hang for
    ever after its file is written, before Spark commits it. gate: a file; while it exists, batches
    wait.
    """
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, batch_id: int) -> None:
        rows = [
            {
                "data": bytes(row.data).decode(errors="replace") if row.data is not None else None,
                "key": row.partitionKey,
                "shard": row.shardId,
                "sequence": row.sequenceNumber,
                "arrival_ms": round(row.approximateArrivalTimestamp.timestamp() * 1000),
                "seen_ms": round(time.time() * 1000),
            }
            for row in batch.collect()
        ]
        if rows:
            _write(out, batch_id, rows)
        gate = Path(job.get("gate") or "/nonexistent")
        if batch_id == job.get("hang_at"):
            threading.Event().wait()
        while gate.exists():
            threading.Event().wait(0.05)

    return (
        spark.readStream.format("kinesis")
        .options(**job["options"])
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", job["checkpoint"])
        .start()
    )


def _write(out: Path, batch_id: int, rows: list[dict[str, Any]]) -> None:
    path = out / f"batch-{batch_id:06d}.json"
    if path.exists():
        before = [(r["shard"], r["sequence"], r["data"]) for r in json.loads(path.read_text())]
        now = [(r["shard"], r["sequence"], r["data"]) for r in rows]
        (out / f"replayed-{batch_id:06d}.json").write_text(json.dumps(len(now)))
        if before != now:
            (out / f"mismatch-{batch_id:06d}.json").write_text(json.dumps([before, now]))
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(rows))
    scratch.replace(path)


if __name__ == "__main__":
    main()
