"""A listener for Spark that prints a table of the shards after each batch."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from kinesis_ds.observe.table import progress_table

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class ShardTableListener(StreamingQueryListener):
    """Writes a table of the shards after each batch of a query that reads Kinesis::

        spark.streams.addListener(ShardTableListener())

    Writes nothing before PySpark 4.2, because there a source cannot report how far behind it is.

    Args:
        out: Where to write; standard error by default.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        super().__init__()
        self._out = out or sys.stderr

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no batch yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the table."""
        progress: dict[str, Any] = json.loads(event.progress.json)
        table = progress_table(progress)
        if table is not None:
            self._out.write(table + "\n")
            self._out.flush()

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: there was no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last table has been written."""
