"""Reading queries, in processes of their own or not, and the exact account of what they gave."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from devtools.waiting import wait_until
from integration.jobs.reader import start
from integration.processes import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class _Reading:
    """A run of a reading query: see ``integration/jobs/reader.py`` for what it keeps.

    Args:
        folder: Output, checkpoint and log live here, and are shared by the runs of one query.
        options: Options of the source.
    """

    def __init__(self, folder: Path, options: dict[str, str], **settings: Any) -> None:
        self.out = folder / "out"
        self.statistics_dir = folder / "statistics"
        self.job = {
            "out": str(self.out),
            "checkpoint": str(folder / "checkpoint"),
            "options": {"diagnosticsDirectory": str(self.statistics_dir), **options},
            **settings,
        }

    def statistics(self) -> dict[str, Any]:
        """Return the newest counters of the source, empty before the first."""
        files = sorted(self.statistics_dir.glob("source-*.json"), key=lambda p: p.stat().st_mtime)
        return json.loads(files[-1].read_text()) if files else {}


class ReaderJob(_Reading, SparkJob):
    """A run in processes of its own, for tests that kill it."""

    def __init__(self, folder: Path, options: dict[str, str], **settings: Any) -> None:
        _Reading.__init__(self, folder, options, **settings)
        SparkJob.__init__(self, "integration.jobs.reader", folder, self.job)


class ReaderQuery(_Reading):
    """A run in the session that the tests share, stopped at the end of the block."""

    def __init__(
        self, spark: SparkSession, folder: Path, options: dict[str, str], **settings: Any
    ) -> None:
        super().__init__(folder, options, **settings)
        self._spark = spark

    def __enter__(self) -> ReaderQuery:
        self._query = start(self._spark, self.job)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if "gate" in self.job:
            Path(self.job["gate"]).unlink(missing_ok=True)
        self._query.stop()

    def check_alive(self) -> None:
        """Fail if the query has ended by itself."""
        assert self._query.isActive, str(self._query.exception())

    def wait_for(self, condition: Callable[[], T], what: str, within_s: float = 300.0) -> T:
        """Poll a condition while the query lives."""

        def look() -> T:
            value = condition()
            if not value:
                self.check_alive()
            return value

        return wait_until(look, what=what, within_s=within_s)


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
        for row in _rows(path, path.stat().st_mtime_ns):
            records.append((row["shard"], int(row["sequence"]), row["data"]))
            latencies.append(row["seen_ms"] - row["arrival_ms"])
    return Account(
        records,
        latencies,
        len(files),
        len(list(out.glob("replayed-*.json"))) if out.exists() else 0,
        [p.name for p in out.glob("mismatch-*.json")] if out.exists() else [],
    )


@lru_cache(maxsize=1_000)  # a test looks many times
def _rows(path: Path, written_ns: int) -> list[dict[str, Any]]:
    del written_ns  # a file of a batch is replaced whole
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def percentile(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
