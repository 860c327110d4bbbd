"""The job of the Spark engine: one query records the source, the other one writes to the sink.

``python -m integration.chaos.engine.spark_job '<JSON>'``. A query that failed is noted and started
again from its checkpoint, as a supervisor would do. SIGTERM stops both cleanly.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from examples.demo.session import die_with
from integration.chaos.engine.recording import AppendedLines, read_lines
from integration.chaos.engine.spark_sink import FOLDER_OPTION, RUN_OPTION, ChaosDataSource
from integration.chaos.payload import head_of, read_data

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

EVENTS_FILE = "events.jsonl"
RUNS_FILE = "runs.jsonl"
STILL_FILE = "still"


class Job:
    """Both queries, and their restarts."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._folder = Path(job["folder"])
        self._out = self._folder / "query" / "out"
        self._out.mkdir(parents=True, exist_ok=True)
        self._events = AppendedLines(self._folder / EVENTS_FILE)
        self._stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._spark = _session(self._folder)
        self._spark.dataSource.register(ChaosDataSource)

    def run(self) -> None:
        starts: dict[str, Callable[[], StreamingQuery]] = {
            "source": self._start_seeing,
            "sink": self._start_writing,
        }
        queries = {name: start() for name, start in starts.items()}
        self._events.add("started")
        while not self._stop.wait(0.05):
            for name, query in queries.items():
                if not query.isActive:
                    self._events.add("failed", name, str(query.exception()))
                    queries[name] = starts[name]()
        for query in queries.values():
            query.stop()
        self._spark.stop()

    def _read(self, name: str) -> DataFrame:
        options = dict(self._job["source"])
        options["consumerName"] += f"-{name}"
        options["diagnosticsDirectory"] += f"/{name}"
        return self._spark.readStream.format("kinesis").options(**options).load()

    def _start_seeing(self) -> StreamingQuery:
        checkpoint = str(self._folder / "checkpoint-source")
        query = self._read("source").writeStream.foreachBatch(self._keep)
        return query.option("checkpointLocation", checkpoint).start()

    def _start_writing(self) -> StreamingQuery:
        runs = self._folder / RUNS_FILE
        run = len(read_lines(runs))
        AppendedLines(runs).add(run)
        return (
            self._read("sink")
            .select("data", "partitionKey")
            .writeStream.format("kinesis_chaos")
            .options(**self._job["sink"])
            .option(FOLDER_OPTION, str(self._folder))
            .option(RUN_OPTION, str(run))
            .option("checkpointLocation", str(self._folder / "checkpoint-sink"))
            .start()
        )

    def _keep(self, batch: DataFrame, number: int) -> None:
        rows = []
        for row in batch.collect():
            whole = read_data(bytes(row.data))
            kept = head_of(bytes(row.data)).hex() if whole and whole.key == row.partitionKey else ""
            rows.append([row.shardId, row.sequenceNumber, row.partitionKey, kept])
        self._store(number, rows)
        still = self._folder / STILL_FILE
        while still.exists() and time.time() < float(still.read_text() or 0):
            time.sleep(0.05)

    def _store(self, number: int, rows: list[list[str | None]]) -> None:
        path = self._out / str(number)
        if path.exists():
            self._events.add("rerun", number)
            if orjson.loads(path.read_bytes()) != rows:
                self._events.add("changed", f"batch {number} held other records when run again")
        scratch = self._folder / "query" / f".{number}"
        scratch.write_bytes(orjson.dumps(rows))
        scratch.rename(path)


def _session(folder: Path) -> SparkSession:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    spark = (
        # Two cores, and four attempts a task as on a cluster.
        SparkSession.builder.master("local[2,4]")
        .appName("kinesis_ds chaos")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
        )
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    return spark


if __name__ == "__main__":
    settings: dict[str, Any] = json.loads(sys.argv[1])
    die_with(settings["conductor"])
    Job(settings).run()
