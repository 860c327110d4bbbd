"""The main job on whatever PySpark is installed: write with the sink, read with the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.waiting import wait_until
from integration.conftest import MakeStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300


@pytest.mark.spark
@pytest.mark.timeout(600)
# PySpark 4.0 leaves sockets of its gateway to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_the_sink_writes_the_source_reads(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """No register call; each row once, with its key, across a clean restart of the reading
    query.
    """
    stream = make_stream(shards=2)
    seen: dict[int, list[tuple[str, str]]] = {}

    def keep(batch: Any, batch_id: int) -> None:
        # By batch: one that was stopped before Spark committed it runs again after the restart.
        seen[batch_id] = [(bytes(r.data).decode(), r.partitionKey) for r in batch.collect()]

    def rows() -> list[tuple[str, str]]:
        return [row for batch in seen.values() for row in batch]

    def read_until(count: int) -> None:
        reading = (
            spark.readStream.format("kinesis")
            .options(streamName=stream, endpoint=endpoint, initialPosition="trim_horizon")
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "read"))
            .start()
        )
        try:
            wait_until(
                lambda: len(rows()) >= count or reading.exception(), what="rows", within_s=240
            )
            assert reading.exception() is None
        finally:
            reading.stop()

    writing = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .where(f"value < {ROWS}")
        .selectExpr("concat('row-', value) as data", "concat('key-', value % 10) as partitionKey")
        .writeStream.format("kinesis")
        .options(streamName=stream, endpoint=endpoint)
        .option("checkpointLocation", str(tmp_path / "write"))
        .trigger(once=True)
        .start()
    )
    assert writing.awaitTermination(240)

    read_until(ROWS)
    kinesis.put_record(StreamName=stream, Data=b"after", PartitionKey="key-x")
    read_until(ROWS + 1)
    expected = {(f"row-{i}", f"key-{i % 10}") for i in range(ROWS)} | {("after", "key-x")}
    assert sorted(rows()) == sorted(expected)
