"""The table of shards: from a query's progress, and from files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_ds import ShardTableListener
from kinesis_ds.observe.table import (
    MAX_REPORTED_SHARDS,
    directory_table,
    main,
    progress_table,
    reported,
)


def counters(**changes: Any) -> dict[str, Any]:
    return {
        "state": "streaming",
        "millis_behind": 0,
        "records": 1234,
        "bytes": 5 * 1024 * 1024,
        "held_bytes": 2048,
        "back_pressure_s": 1.25,
        "renewals": 2,
        "errors": {"ThrottlingException": 3, "TransientError": 1},
        "available": "AFTER:5",
        **changes,
    }


def progress(**source: Any) -> dict[str, Any]:
    latest = {
        "v": 2,
        "streams": {},
        "lag": {"shards": 1, "maxMsBehindLatest": 1500, "avgMsBehindLatest": 700},
        "counters": reported({"shardId-0": counters(millis_behind=1500)}),
    }
    return {"batchId": 7, "sources": [{"numInputRows": 9, "latestOffset": latest, **source}]}


def test_the_furthest_behind_are_reported() -> None:
    """Spark's progress does not grow with the stream."""
    shards = {f"s{i:03}": counters(millis_behind=i) for i in range(MAX_REPORTED_SHARDS + 10)}

    found = reported(shards)
    assert len(found) == MAX_REPORTED_SHARDS
    assert min(c["msBehindLatest"] for c in found.values()) == 10
    assert found["s059"] == {
        "state": "streaming",
        "msBehindLatest": 59,
        "msBehindEstimated": False,
        "records": 1234,
        "bytes": 5 * 1024 * 1024,
        "bufferedBytes": 2048,
        "backPressureMs": 1250,
        "renewals": 2,
        "errors": 4,
        "available": "AFTER:5",
    }


@pytest.mark.parametrize("as_text", [True, False])
def test_the_progress_of_a_query_is_a_table(as_text: bool) -> None:
    """Whether Spark hands the offset on as text or as what it holds."""
    found = progress()
    if as_text:
        source = found["sources"][0]
        source["latestOffset"] = json.dumps(source["latestOffset"])
    table = progress_table(found)

    assert table is not None
    title, header, line = table.splitlines()
    assert title.startswith("kinesis batch 7: 9 records, 1 open shards, behind by 1.5s at most")
    assert header.split() == [
        "shard", "state", "behind", "records", "received", "held", "blocked", "renewals", "errors",
    ]  # fmt: skip
    assert line.split("  ")[0] == "shardId-0"
    assert line.split()[1:] == [
        "streaming",
        "1.5s",
        "1,234",
        "5.0",
        "MB",
        "2.0",
        "KB",
        "1.2s",
        "2",
        "4",
    ]


@pytest.mark.parametrize(
    "other",
    [{}, {"sources": []}, progress(latestOffset=None), progress(latestOffset="not JSON"),
     progress(latestOffset="[1]"), progress(latestOffset={"v": 2})],
)  # fmt: skip
def test_other_sources_have_no_table(other: dict[str, Any]) -> None:
    """A listener hears of every query of a session."""
    assert progress_table(other) is None


def test_the_listener_writes_a_table_a_batch() -> None:
    """And nothing for other sources."""
    out = io.StringIO()
    listener = ShardTableListener(out)
    for told in (progress(), {"sources": []}):
        event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(told)))
        listener.onQueryProgress(event)

    assert out.getvalue().count("kinesis batch") == 1
    assert out.getvalue().endswith("\n")


def test_files_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The counters of every source that writes there; damaged files are passed over."""
    (tmp_path / "source-1.json").write_text(
        json.dumps(
            {
                "stream": "orders",
                "pid": 1,
                "pool": {"used_bytes": 2048, "limit_bytes": 1 << 28, "waiting": 3},
                "shards": {"shardId-0": counters()},
            }
        )
    )
    (tmp_path / "source-2.json").write_text("{")
    (tmp_path / "sink-3.json").write_text("{}")

    assert main([str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("orders (process 1): 2.0 KB of 256.0 MB buffered, 3 shards wait")
    assert "shardId-0  streaming" in shown
    assert directory_table(tmp_path / "none").startswith("no source writes counters into")
