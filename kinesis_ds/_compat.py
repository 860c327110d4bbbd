"""All differences between the supported versions of PySpark, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as _datasource

# More rows than there can be. It is the largest Java long, as which Spark reads it.
_BOUNDLESS = 2**63 - 1

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.streaming.datasource import ReadLimit

    # For the type checker: this package relies only on what all versions have in common.
    StreamWriterBase = DataSourceStreamWriter
    STREAM_WRITER_GETS_ARROW: bool
    BatchWriterBase = DataSourceWriter
    BATCH_WRITER_GETS_ARROW: bool
    StreamReaderBase = DataSourceStreamReader

    def usual_limit(max_records: int | None, max_bytes: int | None) -> ReadLimit: ...

    def takes_everything(limit: object) -> bool: ...
else:
    # DataSourceStreamArrowWriter exists since 4.1. Before, a stream writer is given rows.
    STREAM_WRITER_GETS_ARROW = hasattr(_datasource, "DataSourceStreamArrowWriter")
    StreamWriterBase = (
        _datasource.DataSourceStreamArrowWriter
        if STREAM_WRITER_GETS_ARROW
        else _datasource.DataSourceStreamWriter
    )

    BATCH_WRITER_GETS_ARROW = hasattr(_datasource, "DataSourceArrowWriter")
    BatchWriterBase = (
        _datasource.DataSourceArrowWriter
        if BATCH_WRITER_GETS_ARROW
        else _datasource.DataSourceWriter
    )

    # Read limits and Trigger.AvailableNow exist since 4.2. Before, `latestOffset` is called without
    # arguments and cannot know the trigger.
    try:
        from pyspark.sql.streaming import datasource as _limits
    except ImportError:
        _limits = None
        StreamReaderBase = _datasource.DataSourceStreamReader
    else:

        class StreamReaderBase(
            _datasource.DataSourceStreamReader, _limits.SupportsTriggerAvailableNow
        ):
            """A stream reader that supports ``Trigger.AvailableNow``."""

    def usual_limit(max_records, max_bytes):
        """Return the limit of a batch, which Spark shows and passes back to us.

        It is never "all available": by that limit Spark tells us that it wants everything in one
        batch (``Trigger.Once``).
        """
        if max_records is None and max_bytes is not None:
            return _limits.ReadMaxBytes(max_bytes)
        return _limits.ReadMaxRows(_BOUNDLESS if max_records is None else max_records)

    def takes_everything(limit):
        """Return whether Spark wants everything in one batch."""
        return _limits is not None and isinstance(limit, _limits.ReadAllAvailable)
