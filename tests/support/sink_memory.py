"""Measure how much memory one task of the sink takes.

``python -m tests.support.sink_memory '<JSON>'``: in a process that does nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinesis_ds.limits import MIB
from kinesis_ds.writer import registry
from kinesis_ds.writer.registry import Registry
from tests.support.fast import FastLoop
from tests.support.sink_tasks import run_task
from tests.support.sinks import rows

_ROOT = Path(__file__).parents[2]


WARM = "warm"
"""The stream that is written to first, so that what is loaded and made once is not counted."""


def measure(
    options: dict[str, str], count: int, size: int, *, trace: bool = False
) -> dict[str, Any]:
    """Write so many rows of so many bytes in a new process, in time 20 times as fast.

    Args:
        trace: Measure what Python allocates instead. It takes several times as long.

    Returns:
        ``grown``: the peak of its resident memory in bytes, minus that after writing to another
        stream; or its traced memory. ``taken``: the number of rows that the task took. ``error``:
        the error, or None.
    """
    argument = json.dumps({"options": options, "count": count, "size": size, "trace": trace})
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sink_memory", argument],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class _Given:
    """The stream and the options of the task."""

    def __init__(self, options: dict[str, str]) -> None:
        self.kinesis, self.stream, self._options = self, options["streamName"], options

    def options(self, _stream: str) -> dict[str, str]:
        return self._options


def _status(name: str) -> int:
    """Return bytes of resident memory: ``VmRSS`` is now, ``VmHWM`` is the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def main() -> None:
    job = json.loads(sys.argv[1])
    options, size = job["options"], job["size"]
    warm: Any = _Given({**options, "streamName": WARM})
    given: Any = _Given(options)
    registry.REGISTRY = Registry(FastLoop)
    each = max(1, min(100, MIB // size))
    taken = 0

    def counted() -> Iterator[Any]:
        nonlocal taken
        for batch in rows(range(job["count"]), size=size, each=each):
            taken += each
            yield batch

    assert run_task(warm, rows(range(200), size=200)).error is None
    before = _status("VmRSS")
    if job["trace"]:
        tracemalloc.start()
    outcome = run_task(given, counted())
    grown = tracemalloc.get_traced_memory()[1] if job["trace"] else _status("VmHWM") - before
    registry.REGISTRY.close()
    error = None if outcome.error is None else str(outcome.error)
    json.dump({"grown": grown, "taken": taken, "error": error}, sys.stdout)


if __name__ == "__main__":
    main()
