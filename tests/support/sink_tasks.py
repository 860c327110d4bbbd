"""Run single tasks of a query as Spark does, also again after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.writer.slices import arrow_slices, row_slices
from kinesis_ds.writer.task import TaskId, write_task
from tests.support.sinks import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.sinks import Sink

TASK = TaskId(partition=3, query_id="5d9e9b52-0cbf-4f4b-9d0c-9a33c6cc3f05", batch_id=7)


def run_task(sink: Sink, items: Iterable[Any], task: TaskId = TASK, **options: str) -> Outcome:
    """Write rows as one attempt of a task."""
    parsed = parse_write_options({**sink.kinesis.options(sink.stream), **options})
    slices = arrow_slices if STREAM_WRITER_GETS_ARROW else row_slices
    try:
        return Outcome(write_task(slices(iter(items)), parsed, task, "no-run"), None)
    except KinesisConnectorError as exc:
        return Outcome(None, exc)
