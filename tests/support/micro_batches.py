"""Drive a source as Spark does, without Spark: logs on disk, calls in Spark's order.

    offsets/N is written before batch N is planned and read, commits/N when its output is there;
    the source's `commit` for batch N comes when batch N+1 has been logged; a batch that was logged
    and not committed is planned and read again after a restart.

The records of every batch are kept; a batch that is read again must return the same ones.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.options.read import ReadOptions
from kinesis_ds.plan.offsets import InitialOffset, Offset, decode_offset, encode_offset
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.task import read_planned
from tests.support.fast import FastLoop, fast_network
from tests.support.fast_agent import fast_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kinesis_ds.clock import Clock
    from kinesis_ds.plan.planned_range import PlannedRange

# ``KINESIS_AGENT_PROCESSES=2 pytest tests/fault tests/source`` runs the stories of queries over so
# many agent processes.
AGENT_PROCESSES = os.environ.get("KINESIS_AGENT_PROCESSES", "1")


@dataclass(frozen=True)
class Row:
    """One record as a read task returned it."""

    shard: str
    number: int
    key: str | None
    data: bytes
    stream: str

    def to_json(self) -> list[str | None]:
        return [self.shard, str(self.number), self.key, self.data.hex(), self.stream]


def read_rows(planned: PlannedRange, options: ReadOptions) -> list[Row]:
    """Return the rows that a task returns for a range; its pauses are in fast time."""
    return [
        Row(
            item["shardId"],
            int(item["sequenceNumber"]),
            item["partitionKey"],
            item["data"],
            item["stream"],
        )
        for batch in read_planned(planned, options.aws, FastLoop)
        for item in batch.to_pylist()
    ]


class Source(Protocol):
    """The reader of a query: a :class:`Coordinator`, or one in another process."""

    def latest(self, start: Offset | None, *, everything: bool = False) -> Offset: ...

    def plan(self, start: Offset, end: Offset) -> list[Any]: ...

    def commit(self, end: Offset) -> None: ...

    def statistics(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class MicroBatches:
    """A streaming query over one source.

    To restart it, close it, or drop it as a kill would, and make another one over the same folder.

    Args:
        source: Is used instead of a coordinator in this process.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        folder: Path,
        clock: Clock,
        source: Source | None = None,
    ) -> None:
        usual = {"initialPosition": "trim_horizon", "agentProcesses": AGENT_PROCESSES}
        self.options = parse_read_options({**usual, **options})
        self.folder = folder
        for name in ("offsets", "commits", "out"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.coordinator = source or Coordinator(
            self.options, clock, fast_network, fast_processes(clock)
        )
        self.replayed = 0
        self._restarted = bool(self._logged())

    # --- what a test looks at -------------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        """Return all rows of the output, batch by batch."""
        return [row for rows in self.batches() for row in rows]

    def batches(self) -> list[list[Row]]:
        """Return the output of each batch that was run."""
        return [
            [
                Row(shard, int(number), key, bytes.fromhex(data), stream)
                for shard, number, key, data, stream in orjson.loads(
                    self._file("out", batch).read_bytes()
                )
            ]
            for batch in sorted(int(p.name) for p in (self.folder / "out").iterdir())
        ]

    @property
    def data(self) -> list[bytes]:
        """Return the data of all rows of the output."""
        return [row.data for row in self.rows]

    def last_offset(self) -> Offset:
        """Return the end of the last batch that was logged."""
        logged = self._logged()
        return self._offset(logged[-1]) if logged else InitialOffset()

    # --- what Spark does ------------------------------------------------------------------------

    def available_now(self) -> int:
        """Run batches as ``Trigger.AvailableNow`` does, until the source has nothing more.

        Return the number of batches.
        """
        assert isinstance(self.coordinator, Coordinator)
        self.coordinator.prepare_available_now()
        batches = 0
        while self.step():
            batches += 1
        return batches

    def once(self) -> bool:
        """Run one batch of everything, as ``Trigger.Once`` does."""
        return self.step(everything=True)

    def step(self, *, everything: bool = False) -> bool:
        """Run the next batch, or the last one again if it was not committed; False without news."""
        logged = self._logged()
        if logged and not self._file("commits", logged[-1]).exists():
            self._run(logged[-1], self._before(logged[-1]), self._offset(logged[-1]))
            return True
        start: Offset = self.last_offset()
        if self._restarted:
            self._restarted = False
            self.coordinator.plan(start, start)
        latest = self.coordinator.latest(start, **({"everything": True} if everything else {}))
        end = decode_offset(_through_json(latest))
        if encode_offset(end) == encode_offset(start):
            return False
        batch = len(logged)
        self._write("offsets", batch, encode_offset(end))
        if logged:
            self.coordinator.commit(start)
        self._run(batch, start, end)
        return True

    def run_until(
        self, enough: Callable[[], object], what: str, within_s: float | None = None
    ) -> None:
        """Run batches until ``enough`` is true.

        Raises:
            AssertionError: It was not true before the deadline.
            KinesisConnectorError: The source failed.
        """
        if within_s is None:
            # Agent processes take seconds of CPU to begin, and a busy machine many more for it.
            within_s = 120.0 if self.options.agent_processes == 1 else 300.0
        deadline = time.monotonic() + within_s
        while not enough():
            if not self.step():
                if time.monotonic() > deadline:
                    statistics = self.coordinator.statistics()
                    raise AssertionError(f"not within {within_s:g}s: {what}; {statistics}")
                time.sleep(0.002)

    def read_until(self, count: int, within_s: float | None = None) -> list[bytes]:
        """Run batches until so many records were read; return the data of all of them."""
        self.run_until(lambda: len(self.rows) >= count, f"{count} records", within_s)
        return self.data

    def close(self) -> None:
        self.coordinator.close()

    def _run(self, batch: int, start: Offset, end: Offset) -> None:
        planned = self.coordinator.plan(start, end)
        rows = self._read(batch, planned)
        out = self._file("out", batch)
        if out.exists():
            self.replayed += 1
            before = orjson.loads(out.read_bytes())
            if sorted(map(str, before)) != sorted(map(str, rows)):
                raise AssertionError(f"batch {batch} held {len(before)} records, now {len(rows)}")
        self._write("out", batch, rows)
        self._write("commits", batch, {})

    def _read(self, batch: int, planned: list[Any]) -> list[list[str | None]]:
        """Return the output of a batch, task by task."""
        del batch
        return [row.to_json() for p in planned for row in read_rows(p, self.options)]

    def _logged(self) -> list[int]:
        return sorted(int(p.name) for p in (self.folder / "offsets").iterdir())

    def _before(self, batch: int) -> Offset:
        return self._offset(batch - 1) if batch else InitialOffset()

    def _offset(self, batch: int) -> Offset:
        return decode_offset(orjson.loads(self._file("offsets", batch).read_bytes()))

    def _file(self, kind: str, batch: int) -> Path:
        return self.folder / kind / str(batch)

    def _write(self, kind: str, batch: int, value: object) -> None:
        # Whole or not at all, as Spark's logs are.
        unfinished = self.folder / f".{kind}-{batch}"
        unfinished.write_bytes(orjson.dumps(value))
        unfinished.rename(self._file(kind, batch))


def _through_json(offset: Offset) -> object:
    return orjson.loads(orjson.dumps(encode_offset(offset)))
