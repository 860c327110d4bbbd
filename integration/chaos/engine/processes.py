"""The processes of the bare engine: how they are started, and what they have to release."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.support.fast import FastLoop

_GONE_WITHIN_S = 15.0
_from_server = multiprocessing.get_context("forkserver")
_from_server.set_forkserver_preload(["integration.chaos.engine.preload"])
# The driver has no threads, so it can fork. Its children are in its process group and die with it.
_from_driver = multiprocessing.get_context("fork")


@dataclass
class Child:
    """A process and the pipe to it."""

    role: str
    process: Any
    channel: Connection

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.join(10)
        self.channel.close()


def spawn_driver(main: Callable[..., None], folder: Path, *args: Any) -> Child:
    """Start ``main(channel, *args)`` as the leader of a process group, to be killed as a whole."""
    return _spawn(_from_server, "driver", main, folder, args)


def spawn_child(role: str, main: Callable[..., None], folder: Path, *args: Any) -> Child:
    """Start ``main(channel, *args)`` as a child process of the driver."""
    return _spawn(_from_driver, role, main, folder, args)


def _spawn(
    context: Any, role: str, main: Callable[..., None], folder: Path, args: tuple[Any, ...]
) -> Child:
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(role, main, folder, theirs, args), name=role)
    process.start()
    theirs.close()
    return Child(role, process, ours)


def _run(
    role: str,
    main: Callable[..., None],
    folder: Path,
    channel: Connection,
    args: tuple[Any, ...],
) -> None:
    if role == "driver":
        os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    log = folder / "logs" / f"{role}.log"
    handle = log.open("a")
    faulthandler.register(signal.SIGUSR1, handle, all_threads=True)
    logging.basicConfig(
        force=True,  # not into the log of the driver, whose copy this is
        stream=handle,
        level=logging.INFO,
        format=f"%(asctime)s.%(msecs)03d {os.getpid()} %(levelname)s %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("kinesis_ds").setLevel(logging.DEBUG)
    logging.captureWarnings(True)
    asyncio.new_event_loop = FastLoop
    logging.info("started role=%s", role)  # noqa: LOG015
    try:
        main(channel, *args)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        logging.info("nobody is at the other end any more")  # noqa: LOG015
        if role == "driver":
            os.killpg(0, signal.SIGKILL)  # the conductor is gone; nobody else would end these
    except BaseException:
        logging.exception("%s failed", role)  # noqa: LOG015
        raise


def left_over() -> list[str]:
    """Return threads and sockets that this process should have closed; wait for them a moment."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (found := _threads() + _sockets()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _threads() -> list[str]:
    # The second is the clock of `tests/support/fast.py`, which no process ends.
    ours = (threading.main_thread().name, "fast time")
    return [f"thread {t.name}" for t in threading.enumerate() if t.name not in ours]


def _sockets() -> list[str]:
    process = psutil.Process()
    list_them = getattr(process, "net_connections", None) or process.connections
    return [f"socket {c.laddr} {c.raddr} {c.status}" for c in list_them(kind="inet")]
