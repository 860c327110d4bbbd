"""The streaming sink as Spark sees it.

The driver builds the writer, Spark pickles it to the executors, each task there calls ``write``
with its rows, and the driver gets the tasks' messages in ``commit``.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from botocore.session import get_session

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW, StreamWriterBase
from kinesis_ds.options.parse import log_without_effect
from kinesis_ds.writer.ledger import Ledger
from kinesis_ds.writer.ledger_format import Entry, WrittenBatches
from kinesis_ds.writer.slices import arrow_slices, row_slices
from kinesis_ds.writer.task import SinkCommit, TaskId, check, merge_commits, write_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from kinesis_ds.options.write import WriteOptions

logger = logging.getLogger(__name__)


class KinesisStreamWriter(StreamWriterBase):
    """Writes micro-batches into streams, at least once.

    Spark gives it Arrow batches, or rows where this PySpark has no Arrow stream writer. A batch
    that is in the ledger is not written again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._target = ""
        self._written = WrittenBatches()
        self._run_id = str(uuid.uuid4())

    def __repr__(self) -> str:
        return f"KinesisStreamWriter({self._options!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Spark makes a writer for each batch and pickles it for the tasks only. So the driver reads
        # the ledger once a batch, and executors need not reach the checkpoint.
        state = dict(self.__dict__)
        if (ledger := self._ledger(warn=True)) is not None:
            state |= {"_written": ledger.written(), "_target": target_of(self._options)}
        return state

    def write(self, iterator: Iterator[Any]) -> SinkCommit:
        """Write one task's rows; see :func:`write_task`. Caller: Spark, on an executor."""
        task = TaskId.current()
        if self._written.holds(task.query_id, task.batch_id, self._target):
            # The rows are computed all the same: watermarks, state and metrics hang on them.
            for _ in iterator:
                pass
            return SinkCommit(task.partition, query_id=task.query_id, repeated=True)
        slices = arrow_slices(iterator) if STREAM_WRITER_GETS_ARROW else row_slices(iterator)
        return write_task(slices, self._options, task, self._run_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Record in the ledger what the batch has written.

        Caller: Spark, on the driver, when all tasks have succeeded.
        """
        # Spark makes a writer for each commit; the first batch comes once in the life of a query.
        if batchId == 0:
            log_without_effect(self._options)
        commits = [message for message in messages if isinstance(message, SinkCommit)]
        if any(commit.repeated for commit in commits):
            logger.info("batch not written again batch=%d target=%s", batchId, self._options.label)
            return
        written = merge_commits(messages)
        for writes in written.values():
            logger.debug("batch written batch=%d %s", batchId, writes)
        query_id = next((c.query_id for c in commits if c.query_id is not None), None)
        # Another process of the driver has read the ledger before the batch, and has warned then.
        ledger = self._ledger(warn=False) if query_id is not None else None
        if ledger is not None and query_id is not None:
            skipped = sum(commit.skipped for commit in commits)
            target = target_of(self._options)
            ledger.record(Entry(query_id, batchId, target, tuple(written.values()), skipped))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Warn that the batch failed. What its tasks have stored stays in the stream.

        Caller: Spark, on the driver.
        """
        stored = sum(writes.records for writes in merge_commits(messages).values())
        logger.warning(
            "batch aborted batch=%d target=%s; %d records of its finished tasks, and what "
            "the others had stored, are in the stream and will be there again when it is rerun",
            batchId,
            self._options.label,
            stored,
        )

    def _ledger(self, *, warn: bool) -> Ledger | None:
        if not self._options.ledger:
            return None
        return Ledger.open(self._options.checkpoint, warn=warn)


def target_of(options: WriteOptions) -> str:
    """Name the place that a query writes to, as far as the driver knows it without a call.

    A batch is skipped only if it went to the very same place. So the region counts even where it
    is not an option, but comes from the environment or the AWS config file.
    """
    aws = options.aws
    region = aws.region or get_session().get_config_variable("region")
    where = (region, aws.endpoint, aws.role_arn)
    return ", ".join([options.label, *(part for part in where if part)])


def make_stream_writer(raw_options: Mapping[str, str], schema: StructType) -> KinesisStreamWriter:
    """Make the writer of a query. Checks everything that can be checked without Kinesis.

    Caller: Spark, on the driver, when the query starts and at each commit.

    Raises:
        OptionError: Naming every problem of the options.
        SchemaError: Naming every problem of the DataFrame's columns.
    """
    return KinesisStreamWriter(check(raw_options, schema))
