"""The owner of one server's process tree: runs it, and ends all of it when its own starter is gone.

Run as a program by `devtools.server`. The starter holds the other end of this process's standard
input; the system closes that end however the starter dies, SIGKILL included, and that is the signal
to clean up. On Linux two more nets hang below: orphans of the server are adopted here, so none
escapes by leaving the process group, and the server dies with this process if that is killed.

It uses the standard library alone and no module of ours, as it runs isolated (`python -I`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_S = 0.2


def main() -> int:
    """Run the command until it ends, a signal comes, or the starter is gone; then end its tree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--detached", action="store_true", help="outlive the starter")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    # A handler of ours, though it does nothing: the signal must interrupt the wait, not end us.
    stop_asked, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)

    starter = os.getppid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    server = subprocess.Popen(
        options.command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509  # there are no threads here
    )
    try:
        watched = [stop_asked] if options.detached else [stop_asked, sys.stdin.fileno()]
        while server.poll() is None:
            asked, _, _ = select.select(watched, [], [], _LOOK_EVERY_S)
            # A fork of the starter may hold the pipe open after it; then only this tells.
            orphaned = not options.detached and os.getppid() != starter
            if asked or orphaned:
                break
    finally:
        status = server.poll()
        _end_tree(server)
    return 1 if status is None else abs(status)


def _end_tree(server: subprocess.Popen[bytes]) -> None:
    # These servers keep nothing worth a graceful end, and one of them ignores SIGTERM.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            # Its own children are adopted by us, and are found in the next round.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:  # no Linux: the process group was all there is to end
        return []


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
