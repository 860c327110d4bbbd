"""Plays PySpark's process of a streaming reader: it answers the driver, one call at a time."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from integration.chaos.engine.processes import left_over
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.stream import KinesisStreamReader
from kinesis_ds.testing import ScaledClock
from tests.support.fast import SPEED, fast_network


class FastStreamReader(KinesisStreamReader):
    """The connector's stream reader, in fast time."""

    def _running(self) -> Coordinator:
        if self._coordinator is None:
            self._coordinator = Coordinator(self._options, ScaledClock(SPEED), fast_network)
        return self._coordinator

    def statistics(self) -> dict[str, Any]:
        return self._coordinator.statistics() if self._coordinator is not None else {}


def serve_source(channel: Connection, options: Mapping[str, str]) -> None:
    """Answer calls until it is told to stop, or the driver is gone."""
    reader = FastStreamReader(parse_read_options(options))
    try:
        _serve(channel, reader)
    finally:
        reader.stop()  # as PySpark's own loop does when its pipe has ended


def _serve(channel: Connection, reader: FastStreamReader) -> None:
    while True:
        what, *arguments = channel.recv()
        if what == "stop":
            reader.stop()
            channel.send(("ok", [f"source {os.getpid()}: {left}" for left in left_over()]))
            return
        try:
            channel.send(("ok", _answer(reader, what, arguments)))
        except KinesisConnectorError as exc:
            channel.send(("error", type(exc).__name__, exc.retryable, str(exc)))


def _answer(reader: FastStreamReader, what: str, arguments: list[Any]) -> Any:
    if what == "latestOffset":
        return reader.latestOffset(*arguments)
    if what == "partitions":
        planned = reader.partitions(*arguments)
        return [
            ("+".join(r.shard_id for r in p.ranges), pickle.dumps(p))
            for p in planned
            if isinstance(p, RangePartition)
        ]
    if what == "commit":
        return reader.commit(*arguments)
    if what == "statistics":
        return reader.statistics()
    assert what == "reader"
    return pickle.dumps(reader)
