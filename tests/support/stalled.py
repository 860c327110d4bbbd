"""A process whose sink is stalled: it reads a batch, and for a time commits none.

    python -m tests.support.stalled '{"options": {...}, "stall_s": 20, "records": 100000}'

It calls the stream reader as Spark does; tasks run in another process. It prints lines of JSON: one
for each look at itself (``at``, ``rss``, ``held``, ``received``, ``states``), and at the end one
with what was read from each shard (``read``), when ``records`` were read from each.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import psutil

from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.reader.stream import KinesisStreamReader

# Seconds between two looks.
LOOK_S = 0.5


class Stalled:
    """One run. Lost, repeated and unordered records are an error."""

    def __init__(self, options: dict[str, str]) -> None:
        self.read: dict[str, int] = {}
        self._reader = KinesisStreamReader(parse_read_options(options))
        self._process = psutil.Process()
        self._tasks = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        start = self._reader.initialOffset()
        self._at = self._reader.latestOffset(start)
        self._reader.partitions(start, self._at)

    def look(self) -> None:
        """Print the state of this process."""
        coordinator = self._reader._coordinator
        assert coordinator is not None
        said = coordinator.statistics()
        shards = said.get("shards", {}).values()
        found = {
            "at": time.monotonic(),
            "rss": self._process.memory_info().rss,
            "held": said["pool"]["used_bytes"] if "pool" in said else 0,
            "peak": said["pool"]["peak_bytes"] if "pool" in said else 0,
            "received": sum(shard["bytes"] for shard in shards),
            "states": sorted({shard["state"] for shard in shards}),
        }
        _say(found)

    def batch(self, stall_s: float = 0.0) -> None:
        """Plan a batch, read it, wait for ``stall_s``, read it again, and commit it."""
        end = self._reader.latestOffset(self._at)
        if end == self._at:
            time.sleep(LOOK_S / 10)
            return
        planned = self._reader.partitions(self._at, end)
        task = self._tasks.submit(_read, self._reader, planned)
        if stall_s:
            task.result()
            over = time.monotonic() + stall_s
            while time.monotonic() < over:
                self.look()
                time.sleep(LOOK_S)
            task = self._tasks.submit(_read, self._reader, planned)
        for shard, numbers in task.result().items():
            first = self.read.get(shard, 0)
            assert numbers == list(range(first, first + len(numbers))), shard
            self.read[shard] = first + len(numbers)
        self._reader.commit(end)
        self._at = end

    def close(self) -> None:
        self._tasks.shutdown()
        self._reader.stop()


def _read(reader: KinesisStreamReader, planned: Any) -> dict[str, list[int]]:
    """Return the numbers of the records of a batch, by shard."""
    found: dict[str, list[int]] = {}
    for partition in planned:
        for batch in reader.read(partition):
            shards, data = (batch.column(name).to_pylist() for name in ("shardId", "data"))
            for shard, item in zip(shards, data, strict=True):
                found.setdefault(shard, []).append(int(item[:12].rstrip(b".")))
    return found


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    told = json.loads(sys.argv[1])
    stalled = Stalled(told["options"])
    try:
        stalled.look()
        while not stalled.read:
            stalled.batch(told["stall_s"])
        stalled.look()
        while min(stalled.read.values()) < told["records"]:
            stalled.batch()
        stalled.look()
        _say({"read": stalled.read})
    finally:
        stalled.close()


if __name__ == "__main__":
    main()
