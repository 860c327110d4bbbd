"""One task of a write, streaming or batch: from Spark's rows to Kinesis's last answer."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

from kinesis_ds.errors import InternalError, KinesisConnectorError
from kinesis_ds.limits import PUT_RECORDS_MAX_RECORDS
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.wire.schema import check_sink_schema, sink_columns
from kinesis_ds.writer import registry
from kinesis_ds.writer.inflight import InFlightWindow
from kinesis_ds.writer.results import ShardWrites, WritesByShard, merge
from kinesis_ds.writer.rows import RowChecker
from kinesis_ds.writer.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.types import StructType

    from kinesis_ds.options.write import WriteOptions
    from kinesis_ds.writer.service import SinkService
    from kinesis_ds.writer.slices import RowSlice

logger = logging.getLogger(__name__)

# Every request ends by its own deadline. If nothing came so much later, the network thread is gone,
# which is a bug and must not become a hang.
_GRACE_S = 30.0
# A piece is a tenth of the window: one more piece at the low water mark stays within the bound.
_PIECES = 10


@dataclass(frozen=True)
class SinkCommit(WriterCommitMessage):
    """The message of one task to the driver: what it has written.

    Attributes:
        partition: The number of the task's partition.
        shards: What was stored, for each stream and shard.
        query_id: The id of the streaming query; None in a batch write.
        repeated: Whether the batch was in the ledger, so that nothing was written.
        skipped: How many rows were left out because they are too large.
    """

    partition: int
    shards: tuple[ShardWrites, ...] = ()
    query_id: str | None = None
    repeated: bool = False
    skipped: int = 0


@dataclass(frozen=True)
class TaskId:
    """Names one task of one batch.

    Attributes:
        partition: The number of the task's partition.
        query_id: The id of the streaming query; None in a batch write.
        batch_id: The number of the micro-batch; None in a batch write.
    """

    partition: int = 0
    query_id: str | None = None
    batch_id: int | None = None

    @classmethod
    def current(cls) -> TaskId:
        """Return the id of the task that runs in this process."""
        context = TaskContext.get()
        if context is None:
            return cls()
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.getLocalProperty("sql.streaming.queryId"),
            int(batch) if batch is not None else None,
        )


def check(raw_options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Parse the options of a write, and check them and the columns of the DataFrame.

    Raises:
        OptionError: Naming every problem of the options.
        SchemaError: Naming every problem of the columns.
    """
    options = parse_write_options(raw_options, routed="stream" in sink_columns(schema.names))
    check_sink_schema(schema)
    return options


def write_task(
    slices: Iterable[RowSlice], options: WriteOptions, task: TaskId, run_id: str
) -> SinkCommit:
    """Write one task's rows. Returns when Kinesis has acknowledged every one of them.

    Blocks while the bound on rows, bytes or requests in flight is reached. If it raises, some rows
    may have been stored; nothing of the task is under way any more.

    Args:
        slices: The rows.
        options: The options of the query.
        task: The task and its batch.
        run_id: Takes the place of query and batch in the rows' ids where there is none.

    Raises:
        KinesisConnectorError: A row cannot be written, or Kinesis would not take it.
    """
    try:
        with registry.REGISTRY.borrow(options) as service:
            return _write(slices, options, task, run_id, service)
    except InternalError:
        raise
    except KinesisConnectorError as exc:
        # Spark shows the user this process's whole traceback around the message. An error that
        # says what to do needs none; for the others, and at DEBUG, it is kept.
        logger.debug("task failed partition=%d", task.partition, exc_info=True)
        raise exc.with_traceback(None) from None


def _write(
    slices: Iterable[RowSlice],
    options: WriteOptions,
    task: TaskId,
    run_id: str,
    service: SinkService,
) -> SinkCommit:
    counters = registry.REGISTRY.counters(options)
    window = InFlightWindow(
        options.max_in_flight_records,
        options.max_in_flight_bytes,
        options.max_in_flight_requests,
        label=options.label,
        on_wait=lambda waits: service.network.post(sender.hurry, waits),
    )
    id_prefix = _id_prefix(options, task, run_id)
    sender = Sender(service.streams, window, options, counters, id_prefix=id_prefix)
    piece_records = min(PUT_RECORDS_MAX_RECORDS, options.max_in_flight_records // _PIECES)
    checker = RowChecker(
        service,
        task.partition,
        options.stream,
        piece_records=max(1, piece_records),
        piece_bytes=options.max_in_flight_bytes // _PIECES,
        skip_oversized=options.skip_oversized,
        shared_keys=options.aggregation is not None,
    )
    patience_s = options.retry_timeout_s + _GRACE_S
    counters.opened(window)
    try:
        for piece in checker.pieces(_until_failed(slices, window)):
            window.acquire(len(piece.block), piece.block.size, patience_s)
            service.network.post(sender.add, piece)
        service.network.post(sender.flush)
        window.drain(patience_s)
        if checker.skipped:
            counters.add(skipped_records=checker.skipped)
            logger.warning(
                "rows too large for the stream were left out target=%s rows=%d; "
                "onOversizedRecord=fail names the first one",
                options.label,
                checker.skipped,
            )
        return SinkCommit(task.partition, sender.written(), task.query_id, skipped=checker.skipped)
    finally:
        # After a success there is nothing to cancel. Otherwise (also when Spark gives the task up)
        # this task's requests end here, and only they.
        with contextlib.suppress(InternalError):
            service.run(sender.aclose(), _GRACE_S)
        counters.closed(window)


def _id_prefix(options: WriteOptions, task: TaskId, run_id: str) -> str | None:
    if options.aggregation is None or not options.aggregation.ids:
        return None
    if task.query_id is None or task.batch_id is None:
        return f"{run_id}/0/{task.partition}"
    return f"{task.query_id}/{task.batch_id}/{task.partition}"


def _until_failed(slices: Iterable[RowSlice], window: InFlightWindow) -> Iterator[RowSlice]:
    """Pass slices on until the window has failed, so that no row is taken in vain."""
    window.check()
    for rows in slices:
        yield rows
        window.check()


def merge_commits(messages: Iterable[Any]) -> WritesByShard:
    """Sum up what the tasks of a batch have written. Tasks that failed have no message."""
    return merge(
        writes
        for message in messages
        if isinstance(message, SinkCommit)
        for writes in message.shards
    )
