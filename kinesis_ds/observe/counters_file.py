"""Write the counters of an agent or a sink to a file, for people and for tests.

Source and sink count in their own objects and return the counters as a plain dictionary.
:class:`StatisticsFile` writes it to ``<directory>/<name>-<pid>.json`` once a second. The file is
replaced as a whole, so a reader never sees half of one.
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

    If the directory cannot be written to, or the counters cannot be read, it logs one warning; the
    query goes on.

    Args:
        directory: Folder to write into; made if it does not exist.
        name: First part of the file's name, for example ``source`` or ``sink``.
        statistics: Returns the counters. Called on this object's thread, or by :meth:`flush`.
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
        """Write now, on the caller's thread, in case the process is killed soon."""
        self._write()

    def close(self) -> None:
        """Write once more and end the thread. The file stays."""
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
