"""Pair answers with the questions that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any


class OpenCalls:
    """The questions of one side that wait for their answers, by number. Use it on one loop."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """Give a new question's number and its answer to come; forget both at the block's end."""
        call = next(self._numbers)
        future = self._waiting[call] = asyncio.get_running_loop().create_future()
        try:
            yield call, future
        finally:
            del self._waiting[call]

    def answer(self, call: int, value: Any, error: Exception | None) -> None:
        """Give a question its answer, or the error that takes its place.

        Does nothing if nobody waits for the answer any more.
        """
        future = self._waiting.get(call)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def give_up(self) -> None:
        """Answer every question with None."""
        for call in self._waiting:
            self.answer(call, None, None)
