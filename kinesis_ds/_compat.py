"""Every difference between the PySpark versions that this package supports, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as _datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter

    # What both have in common, which is all that this package relies on.
    StreamWriterBase = DataSourceStreamWriter
    STREAM_WRITER_GETS_ARROW: bool
else:
    # DataSourceStreamArrowWriter exists since 4.1; before, a stream writer is given rows.
    STREAM_WRITER_GETS_ARROW = hasattr(_datasource, "DataSourceStreamArrowWriter")
    StreamWriterBase = (
        _datasource.DataSourceStreamArrowWriter
        if STREAM_WRITER_GETS_ARROW
        else _datasource.DataSourceStreamWriter
    )
