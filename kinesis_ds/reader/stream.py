"""The stream reader that PySpark calls. Translates between Spark's JSON and the coordinator."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from kinesis_ds._compat import StreamReaderBase, takes_everything, usual_limit
from kinesis_ds.errors import InternalError
from kinesis_ds.options.parse import log_without_effect
from kinesis_ds.plan.offsets import InitialOffset, Offset, decode_offset, encode_offset
from kinesis_ds.plan.tasks import pack
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.task import read_all
from kinesis_ds.reader.without_traceback import without_traceback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from kinesis_ds.options.read import ReadOptions


class KinesisStreamReader(StreamReaderBase):
    """The Kinesis source of one streaming query.

    In the driver's reader process it owns a coordinator. Spark pickles copies without one for the
    tasks.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._coordinator: Coordinator | None = None
        # The last offset that Spark passed, as it came and decoded.
        self._asked: tuple[dict[str, Any], Offset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_coordinator": None, "_asked": None}

    def initialOffset(self) -> dict[str, Any]:
        return encode_offset(InitialOffset())

    def getDefaultReadLimit(self) -> ReadLimit:
        return usual_limit(self._options.max_records, self._options.max_bytes)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        self._running().prepare_available_now()

    # PySpark 4.0 and 4.1 call it without arguments, later versions with both.
    @without_traceback
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        base = None if start is None else self._decoded(start)
        latest = self._running().latest(base, everything=takes_everything(limit))
        if start is not None and latest is base:
            return start
        return encode_offset(latest)

    @without_traceback
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._coordinator.report() if self._coordinator is not None else None

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = self._running().plan(decode_offset(start), self._decoded(end))
        tasks = pack(planned, self._options.shards_per_task, self._options.max_tasks)
        return [RangePartition(*ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            raise InternalError(f"{partition!r} is not a range of a shard.")
        return read_all(partition.ranges, self._options.aws)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        self._running().commit(decode_offset(end))

    def stop(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def _decoded(self, raw: dict[str, Any]) -> Offset:
        """Decode an offset. While nothing happens Spark passes the same one again and again."""
        if self._asked is None or self._asked[0] != raw:
            self._asked = raw, decode_offset(raw)
        return self._asked[1]

    def _running(self) -> Coordinator:
        if self._coordinator is None:
            log_without_effect(self._options)
            self._coordinator = Coordinator(self._options)
            _stop_on_sigterm()
        return self._coordinator


def _stop_on_sigterm() -> None:
    """Make SIGTERM end this process in good order.

    ``query.stop()`` sends SIGTERM to the source's process. By default the process dies at once, and
    PySpark never calls ``stop()``. Raised as an exception in the main thread, the signal unwinds
    PySpark's loop, whose ``finally`` stops the reader. A second signal changes nothing. A handler
    that somebody else has installed stays.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def leave(signum: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, leave)
