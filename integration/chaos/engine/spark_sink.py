"""The connector's sink under Spark, recorded: ``format("kinesis_chaos")``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.taskcontext import TaskContext

from integration.chaos.engine.recording import AppendedLines, record_calls, tagged, tagged_row
from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW, StreamWriterBase
from kinesis_ds.writer.stream import KinesisStreamWriter, make_stream_writer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FOLDER_OPTION = "chaosfolder"
RUN_OPTION = "chaosrun"
ATTEMPTS_FOLDER = "attempts"


class ChaosDataSource(DataSource):
    """The connector, except that each record carries the attempt that wrote it."""

    @classmethod
    def name(cls) -> str:
        return "kinesis_chaos"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        del overwrite
        options = {key.lower(): value for key, value in self.options.items()}
        folder, run = Path(options.pop(FOLDER_OPTION)), int(options.pop(RUN_OPTION))
        return TaggingWriter(make_stream_writer(options, schema), folder, run)


class TaggingWriter(StreamWriterBase):
    """The connector's writer, for Arrow batches or rows, whichever this PySpark passes."""

    def __init__(self, writer: KinesisStreamWriter, folder: Path, run: int) -> None:
        self._writer = writer
        self._folder = folder
        self._run = run

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        record_calls(self._folder)
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        tag = f"{self._run}.{batch}.{context.partitionId()}.{context.taskAttemptId()}"
        AppendedLines(self._folder / ATTEMPTS_FOLDER / f"{os.getpid()}.jsonl").add(
            tag, batch, str(context.partitionId()), self._run, context.attemptNumber()
        )
        given = tagged if STREAM_WRITER_GETS_ARROW else tagged_row
        return self._writer.write(given(rows, tag) for rows in iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)
