"""A sink that blocks: the source's memory stays flat while producers go on, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from integration.conftest import MakeStream
from integration.reading import ReaderQuery, account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1024 * 1024
BUFFER = 8 * MIB
RECORD = 10_000
# 16 MB: twice the bound, and few enough records (and subscriptions) for the server.
RECORDS = 1_600
# What the process may need beyond the bound: one event under way as text and as decoded objects
# (this server puts up to 10 MB into one), socket buffers, and what the allocator keeps.
CONSTANT = 96 * MIB


@pytest.mark.timeout(600)
def test_a_blocked_sink_holds_memory_flat_while_the_producer_runs_on(
    spark: SparkSession,
    endpoint: str,
    kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
    record_property: Any,
) -> None:
    """Twice the buffer is written while the sink stands still; then everything arrives, once."""
    stream = make_stream(shards=4)
    gate = tmp_path / "gate"
    options = {
        "streamName": stream,
        "endpoint": endpoint,
        "initialPosition": "trim_horizon",
        "fetchBufferSize": "8mb",
        "subscriptionIdleTimeout": "5s",
    }
    filler = "x" * (RECORD - 16)
    written: set[str] = set()

    def write(count: int) -> None:
        for _ in range(count // 100):
            ids = [f"{len(written) + i:015d}-{filler}" for i in range(100)]
            answer = kinesis.put_records(
                StreamName=stream,
                Records=[{"Data": i.encode(), "PartitionKey": i[:15]} for i in ids],
            )
            assert answer["FailedRecordCount"] == 0
            written.update(ids)

    with ReaderQuery(spark, tmp_path, options, gate=str(gate)) as job:
        write(100)
        job.wait_for(lambda: len(account(job.out).records) == 100, "the first records", 300)
        process = psutil.Process(job.wait_for(job.statistics, "statistics", 30)["pid"])
        gate.touch()
        before = process.memory_info().rss
        peak = before
        while len(written) < RECORDS:
            write(100)
            peak = max(peak, process.memory_info().rss)
        full = job.wait_for(
            lambda: s if (s := job.statistics())["pool"]["waiting"] and _parked(s) else None,
            "a full buffer and subscriptions given back",
        )
        peak = max(peak, process.memory_info().rss)
        held = full["pool"]["used_bytes"]
        gate.unlink()
        job.wait_for(lambda: len(account(job.out).records) >= len(written), "all records", 300)
        peak_bytes = job.statistics()["pool"]["peak_bytes"]

    account(tmp_path / "out").check(written)
    record_property("rss_before_mib", before // MIB)
    record_property("rss_growth_mib", (peak - before) // MIB)
    record_property("pool_peak_mib", peak_bytes // MIB)
    record_property("pool_held_mib", held // MIB)
    assert peak - before < BUFFER + CONSTANT
    assert os.path.exists(tmp_path / "checkpoint")


def _parked(statistics: dict[str, Any]) -> bool:
    return any(s["state"] == "parked" for s in statistics["shards"].values())
