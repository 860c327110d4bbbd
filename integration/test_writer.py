"""The sink in real queries: every row arrives once, and what cannot work says so at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import MakeStream
from integration.streams import everything_in

ROOT = Path(__file__).parents[1]
SCHEMA = "id string, key string"
COLUMNS = ["id AS data", "key AS partitionKey"]
# Well under what kinesis-mock slows down at, and more than any bound set below.
ROWS = 3000
FILES = 4
# Far above the 1 to 14 s that it takes on an idle machine, far below a hang: two cores may be
# shared by many. The exact bounds are tested in tests/unit/writer/test_stream.py.
SOON_S = 90.0


def source_of(folder: Path, rows: int = ROWS) -> tuple[Path, list[str]]:
    """Files of rows with unique ids, two files a micro-batch; and the ids."""
    source = folder / "source"
    source.mkdir()
    ids = [f"{i}-{uuid.uuid4().hex}" for i in range(rows)]
    for part in range(FILES):
        lines = [json.dumps({"id": i, "key": i[-2:]}) for i in ids[part::FILES]]
        (source / f"{part}.json").write_text("\n".join(lines))
    return source, ids


def query(folder: Path, name: str, options: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "source": str(folder / "source"),
        "schema": SCHEMA,
        "columns": COLUMNS,
        "options": options,
        "checkpoint": str(folder / f"checkpoint-{name}"),
        **more,
    }


def run(folder: Path, *queries: dict[str, Any], env: dict[str, str] | None = None) -> list[Any]:
    """Run the queries in one Spark; what became of each."""
    result = folder / "result.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "integration.jobs.writer"),
            json.dumps({"result": str(result), "queries": queries}),
        ],
        cwd=ROOT,
        env={
            **(os.environ if env is None else env),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return list(json.loads(result.read_text()))


@pytest.mark.timeout(180)
def test_every_row_is_stored_once_with_its_key(
    endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
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

    (outcome,) = run(tmp_path, query(tmp_path, "ok", options))

    assert outcome["error"] is None
    assert outcome["batches"] == 2
    records = everything_in(kinesis, stream)
    assert Counter(data for _, _, data in records) == Counter(ids)
    assert all(key == data[-2:] for _, key, data in records)
    assert len({shard for shard, _, _ in records}) == 4
    counters = [json.loads(p.read_text()) for p in (tmp_path / "statistics").glob("sink-*.json")]
    assert sum(c["delivered_records"] for c in counters) == ROWS
    assert all(c["in_flight_records"] == 0 for c in counters)


@pytest.mark.timeout(180)
def test_rows_without_a_key_reach_every_shard(
    endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Text or binary, with no key column at all: each shard gets about its part."""
    stream = make_stream(shards=4)
    _, ids = source_of(tmp_path, rows=2000)
    options = {"streamName": stream, "endpoint": endpoint}

    (outcome,) = run(
        tmp_path, query(tmp_path, "ok", options, columns=["CAST(id AS BINARY) AS data"])
    )

    assert outcome["error"] is None
    records = everything_in(kinesis, stream)
    assert Counter(data for _, _, data in records) == Counter(ids)
    assert all(400 <= n <= 600 for n in Counter(shard for shard, _, _ in records).values())


@pytest.fixture(scope="module")
def failures(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What becomes of queries that cannot work, each tried once."""
    folder = tmp_path_factory.mktemp("failures")
    source_of(folder, rows=100)
    good = {"streamName": "no-such-stream", "endpoint": endpoint}
    queries = {
        # The first query pays for the start of Spark and of its Python workers.
        "first": query(folder, "first", good),
        "stream": query(folder, "stream", good),
        "option": query(folder, "option", {**good, "maxInFlightRecord": "5"}),
        "schema": query(folder, "schema", good, columns=["CAST(key AS INT) AS data", "id AS name"]),
        "endpoint": query(folder, "endpoint", {**good, "endpoint": "http://127.0.0.1:9"}),
    }
    return dict(zip(queries, run(folder, *queries.values()), strict=True))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("stream", ["KINESIS_STREAM_NOT_FOUND", "no-such-stream", "Check the name"]),
        ("option", ["KINESIS_OPTIONS", "did you mean maxInFlightRecords"]),
        ("schema", ["KINESIS_SCHEMA", "column data is int", "column name is not one of"]),
        ("endpoint", ["KINESIS_TRANSIENT", "http://127.0.0.1:9", "Is the endpoint right"]),
    ],
)
def test_what_cannot_work_is_one_clear_error_soon(
    failures: dict[str, dict[str, Any]], what: str, said: list[str]
) -> None:
    """The error names the thing and the remedy, and comes before anybody wonders."""
    outcome = failures[what]

    assert outcome["error"] is not None
    for words in said:
        assert words in outcome["error"]
    assert outcome["error"].count('File "') <= 5, "a stack instead of a message"
    assert outcome["seconds"] < SOON_S


@pytest.mark.timeout(180)
def test_missing_credentials_are_named(endpoint: str, tmp_path: Path) -> None:
    """An environment without any: no hang, and the options that would help."""
    source_of(tmp_path, rows=100)
    bare = {k: v for k, v in os.environ.items() if "ACCESS_KEY" not in k}

    (outcome,) = run(
        tmp_path, query(tmp_path, "x", {"streamName": "s", "endpoint": endpoint}), env=bare
    )

    assert "KINESIS_ACCESS" in outcome["error"]
    assert "awsAccessKey" in outcome["error"]
    assert outcome["seconds"] < SOON_S
