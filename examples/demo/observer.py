"""What is going on in a run, put together from what the jobs leave on disk.

The connector writes counters once a second (option `diagnosticsDirectory`), and the reading job its
batches. Nothing here asks the jobs anything, so nothing here can hold them up.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from examples.demo.batches import BatchFolder, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from examples.demo.stream import ShardInfo

# Counters and batches come in gusts, so rates are taken over this long.
_RATE_WINDOW_S = 5.0
# Counters are written once a second; older ones are those of a process that is gone.
_STALE_AFTER_S = 3.5


@dataclass(frozen=True)
class SinkView:
    """The writing side now, over all its worker processes."""

    delivered: int = 0
    in_flight_records: int = 0
    in_flight_requests: int = 0
    limit_records: int = 0
    retried: int = 0


@dataclass(frozen=True)
class ShardView:
    """One shard now.

    Attributes:
        state: Of its subscription, or why there is none.
        behind: About how many records are in the stream and not delivered yet; None for a closed
            shard, whose keys have moved on.
        buffered_bytes: What the reader holds of it.
    """

    info: ShardInfo
    state: str
    read: int
    behind: int | None
    millis_behind: int | None
    buffered_bytes: int


@dataclass(frozen=True)
class Snapshot:
    """A moment of a run. Rates are records a second over the last few seconds."""

    written: int
    written_per_s: float
    read: int
    read_per_s: float
    batches: int
    sink: SinkView
    buffered_bytes: int
    buffer_limit_bytes: int
    reader_pid: int | None
    shards: tuple[ShardView, ...]


class Observer:
    """Looks at a run again and again. Cheap: a batch's file is read once.

    Args:
        writer, reader: Folders of the jobs' counters.
        keys: How many partition keys there are; event n has key n mod this.
    """

    def __init__(self, writer: Path, reader: Path, batches: BatchFolder, keys: int) -> None:
        self.peak_rss = 0
        self._writer = writer
        self._reader = reader
        self._batches = batches
        self._known: dict[Path, tuple[int, Counter[tuple[str, str]]]] = {}
        self._history: deque[tuple[float, int, int]] = deque()
        self._keys = [f"key-{number:03d}" for number in range(keys)]
        self._hashes = [_hash_of(key) for key in self._keys]

    def look(self, shards: Sequence[ShardInfo]) -> Snapshot:
        """Everything as of now, for these shards of the stream."""
        sink = self._sink()
        source = self._source()
        delivered = self._delivered()
        read = delivered.total()
        written_per_s, read_per_s = self._rates(sink.delivered, read)
        pool = source.get("pool", {})
        return Snapshot(
            written=sink.delivered,
            written_per_s=written_per_s,
            read=read,
            read_per_s=read_per_s,
            batches=len(self._known),
            sink=sink,
            buffered_bytes=pool.get("used_bytes", 0),
            buffer_limit_bytes=pool.get("limit_bytes", 0),
            reader_pid=source.get("pid"),
            shards=tuple(self._shards(shards, sink.delivered, source, delivered)),
        )

    def newest_batch(self) -> Path | None:
        """The file of the batch with the highest id."""
        files = self._batches.files()
        return files[-1] if files else None

    def _sink(self) -> SinkView:
        views = _read_all(self._writer, "sink")
        now = time.time()
        live = [v for v in views if now - v["at"] < _STALE_AFTER_S]
        return SinkView(
            delivered=sum(v["delivered_records"] for v in views),
            in_flight_records=sum(v["in_flight_records"] for v in live),
            in_flight_requests=sum(v["in_flight_requests"] for v in live),
            limit_records=max((v["limit_records"] for v in views), default=0),
            retried=sum(v["retried_records"] for v in views),
        )

    def _source(self) -> dict[str, Any]:
        """The counters of the reading process that is alive; empty when none is."""
        views = _read_all(self._reader, "source")
        newest = max(views, key=lambda view: float(view["at"]), default={})
        if not newest or time.time() - newest["at"] > _STALE_AFTER_S:
            return {}
        try:
            self.peak_rss = max(self.peak_rss, psutil.Process(newest["pid"]).memory_info().rss)
        except psutil.Error:
            return {}
        return newest

    def _delivered(self) -> Counter[tuple[str, str]]:
        """Records by (key, shard) in all batches."""
        for path in self._batches.files():
            changed = path.stat().st_mtime_ns
            if path not in self._known or self._known[path][0] != changed:
                self._known[path] = changed, Counter((r.key, r.shard) for r in load(path))
        total: Counter[tuple[str, str]] = Counter()
        for _, counts in self._known.values():
            total.update(counts)
        return total

    def _rates(self, written: int, read: int) -> tuple[float, float]:
        now = time.monotonic()
        self._history.append((now, written, read))
        while now - self._history[0][0] > _RATE_WINDOW_S:
            self._history.popleft()
        then, written_then, read_then = self._history[0]
        span = max(now - then, 1.0)
        return (written - written_then) / span, max(0.0, (read - read_then) / span)

    def _shards(
        self,
        shards: Sequence[ShardInfo],
        written: int,
        source: dict[str, Any],
        delivered: Counter[tuple[str, str]],
    ) -> list[ShardView]:
        by_key: Counter[str] = Counter()
        by_shard: Counter[str] = Counter()
        for (key, shard), count in delivered.items():
            by_key[key] += count
            by_shard[shard] += count
        # Events are written about in the order of their numbers, so the first `written` of them.
        keys = len(self._keys)
        missing = [
            max(0, (written - number + keys - 1) // keys - by_key[key])
            for number, key in enumerate(self._keys)
        ]
        views = []
        for info in shards:
            counters = source.get("shards", {}).get(info.shard_id)
            behind = sum(
                count
                for count, place in zip(missing, self._hashes, strict=True)
                if info.first_hash <= place <= info.last_hash
            )
            views.append(
                ShardView(
                    info=info,
                    state=_state(info, shards, source),
                    read=by_shard[info.shard_id],
                    behind=behind if info.open else None,
                    millis_behind=counters["millis_behind"] if counters else None,
                    buffered_bytes=counters["held_bytes"] if counters else 0,
                )
            )
        return views


def _state(info: ShardInfo, shards: Sequence[ShardInfo], source: dict[str, Any]) -> str:
    if not source:
        return "no reader"
    subscribed = source.get("shards", {})
    if info.shard_id in subscribed:
        return str(subscribed[info.shard_id]["state"])
    # A restarted reader no longer looks at a shard that its checkpoint knows to be at its end.
    begun: set[str] = set()
    for shard in reversed(shards):
        if shard.shard_id in subscribed or shard.shard_id in begun:
            begun.update(shard.parents)
    return "ended" if info.shard_id in begun else "waiting"


def _read_all(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob(f"{kind}-*.json")]


def _hash_of(key: str) -> int:
    """Where Kinesis puts a partition key among the hash keys."""
    return int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16)
