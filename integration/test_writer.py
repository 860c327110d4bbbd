"""The sink in real queries: every row arrives once, and what cannot work says so at once."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.conftest import MakeStream
from integration.streams import everything_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Well under what kinesis-mock slows down at, and more than any bound set below.
ROWS = 3000
FILES = 4
# Only to end what hangs.
WITHIN_S = 240


def source_of(folder: Path, rows: int = ROWS) -> tuple[Path, list[str]]:
    """Files of rows with unique ids, two files a micro-batch; and the ids."""
    source = folder / "source"
    source.mkdir()
    ids = [f"{i}-{uuid.uuid4().hex}" for i in range(rows)]
    for part in range(FILES):
        lines = [json.dumps({"id": i, "key": i[-2:]}) for i in ids[part::FILES]]
        (source / f"{part}.json").write_text("\n".join(lines))
    return source, ids


def run(
    spark: SparkSession,
    folder: Path,
    options: dict[str, str],
    columns: Sequence[str] = ("id AS data", "key AS partitionKey"),
) -> int:
    """Write all rows of the source; returns in how many batches."""
    query = (
        spark.readStream.schema("id string, key string")
        .option("maxFilesPerTrigger", 2)
        .json(str(folder / "source"))
        .selectExpr(*columns)
        .writeStream.format("kinesis")
        .options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(WITHIN_S), "neither all rows nor an error"
    finally:
        query.stop()
    return len([p for p in query.recentProgress if p["numInputRows"] > 0])


def test_every_row_is_stored_once_with_its_key(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """3000 unique ids through small bounds, over two micro-batches and four shards."""
    stream = make_stream(shards=4)
    _, ids = source_of(tmp_path)
    options = {
        "streamName": stream,
        "endpoint": endpoint,
        "batchMaxRecords": "100",
        "maxInFlightRecords": "400",
        "maxInFlightRequests": "4",
        "diagnosticsDirectory": str(tmp_path / "statistics"),
    }

    assert run(spark, tmp_path, options) == 2

    records = everything_in(kinesis, stream)
    assert Counter(data for _, _, data in records) == Counter(ids)
    assert all(key == data[-2:] for _, key, data in records)
    assert len({shard for shard, _, _ in records}) == 4
    counters = [json.loads(p.read_text()) for p in (tmp_path / "statistics").glob("sink-*.json")]
    assert sum(c["delivered_records"] for c in counters) == ROWS
    assert all(c["in_flight_records"] == 0 for c in counters)


def test_rows_without_a_key_reach_every_shard(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Text or binary, with no key column at all: each shard gets about its part."""
    stream = make_stream(shards=4)
    _, ids = source_of(tmp_path, rows=2000)
    options = {"streamName": stream, "endpoint": endpoint}

    assert run(spark, tmp_path, options, ["CAST(id AS BINARY) AS data"]) == 2

    records = everything_in(kinesis, stream)
    assert Counter(data for _, _, data in records) == Counter(ids)
    assert all(400 <= n <= 600 for n in Counter(shard for shard, _, _ in records).values())
