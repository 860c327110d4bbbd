"""The parts of the sink's benchmarks: a double in this process, rows, and one task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.testing import Fault, KinesisServer, Settings
from kinesis_ds.writer import registry
from kinesis_ds.writer.slices import arrow_slices
from kinesis_ds.writer.task import SinkCommit, TaskId, write_task

STREAM = "orders"
ROWS_A_BATCH = 100


@contextlib.contextmanager
def double(shards: int, *faults: Fault, limits: bool = True) -> Iterator[KinesisServer]:
    """A stream ``orders``, with the rates of a shard as on AWS; and no client left afterwards."""
    with KinesisServer(Settings(enforce_limits=limits), faults=faults) as kinesis:
        kinesis.create_stream(STREAM, shards)
        try:
            yield kinesis
        finally:
            registry.REGISTRY.close()


def throttle(kinesis: KinesisServer, shard_id: str, share: float) -> None:
    """Let a shard take this share of what one should: 1 undoes it."""

    def change(endpoint: object) -> None:
        shard = endpoint.account.streams[STREAM].shards[shard_id]  # type: ignore[attr-defined]
        for bucket, full in ((shard.records_in, 1000), (shard.bytes_in, 1 << 20)):
            bucket.rate = full * share

    kinesis._thread.change(change)


def arrow_batches(
    count: int,
    size: int,
    key: Callable[[int], str],
    hash_key: Callable[[int], int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them to the sink, made when they are taken. ``size`` in bytes."""
    rest = b"." * size
    for first in range(0, count, ROWS_A_BATCH):
        numbers = range(first, min(count, first + ROWS_A_BATCH))
        columns = {
            "data": pa.array([(b"%08d" % n + rest)[:size] for n in numbers], pa.binary()),
            "partitionKey": pa.array([key(n) for n in numbers], pa.string()),
        }
        if hash_key is not None:
            columns["explicitHashKey"] = pa.array([str(hash_key(n)) for n in numbers], pa.string())
        yield pa.record_batch(columns)


def write(
    kinesis: KinesisServer, batches: Iterable[pa.RecordBatch], options: dict[str, str]
) -> SinkCommit:
    """One task of our sink."""
    parsed = parse_write_options({**kinesis.options(STREAM), **options})
    return write_task(arrow_slices(batches), parsed, TaskId(), "benchmark")
