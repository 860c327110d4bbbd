"""Wait for something outside this process; tools and tests wait nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotInTimeError(TimeoutError):
    """What was waited for did not happen before the deadline."""


def wait_until(
    condition: Callable[[], T], *, what: str, within_s: float = 30.0, every_s: float = 0.05
) -> T:
    """Return the first true value of `condition`, or raise `NotInTimeError` naming `what`.

    The condition is asked at least once, and once more after the deadline: a machine that stalled
    for the whole time must not fail a wait for something that did happen.
    """
    deadline = time.monotonic() + within_s
    while True:
        late = time.monotonic() >= deadline
        if value := condition():
            return value
        if late:
            raise NotInTimeError(f"{what}: not within {within_s:g} s; last seen {value!r}")
        time.sleep(every_s)
