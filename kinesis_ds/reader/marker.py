"""Lets the next start of a source tell that its process was killed.

Nobody else can: a process that is killed says nothing, and all that Spark knows is that its
connection ended. So a source that reads keeps a small file, which it removes when it stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

_FORGOTTEN_AFTER_S = 30 * 86_400
# Linux counts here how many processes it has killed for lack of memory since it started.
_KERNEL_COUNTERS = Path("/proc/vmstat")


class RunMarker:
    """A file that exists while a source reads, in the machine's folder for temporary files.

    It stays locked while its process lives. A file that is there and not locked is that of a source
    which was killed, and is told in one warning. Where there can be no such file, nothing happens.

    Args:
        source: What makes the source different from others: its streams, consumers, endpoint.
        label: The source's name in the warning.
    """

    def __init__(self, source: Iterable[str], label: str) -> None:
        self._file: int | None = None
        name = hashlib.sha256("\n".join(source).encode()).hexdigest()[:24]
        try:
            if fcntl is not None:
                self._path = _folder() / f"{name}.json"
                self._begin(label)
        except OSError as exc:
            logger.debug("no marker is kept: %s", exc)
            self.close()

    def _begin(self, label: str) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = os.read(self._file, 4096)
        killed = _killed_by_kernel()
        now = {"pid": os.getpid(), "at": time.time(), "killed": killed}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(now).encode(), 0)
        if before:
            _tell(label, before, killed)

    def close(self) -> None:
        """Remove the file. Idempotent, never raises."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            # Only who holds the lock may remove it. The lock is ours, or we take it here.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


def _tell(label: str, before: bytes, killed_now: int | None) -> None:
    try:
        found: dict[str, Any] = json.loads(before)
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["at"]))
        pid, killed_before = found["pid"], found["killed"]
    except (ValueError, KeyError, TypeError, OverflowError):
        return  # cut off in the middle
    memory = ""
    if killed_before is not None and killed_now is not None and killed_now > killed_before:
        memory = (
            f" Processes that the machine's kernel has killed for lack of memory since then: "
            f"{killed_now - killed_before}."
        )
    logger.warning(
        "the process that read %s before (pid %s, since %s) ended without stopping: it was killed, "
        "or the machine went down.%s The query goes on from its checkpoint. If memory was short: "
        "docs/reference/errors.md",
        label,
        pid,
        began,
        memory,
    )


def _folder() -> Path:
    """Return our folder, without what was forgotten there.

    Raises:
        OSError: It cannot be had, or is somebody else's.
    """
    folder = Path(tempfile.gettempdir()) / f"kinesis_ds-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder} is somebody else's")
    for old in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _FORGOTTEN_AFTER_S:
                old.unlink()
    return folder


def _killed_by_kernel() -> int | None:
    """Return how many processes Linux has killed for lack of memory; None where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in _KERNEL_COUNTERS.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None
