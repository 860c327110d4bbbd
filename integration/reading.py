"""Reading queries as processes, and the exact account of what they delivered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from devtools.waiting import wait_until

ROOT = Path(__file__).parents[1]


class ReaderJob:
    """A reading query in a process group of its own. Use as a context manager: it is always killed.

    Args:
        folder: Output, checkpoint and log live here, and are shared by the runs of one query.
        options: Options of the source.
    """

    def __init__(self, folder: Path, options: dict[str, str], **settings: Any) -> None:
        self.out = folder / "out"
        self.statistics_dir = folder / "statistics"
        self._folder = folder
        self._job = {
            "out": str(self.out),
            "checkpoint": str(folder / "checkpoint"),
            "options": {"diagnosticsDirectory": str(self.statistics_dir), **options},
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ReaderJob:
        log = (self._folder / "reader.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration.jobs.reader", json.dumps(self._job)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        log.close()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL driver, JVM and Python workers, all at once, and wait until they are gone."""
        if self._process is None:
            return
        members = self._members()
        for member in members:
            try:
                os.kill(member.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(30)
        psutil.wait_procs(members, timeout=30)
        self._process = None

    def check_alive(self) -> None:
        """Fail with the end of the log if the query has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"the reading query ended:\n{self.log_tail()}"

    def log_tail(self) -> str:
        return (self._folder / "reader.log").read_text(errors="replace")[-4000:]

    def wait_for(self, condition: Any, what: str, within_s: float = 300.0) -> Any:
        """Poll a condition while the query lives."""

        def look() -> Any:
            value = condition()
            if not value:
                self.check_alive()
            return value

        return wait_until(look, what=what, within_s=within_s)

    def statistics(self) -> dict[str, Any]:
        """The newest counters of the source, empty before the first."""
        files = sorted(self.statistics_dir.glob("source-*.json"), key=lambda p: p.stat().st_mtime)
        return json.loads(files[-1].read_text()) if files else {}

    def _members(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            leader = psutil.Process(self._process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


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
