"""Every difference between the PySpark versions that this package supports, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as _datasource

# More rows than there are; Spark reads it as a Java long.
_BOUNDLESS = 2**63 - 1

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.streaming.datasource import ReadLimit

    # What both have in common, which is all that this package relies on.
    StreamWriterBase = DataSourceStreamWriter
    STREAM_WRITER_GETS_ARROW: bool
    BatchWriterBase = DataSourceWriter
    BATCH_WRITER_GETS_ARROW: bool
    StreamReaderBase = DataSourceStreamReader

    def usual_limit(max_records: int | None, max_bytes: int | None) -> ReadLimit: ...

    def takes_everything(limit: object) -> bool: ...
else:
    # DataSourceStreamArrowWriter exists since 4.1; before, a stream writer is given rows.
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

    # Limits and Trigger.AvailableNow exist since 4.2; before, `latestOffset` is called without
    # arguments and never learns of the trigger.
    try:
        from pyspark.sql.streaming import datasource as _limits
    except ImportError:
        _limits = None
        StreamReaderBase = _datasource.DataSourceStreamReader
    else:

        class StreamReaderBase(
            _datasource.DataSourceStreamReader, _limits.SupportsTriggerAvailableNow
        ):
            """A stream reader that can end at the tip."""

    def usual_limit(max_records, max_bytes):
        """What Spark shows, and hands back, as the limit of a batch.

        Never "all available": that is what Spark asks for when it wants one batch of everything
        (``Trigger.Once``), and only then.
        """
        if max_records is None and max_bytes is not None:
            return _limits.ReadMaxBytes(max_bytes)
        return _limits.ReadMaxRows(_BOUNDLESS if max_records is None else max_records)

    def takes_everything(limit):
        """Whether Spark wants all there is in one batch."""
        return _limits is not None and isinstance(limit, _limits.ReadAllAvailable)
