"""Counters on disk: what an agent or a sink is doing, for people and for tests.

Both sides of the connector keep their counters where they are made and hand out a plain
dictionary. :class:`StatisticsFile` writes it to ``<directory>/<name>-<pid>.json`` once a second,
whole or not at all, so that a reader never sees half a file.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class StatisticsFile:
    """Writes a dictionary to a local file once a second until closed.

    A directory that cannot be written, or counters that cannot be read, cost one warning, never the
    query.

    Args:
        directory: Where to write; made when missing.
        name: What writes, for example ``source`` or ``sink``.
        statistics: Called on this object's thread for each writing.
    """

    def __init__(
        self, directory: str, name: str, statistics: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._path = Path(directory) / f"{name}-{os.getpid()}.json"
        self._statistics = statistics
        self._closed = threading.Event()
        self._warned = False
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="kinesis-statistics", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Write now, on the caller's thread. For a state worth keeping if the process is killed."""
        self._write()

    def close(self) -> None:
        """Write once more and end. The file stays, as the last word of this process."""
        self._closed.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._writing:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                scratch = self._path.with_suffix(".tmp")
                scratch.write_text(
                    json.dumps({"at": time.time(), "pid": os.getpid(), **self._statistics()})
                )
                scratch.replace(self._path)
            except Exception as exc:  # counting must never stop what is counted
                if not self._warned:
                    logger.warning("statistics cannot be written file=%s error=%s", self._path, exc)
                    self._warned = True
