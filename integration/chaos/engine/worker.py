"""Plays a PySpark worker: it lives long, and copies one task at a time from source to sink."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.chaos.engine.processes import left_over
from integration.chaos.engine.recording import as_rows, record_calls, tagged
from integration.chaos.payload import head_of, read_data
from integration.chaos.schedule import Moment
from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW
from kinesis_ds.agent import range_client
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.writer import registry
from kinesis_ds.writer.stream import KinesisStreamWriter
from tests.support.fast import FastLoop

if TYPE_CHECKING:
    import pyarrow as pa

Rows = list[list[str | None]]


def work(channel: Connection, folder: Path, sink: Mapping[str, str]) -> None:
    """Run tasks until it is told to stop, or the driver is gone."""
    record_calls(folder)
    registry.REGISTRY = registry.Registry(FastLoop)
    pickled_writer = pickle.dumps(KinesisStreamWriter(parse_write_options(sink)))
    while True:
        what, *task = channel.recv()
        if what == "stop":
            # What Python does at the end of the process, so that it can be looked at.
            registry.REGISTRY.close()
            range_client._clients.close()  # its own way to close is at exit
            channel.send([f"worker {os.getpid()}: {left}" for left in left_over()])
            return
        reader, partition, tag, dies = task
        try:
            rows = _run(reader, partition, pickled_writer, tag, dies)
        except KinesisConnectorError as exc:
            channel.send(("error", type(exc).__name__, exc.retryable, str(exc)))
        else:
            channel.send(("done", rows))


def _run(
    pickled_reader: bytes, partition: bytes, pickled_writer: bytes, tag: str, dies: Moment | None
) -> Rows:
    reader, writer = pickle.loads(pickled_reader), pickle.loads(pickled_writer)  # noqa: S301
    rows: Rows = []

    def through() -> Iterator[Any]:
        for batch in reader.read(pickle.loads(partition)):  # noqa: S301
            rows.extend(_rows(batch))
            if dies == "read":
                _die()
            given = tagged(batch, tag)
            yield from [given] if STREAM_WRITER_GETS_ARROW else as_rows(given)

    writer.write(through())
    if dies == "written":
        _die()
    return rows


def _rows(batch: pa.RecordBatch) -> Iterator[list[str | None]]:
    """Return what is kept of a batch: position and names of each record; no names if damaged."""
    for item in batch.to_pylist():
        whole = read_data(item["data"])
        kept = head_of(item["data"]).hex() if whole and whole.key == item["partitionKey"] else ""
        yield [item["shardId"], item["sequenceNumber"], item["partitionKey"], kept]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
