"""A query of which Spark runs the slowest task twice, on a small cluster of its own: Spark copies
no task to the host that runs it, so two workers are on this machine by different names.

``python -m tests.spark.speculating '{"options": {...}, "folder": ..., "count": ..., "told": ...}'``

Started under ``devtools/supervisor.py``, which ends the cluster whatever happens.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

_HOST = "127.0.0.1"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": _HOST,
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}


def main() -> None:
    """Read until there are so many records; write them, and how many copies ran, to ``told``."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    folder, enough = Path(job["folder"]), threading.Event()
    builder = SparkSession.builder.master(_cluster(folder))
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    # The executors' Python finds this checkout by itself.
    spark = builder.config("spark.executorEnv.PYTHONPATH", os.getcwd()).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    @udf(returnType="string", useArrow=False)
    def slow_at_first(data: bytes) -> str:
        context = TaskContext.get()
        assert context is not None
        copied = folder / f"copied-{context.stageId()}"
        if context.partitionId() == 1:
            if context.attemptNumber():
                copied.touch()
            while not copied.exists():
                threading.Event().wait(0.05)
        return bytes(data).decode()

    numbers: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        del number
        if batch.rdd.getNumPartitions() > 1:
            rows = batch.select(slow_at_first("data").alias("number")).collect()
        else:
            rows = batch.selectExpr("cast(data as string) number").collect()
        numbers.extend(int(row.number) for row in rows)
        if len(numbers) >= job["count"]:
            enough.set()

    query = (
        spark.readStream.format("kinesis")
        .options(**job["options"])
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        # So that every shard has been heard of when the first batch with records is planned.
        .trigger(processingTime="5 seconds")
        .start()
    )
    while not enough.wait(0.2):
        error = query.exception()
        if error is not None:
            raise error
    query.stop()
    spark.stop()
    copies = len(list(folder.glob("copied-*")))
    scratch = folder / "scratch"
    scratch.write_text(json.dumps({"numbers": numbers, "copies": copies}))
    scratch.rename(job["told"])  # whole, or not there


def _cluster(folder: Path) -> str:
    """Start a master and two workers; returns the master's URL. They connect when they are up."""
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://{_HOST}:{port}"
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    webui = ["--webui-port", "0"]
    commands = [
        ["org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", str(port), *webui],
        *(
            [
                "org.apache.spark.deploy.worker.Worker",
                *("--host", host, "--cores", "1", "--memory", "512m", *webui),
                *("--work-dir", str(folder / f"work-{host}"), master),
            ]
            for host in (_HOST, "localhost")
        ),
    ]
    for command in commands:
        with (folder / f"{command[0].rpartition('.')[2]}.log").open("ab") as log:
            subprocess.Popen(
                [spark_class, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SPARK_DAEMON_MEMORY": "256m"},
            )
    return master


if __name__ == "__main__":
    main()
