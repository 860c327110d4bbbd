"""Ctrl-C at a chosen moment: it meets the main thread wherever that is."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from tests.support.polling import eventually


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Whoever starts the tests in the background may have told them to ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_when(condition: Callable[[], object]) -> threading.Thread:
    """Ctrl-C, as soon as the condition holds."""

    def run() -> None:
        eventually(condition, "the moment of the interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
