"""Format the counters of a source as a table with one line per shard.

Run as a program it reads the folder of the option ``diagnosticsDirectory``::

    python -m kinesis_ds.observe /tmp/kinesis-counters          # what is there now
    python -m kinesis_ds.observe /tmp/kinesis-counters --watch  # again and again, until Ctrl-C

A running query shows the same table with :class:`kinesis_ds.ShardTableListener`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_HEADER = (
    "shard", "state", "behind", "records", "received", "held", "blocked", "renewals", "errors",
)  # fmt: skip
# Spark's progress of a query has the counters of at most so many shards: those furthest behind.
MAX_REPORTED_SHARDS = 50
_WATCH_S = 1.0


def reported(shards: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counters for Spark's progress, of the shards that are furthest behind."""
    last = sorted(shards, key=lambda s: (-int(shards[s]["millis_behind"]), s))
    return {
        name: {
            "state": shards[name]["state"],
            "msBehindLatest": shards[name]["millis_behind"],
            "msBehindEstimated": shards[name].get("millis_behind_estimated", False),
            "records": shards[name]["records"],
            "bytes": shards[name]["bytes"],
            "bufferedBytes": shards[name]["held_bytes"],
            "backPressureMs": int(shards[name]["back_pressure_s"] * 1000),
            "renewals": shards[name]["renewals"],
            "errors": sum(shards[name]["errors"].values()),
            "available": shards[name]["available"],
        }
        for name in last[:MAX_REPORTED_SHARDS]
    }


def shard_table(shards: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """Return a table of what :func:`reported` returned, sorted by the name of the shard."""
    rows = [
        (
            name,
            str(c.get("state", "?")),
            _about(c) + _seconds(c.get("msBehindLatest", 0)),
            f"{c.get('records', 0):,}",
            _size(c.get("bytes", 0)),
            _size(c.get("bufferedBytes", 0)),
            _seconds(c.get("backPressureMs", 0)),
            str(c.get("renewals", 0)),
            str(c.get("errors", 0)),
        )
        for name, c in sorted(shards.items())
    ]
    return "\n".join([title, *_aligned([_HEADER, *rows])])


def progress_table(progress: Mapping[str, Any]) -> str | None:
    """Return the table for a query's progress; None if the query does not read Kinesis.

    Args:
        progress: The JSON of Spark's ``StreamingQueryProgress``, parsed.
    """
    tables = []
    for source in progress.get("sources", ()):
        latest = _parsed(source.get("latestOffset"))
        lag, shards = latest.get("lag"), latest.get("counters")
        if not isinstance(lag, dict) or not isinstance(shards, dict):
            continue
        most, average = (_seconds(lag.get(f"{which}MsBehindLatest")) for which in ("max", "avg"))
        title = (
            f"kinesis batch {progress.get('batchId')}: {source.get('numInputRows', 0)} records, "
            f"{lag.get('shards', 0)} open shards, behind by {most} at most, {average} on average"
            f"{_estimated(lag)}, {_size(lag.get('bufferedBytes'))} buffered{_missed(latest)}"
        )
        tables.append(shard_table(shards, title))
    return "\n".join(tables) or None


def directory_table(folder: Path) -> str:
    """Return a table for each source that writes its counters into a folder."""
    tables = []
    for path in sorted(folder.glob("source-*.json")):
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # removed or damaged meanwhile; the others are worth seeing
        pool = found.get("pool", {})
        title = (
            f"{found.get('stream')} (process {found.get('pid')}): "
            f"{_size(pool.get('used_bytes', 0))} of {_size(pool.get('limit_bytes', 0))} buffered, "
            f"{pool.get('waiting', 0)} shards wait for room{_missed(found)}"
        )
        tables.append(shard_table(reported(found.get("shards", {})), title))
    return "\n\n".join(tables) or f"no source writes counters into {folder}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m kinesis_ds.observe",
        description="Shows the counters that sources write into diagnosticsDirectory.",
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    args = parser.parse_args(argv)
    try:
        while True:
            sys.stdout.write(directory_table(args.directory) + "\n")
            sys.stdout.flush()
            if not args.watch:
                return 0
            time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        return 0


def _missed(found: Mapping[str, Any]) -> str:
    missed = sum(found.get("ranges", {}).get("fallbacks", {}).values())
    return f", {missed} ranges not from the agent" if missed else ""


def _parsed(text: object) -> dict[str, Any]:
    """Parse an offset, which Spark passes on as text or as a dictionary."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return {}
    return text if isinstance(text, dict) else {}


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _about(counters: Mapping[str, Any]) -> str:
    return "~" if counters.get("msBehindEstimated") else ""


def _estimated(lag: Mapping[str, Any]) -> str:
    silent = lag.get("estimatedShards")
    return f" (estimated for {silent} shards that nothing comes of)" if silent else ""


def _seconds(ms: Any) -> str:
    return f"{(ms or 0) / 1000:.1f}s"


def _size(nbytes: Any) -> str:
    size = float(nbytes or 0)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"
