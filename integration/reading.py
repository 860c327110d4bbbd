"""Reading queries as processes, and the exact account of what they delivered."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.processes import SparkJob


class ReaderJob(SparkJob):
    """A reading query in processes of its own.

    Args:
        folder: Output, checkpoint and log live here, and are shared by the runs of one query.
        options: Options of the source.
    """

    def __init__(self, folder: Path, options: dict[str, str], **settings: Any) -> None:
        self.out = folder / "out"
        self.statistics_dir = folder / "statistics"
        job = {
            "out": str(self.out),
            "checkpoint": str(folder / "checkpoint"),
            "options": {"diagnosticsDirectory": str(self.statistics_dir), **options},
            **settings,
        }
        super().__init__("integration.jobs.reader", folder, job)

    def statistics(self) -> dict[str, Any]:
        """The newest counters of the source, empty before the first."""
        files = sorted(self.statistics_dir.glob("source-*.json"), key=lambda p: p.stat().st_mtime)
        return json.loads(files[-1].read_text()) if files else {}


@dataclass(frozen=True)
class Account:
    """What the batches hold, in batch order.

    Attributes:
        records: (shard, sequence number, data), in the order delivered.
        latencies_ms: Arrival to batch, per record.
    """

    records: list[tuple[str, int, str]]
    latencies_ms: list[int]
    batches: int
    replayed: int
    mismatches: list[str]

    def lost(self, written: set[str]) -> set[str]:
        return written - {data for _, _, data in self.records}

    def duplicated(self) -> dict[str, int]:
        return {d: n for d, n in Counter(data for _, _, data in self.records).items() if n > 1}

    def out_of_order(self) -> list[tuple[str, int, int]]:
        """Neighbours of one shard whose sequence numbers do not rise."""
        last: dict[str, int] = {}
        wrong = []
        for shard, sequence, _ in self.records:
            if shard in last and sequence <= last[shard]:
                wrong.append((shard, last[shard], sequence))
            last[shard] = sequence
        return wrong

    def check(self, written: set[str]) -> None:
        """Exactly the records written, once each, in shard order, and replays alike."""
        assert not self.mismatches
        assert len(self.lost(written)) == 0, sorted(self.lost(written))[:5]
        assert self.duplicated() == {}
        assert {data for _, _, data in self.records} == written
        assert self.out_of_order() == []


def account(out: Path) -> Account:
    """Read the files of the batches."""
    records, latencies = [], []
    files = sorted(out.glob("batch-*.json")) if out.exists() else []
    for path in files:
        for row in json.loads(path.read_text()):
            records.append((row["shard"], int(row["sequence"]), row["data"]))
            latencies.append(row["seen_ms"] - row["arrival_ms"])
    return Account(
        records,
        latencies,
        len(files),
        len(list(out.glob("replayed-*.json"))) if out.exists() else 0,
        [p.name for p in out.glob("mismatch-*.json")] if out.exists() else [],
    )


def percentile(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
