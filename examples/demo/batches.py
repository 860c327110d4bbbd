"""The reading job's output: one Parquet file a batch, named by the batch's id, whole or not there.

A batch that Spark runs again, because the job died before the batch was committed, replaces its own
file. That is what makes exactly-once out of the source's promise that a batch is always the same
range: the sink needs to know nothing but the batch id.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.demo.verdict import Record

if TYPE_CHECKING:
    from pathlib import Path

_IDENTITY = ["shardId", "sequenceNumber", "partitionKey", "data"]


class BatchFolder:
    """The files of all batches of one query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, batch_id: int, table: pa.Table, seen_ms: int) -> None:
        """Put a batch there, or replace it, and note whether a replaced one was the same."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"batch={batch_id:06d}.parquet"
        if path.exists():
            same = pq.read_table(path).select(_IDENTITY).equals(table.select(_IDENTITY))
            note = self.folder / f"replayed={batch_id:06d}.json"
            note.write_text(json.dumps({"same": same, "records": table.num_rows}))
        seen = pa.repeat(pa.scalar(seen_ms, pa.int64()), table.num_rows)
        scratch = path.with_suffix(".tmp")
        pq.write_table(table.append_column("seenMs", seen), scratch)
        scratch.replace(path)

    def files(self) -> list[Path]:
        """The files of the batches, in the order of the batches."""
        return sorted(self.folder.glob("batch=*.parquet"))

    def replays(self) -> list[bool]:
        """For each batch that was run again, whether it held the same records."""
        notes = sorted(self.folder.glob("replayed=*.json"))
        return [json.loads(note.read_text())["same"] for note in notes]


def load(path: Path) -> list[Record]:
    """The records of one batch, in the order delivered."""
    table = pq.read_table(path)
    arrived = pc.cast(table["approximateArrivalTimestamp"], pa.timestamp("ms", "UTC"), safe=False)
    arrived_ms = pc.cast(arrived, pa.int64())
    rows = zip(
        *(table[name].to_pylist() for name in ("partitionKey", "shardId", "sequenceNumber")),
        *(column.to_pylist() for column in (table["data"], arrived_ms, table["seenMs"])),
        strict=True,
    )
    records = []
    for key, shard, sequence, data, arrival, seen in rows:
        number, created_ms = _event(data)
        records.append(Record(number, key, shard, int(sequence), created_ms, arrival, seen))
    return records


def _event(data: bytes) -> tuple[int | None, int]:
    try:
        event = json.loads(data)
        return int(event["id"]), int(event["created_ms"])
    except (ValueError, TypeError, KeyError):
        return None, 0
