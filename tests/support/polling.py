"""Wait for something that another thread does, until a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str = "", within_s: float = 120.0) -> T:
    """Ask again and again until the answer is true; return the answer.

    Raises:
        AssertionError: The answer was not true before the deadline.
    """
    deadline = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g}s: {what or look}; last seen {found!r}")
        time.sleep(0.002)
    return found
