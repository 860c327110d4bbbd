"""Record what the sink does: each record carries its attempt, and each call is noted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from integration.chaos.payload import head_of, read_head, tag_data, untag_data
from integration.chaos.verdict import PutCall
from kinesis_ds.errors import KinesisConnectorError, TransientError
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.writer.records import Request
from kinesis_ds.writer.target_streams import TargetStreams

_CALLS = "calls"


def tagged(batch: pa.RecordBatch, tag: str) -> pa.RecordBatch:
    """Return a batch of the source as the sink gets it."""
    data = [tag_data(item, tag) for item in batch.column("data").to_pylist()]
    return pa.record_batch(
        [pa.array(data, pa.binary()), batch.column("partitionKey")], ["data", "partitionKey"]
    )


def as_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return the same for a PySpark whose writers take rows."""
    for item in batch.to_pylist():
        yield Row(**item)


def tagged_row(row: Row, tag: str) -> Row:
    return Row(data=tag_data(bytes(row["data"]), tag), partitionKey=row["partitionKey"])


class AppendedLines:
    """JSON lines in a file of this process; each is there as soon as it is written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def add(self, *values: object) -> None:
        os.write(self._file, json.dumps(values).encode() + b"\n")


def read_lines(path: Path) -> list[list[Any]]:
    """Return the lines. A line that was cut short by a kill is left out."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


_installed = False


def record_calls(folder: Path) -> None:
    """Note every PutRecords call of this process from now on: its records, and how it ended."""
    global _installed  # noqa: PLW0603  # once a process
    if _installed:
        return
    _installed = True
    lines = AppendedLines(folder / _CALLS / f"{os.getpid()}.jsonl")
    put = TargetStreams.put
    count = 0

    async def noted_put(
        self: TargetStreams, stream: StreamId, request: Request
    ) -> Mapping[str, Any]:
        nonlocal count
        count += 1
        number = count
        carried: dict[str, list[int]] = {}
        for record in request.records:
            data, tag = untag_data(record.data)
            carried.setdefault(tag, []).append(read_head(head_of(data)).id)
        lines.add("begin", number, carried)
        try:
            answer = await put(self, stream, request)
        except KinesisConnectorError as exc:
            # A refusal is an answer, too: nothing was stored. Only silence leaves it open.
            lines.add("end", number, bool(exc.code) or not isinstance(exc, TransientError))
            raise
        lines.add("end", number, True)
        return answer

    TargetStreams.put = noted_put  # type: ignore[method-assign]


def recorded_calls(folder: Path) -> Iterator[PutCall]:
    """Return all calls noted. A call without an end (given up, or killed) was not answered."""
    for path in sorted((folder / _CALLS).glob("*.jsonl")):
        lines = read_lines(path)
        answered = {number for kind, number, *rest in lines if kind == "end" and rest[0]}
        for kind, number, *rest in lines:
            if kind == "begin":
                for tag, ids in rest[0].items():
                    yield PutCall(tag, tuple(ids), number in answered)
