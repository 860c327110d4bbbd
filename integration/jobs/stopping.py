"""The connector's sink, which stands still for ever at one moment: to be killed right there.

The environment says where: Spark's Python processes, on the driver and in tasks, inherit it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kinesis_ds._compat import StreamWriterBase
from kinesis_ds.datasource import KinesisDataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

_FOLDER, _MOMENT = "KINESIS_DS_STOP_FOLDER", "KINESIS_DS_STOP_AT"


class StoppingDataSource(KinesisDataSource):
    """Kinesis, whose writer stands still for ever at one moment: to be killed right there."""

    @classmethod
    def name(cls) -> str:
        return "kinesis_stopping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StoppingWriter(super().streamWriter(schema, overwrite))


class StoppingWriter(StreamWriterBase):
    """The connector's writer.

    It stops in the rows of a batch (``rows 3``), some of which are written then, or when the
    connector has done all for a batch, and Spark has not noted it yet (``commit 3``).
    """

    def __init__(self, writer: DataSourceStreamWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writer.write(self._rows(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)
        _stop_at(f"commit {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)

    def _rows(self, iterator: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        yield from islice(iterator, 2)
        _stop_at(f"rows {batch}")
        yield from iterator


def stop_at(folder: Path, moment: str | None) -> None:
    """Have writers of queries that this process starts stop there."""
    os.environ[_FOLDER], os.environ[_MOMENT] = str(folder), moment or ""


def _stop_at(moment: str) -> None:
    if os.environ.get(_MOMENT) == moment:
        stopped_file(Path(os.environ[_FOLDER]), moment).touch()
        threading.Event().wait()


def stopped_file(folder: Path, moment: str) -> Path:
    """It is there when the job has stopped at that moment."""
    return folder / f"stopped at {moment}"
