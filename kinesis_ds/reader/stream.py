"""The stream reader that PySpark calls: translates between Spark's JSON and the coordinator."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_ds.errors import InternalError, KinesisConnectorError
from kinesis_ds.offsets import InitialOffset, decode_offset, encode_offset
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.task import read_planned

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_ds.options import ReadOptions

F = TypeVar("F", bound=Callable[..., Any])


def _plainly(method: F) -> F:
    """Let the connector's errors through without the frames that led to them.

    Spark shows the whole Python traceback; what the user needs is the one sentence at its end.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except KinesisConnectorError as exc:
            error = exc
        raise error.with_traceback(None) from None

    return call  # type: ignore[return-value]


class KinesisStreamReader(DataSourceStreamReader):
    """A Kinesis source of one streaming query.

    Lives in the driver's reader process, where it owns a coordinator with an embedded agent; copies
    without one are pickled to the tasks.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._coordinator: Coordinator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_coordinator": None}

    def initialOffset(self) -> dict[str, Any]:
        return encode_offset(InitialOffset())

    # PySpark 4.0 and 4.1 call it without arguments, later versions with both.
    @_plainly
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        return encode_offset(
            self._running().latest(None if start is None else decode_offset(start))
        )

    @_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = self._running().plan(decode_offset(start), decode_offset(end))
        return [RangePartition(p) for p in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            raise InternalError(f"{partition!r} is not a range of a shard.")
        return read_planned(partition.planned, self._options.aws)

    @_plainly
    def commit(self, end: dict[str, Any]) -> None:
        self._running().commit(decode_offset(end))

    def stop(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def _running(self) -> Coordinator:
        if self._coordinator is None:
            self._coordinator = Coordinator(self._options)
            _stop_on_sigterm()
        return self._coordinator


def _stop_on_sigterm() -> None:
    """Let this process end in good order when Spark ends it.

    ``query.stop()`` sends SIGTERM to the source's process, whose default is to die at once, so that
    PySpark never comes to call ``stop()``. As an exception in its main thread the signal unwinds
    PySpark's loop, and the ``finally`` there stops the reader. A second signal changes nothing.
    Whoever has installed a handler of his own keeps it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def leave(signum: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, leave)
