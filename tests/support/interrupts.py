"""Press Ctrl-C at a chosen moment, wherever the main thread is then."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from tests.support.polling import eventually


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Let the signal through.

    Tests started in the background may have inherited that it is ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_when(condition: Callable[[], object]) -> threading.Thread:
    """Press Ctrl-C as soon as the condition holds."""

    def run() -> None:
        eventually(condition, "the moment of the interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
