"""A query of real Spark whose shards are read by two processes beside the source's."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kinesis_ds.testing import KinesisServer
from tests.spark.conftest import STREAM, Serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

WITHIN_S = 240.0


def eventually(look: Callable[[], object], what: str) -> None:
    """Spark has no call that waits for a batch with records."""
    deadline = time.monotonic() + WITHIN_S
    while not look():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g}s: {what}"
        time.sleep(0.05)


def put(kinesis: KinesisServer, ids: range) -> None:
    kinesis.put(STREAM, *[b"%d" % i for i in ids], partition_key=lambda data: f"key{int(data)}")


def gone(pid: int) -> bool:
    """Whether a process is dead, buried or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_two_processes_read_one_dies_and_none_is_left(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """Each record once, whoever held it; stopping the query ends them."""
    kinesis = serve(shards=4)
    read: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        del number
        read.extend(int(row.data) for row in batch.select("data").collect())

    def counters() -> dict[str, Any]:
        files = list((tmp_path / "counters").glob("source-*.json"))
        return json.loads(files[0].read_text()) if files else {}

    put(kinesis, range(1000))
    frame = (
        spark.readStream.format("kinesis")
        .options(
            **kinesis.options(STREAM),
            initialPosition="earliest",
            agentProcesses="2",
            diagnosticsDirectory=str(tmp_path / "counters"),
        )
        .load()
    )
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        eventually(lambda: len(read) >= 1000 or not query.isActive, "the first 1000")
        eventually(
            lambda: len({c["process"] for c in counters().get("shards", {}).values()}) == 2,
            "both have told their counters",
        )
        first = counters()["processes"]
        os.kill(first[0]["pid"], signal.SIGKILL)
        put(kinesis, range(1000, 2000))
        eventually(lambda: len(read) >= 2000 or not query.isActive, "the second 1000")
        eventually(lambda: counters()["processes"][0]["starts"] == 2, "it was started again")
        pids = [p["pid"] for p in (*first, *counters()["processes"])]
    finally:
        query.stop()

    assert query.exception() is None
    assert sorted(read) == list(range(2000))
    eventually(lambda: all(map(gone, pids)), "no process is left")
    eventually(lambda: not kinesis.subscriptions(), "no subscription is left")
