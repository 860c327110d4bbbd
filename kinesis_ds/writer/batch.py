"""The batch sink as Spark sees it: ``df.write.format("kinesis").mode("append")``."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from kinesis_ds._compat import BATCH_WRITER_GETS_ARROW, BatchWriterBase
from kinesis_ds.errors import OptionError
from kinesis_ds.options.parse import log_without_effect
from kinesis_ds.writer.slices import arrow_slices, row_slices
from kinesis_ds.writer.task import SinkCommit, TaskId, check, merge_commits, write_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from kinesis_ds.options.write import WriteOptions

logger = logging.getLogger(__name__)


class KinesisBatchWriter(BatchWriterBase):
    """Writes a DataFrame into streams, at least once.

    Spark gives it Arrow batches, or rows where this PySpark has no Arrow writer.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # One id for all tasks and their retries: the same rows get the same ids.
        self._run_id = str(uuid.uuid4())

    def __repr__(self) -> str:
        return f"KinesisBatchWriter({self._options!r})"

    def write(self, iterator: Iterator[Any]) -> SinkCommit:
        """Write one task's rows; see :func:`write_task`. Caller: Spark, on an executor."""
        slices = arrow_slices(iterator) if BATCH_WRITER_GETS_ARROW else row_slices(iterator)
        return write_task(slices, self._options, TaskId.current(), self._run_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was written. Caller: Spark, on the driver, when all tasks have succeeded."""
        log_without_effect(self._options)
        for writes in merge_commits(messages).values():
            logger.debug("written %s", writes)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Warn of the failure. What was stored stays. Caller: Spark, on the driver."""
        stored = sum(writes.records for writes in merge_commits(messages).values())
        logger.warning(
            "write aborted target=%s; %d records of its finished tasks, and what the others had "
            "stored, are in the stream and will be there again when it is rerun",
            self._options.label,
            stored,
        )


def make_batch_writer(
    raw_options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> KinesisBatchWriter:
    """Make the writer of a DataFrame. Checks everything that can be checked without Kinesis.

    Raises:
        OptionError: Naming every problem of the options, or another mode than ``append``.
        SchemaError: Naming every problem of the DataFrame's columns.
    """
    if overwrite:
        raise OptionError(
            "A Kinesis stream cannot be overwritten; records can only be added.",
            'Use df.write.format("kinesis").mode("append").',
        )
    return KinesisBatchWriter(check(raw_options, schema))
