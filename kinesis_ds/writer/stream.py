"""The streaming sink as Spark sees it.

The driver builds the writer, Spark pickles it to the executors, each task there calls ``write``
with its rows, and the driver gets the tasks' messages in ``commit``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW, StreamWriterBase
from kinesis_ds.errors import InternalError, KinesisConnectorError
from kinesis_ds.options import WriteOptions, log_without_effect, parse_write_options
from kinesis_ds.schema import check_sink_schema
from kinesis_ds.writer import service as _service
from kinesis_ds.writer.batching import Packer, PackingLimits, arrow_columns, row_columns
from kinesis_ds.writer.inflight import InFlightWindow
from kinesis_ds.writer.results import ShardWrites, merge
from kinesis_ds.writer.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Every request ends by its own deadline; waiting this much longer for it means that the network
# thread is gone, which is our fault and must not become a hang.
_GRACE_S = 30.0


@dataclass(frozen=True)
class SinkCommit(WriterCommitMessage):
    """What one task has written, from the executor to the driver.

    Attributes:
        partition: The task's partition.
        shards: What was stored, a shard each.
    """

    partition: int
    shards: tuple[ShardWrites, ...]


class KinesisStreamWriter(StreamWriterBase):
    """Writes a micro-batch into a stream, at least once.

    Takes Arrow batches, or rows where this PySpark has no Arrow stream writer.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __repr__(self) -> str:
        return f"KinesisStreamWriter({self._options!r})"

    def write(self, iterator: Iterator[Any]) -> SinkCommit:
        """Write one task's rows. Returns when Kinesis has acknowledged every one of them.

        Blocks while the bound on records, bytes or requests in flight is reached. If it raises,
        some rows may have been stored; nothing of the task is under way any more.

        Caller: Spark, on an executor.

        Raises:
            KinesisConnectorError: A row cannot be written, or Kinesis would not take it.
        """
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        try:
            with _service.REGISTRY.borrow(self._options) as service:
                return self._write(iterator, partition, service)
        except InternalError:
            raise
        except KinesisConnectorError as exc:
            # Spark shows the user this process's whole traceback around the message. An error that
            # says what to do needs none; for the others, and at DEBUG, it is kept.
            logger.debug("task failed partition=%d", partition, exc_info=True)
            raise exc.with_traceback(None) from None

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Take note of what the batch has written.

        Caller: Spark, on the driver, when all tasks have succeeded. The numbers come together here
        for the batch; a ledger of them belongs in this method.
        """
        # Spark makes a writer for each commit; the first batch comes once in the life of a query.
        if batchId == 0:
            log_without_effect(self._options)
        for writes in merge_commits(messages).values():
            logger.debug("batch written batch=%d %s", batchId, writes)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Take note that the batch failed. What its tasks have stored stays in the stream.

        Caller: Spark, on the driver.
        """
        stored = sum(writes.records for writes in merge_commits(messages).values())
        logger.warning(
            "batch aborted batch=%d target=stream %s; %d records of its finished tasks, and what "
            "the others had stored, are in the stream and will be there again when it is rerun",
            batchId,
            self._options.stream.label,
            stored,
        )

    def _write(
        self, iterator: Iterator[Any], partition: int, service: _service.SinkService
    ) -> SinkCommit:
        options = self._options
        counters = _service.REGISTRY.counters(options)
        window = InFlightWindow(
            options.max_in_flight_records,
            options.max_in_flight_bytes,
            options.max_in_flight_requests,
            label=f"stream {options.stream.label}",
        )
        sender = Sender(
            service.put,
            window,
            label=f"stream {options.stream.label}",
            retry_timeout_s=options.retry_timeout_s,
            counters=counters,
        )
        packer = Packer(
            PackingLimits(
                # Never a request that the bound admits only when nothing else is in flight.
                min(options.batch_max_records, options.max_in_flight_records),
                min(options.batch_max_bytes, options.max_in_flight_bytes),
                service.record_bytes,
            ),
            partition,
            look_again=service.look_at_stream,
        )
        counters.opened(window)
        try:
            rows = _until_failed(iterator, window)
            slices = arrow_columns(rows) if STREAM_WRITER_GETS_ARROW else row_columns(rows)
            for request in packer.pack(slices):
                window.acquire(len(request.records), request.size, self._latest())
                service.post(sender.send, request)
            window.drain(self._latest())
            return SinkCommit(partition, sender.written())
        finally:
            # After a success there is nothing to cancel. Otherwise (also when Spark gives the task
            # up) this task's requests end here, and only they.
            with contextlib.suppress(InternalError):
                service.call(sender.aclose(), _GRACE_S)
            counters.closed(window)

    def _latest(self) -> float:
        return time.monotonic() + self._options.retry_timeout_s + _GRACE_S


def make_stream_writer(raw_options: Mapping[str, str], schema: StructType) -> KinesisStreamWriter:
    """The writer of a query. Checks everything that can be checked without Kinesis.

    Caller: Spark, on the driver, when the query starts and at each commit.

    Raises:
        OptionError: Naming every problem of the options.
        SchemaError: Naming every problem of the DataFrame's columns.
    """
    options = parse_write_options(raw_options)
    check_sink_schema(schema)
    return KinesisStreamWriter(options)


def merge_commits(messages: Iterable[WriterCommitMessage | None]) -> dict[str, ShardWrites]:
    """What a batch's tasks have written, by shard. Tasks that failed have no message."""
    return merge(
        writes
        for message in messages
        if isinstance(message, SinkCommit)
        for writes in message.shards
    )


def _until_failed(items: Iterator[T], window: InFlightWindow) -> Iterator[T]:
    """The items, as long as nothing has gone wrong: no row is taken that cannot be delivered."""
    window.check()
    for item in items:
        yield item
        window.check()
