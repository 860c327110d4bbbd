"""Speak with an agent over one connection: messages in both directions, questions and answers.

Knows nothing of what carries the bytes, nor of who is at the other end: it is given the two
streams of an open connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import Deframer, encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_READ_BYTES = 65536


class Channel:
    """The parent's end of a control connection. Use it on the loop of its streams only.

    Attributes:
        heard_at: When the last message came, in seconds of ``time.monotonic``; before the first
            one, when the channel was opened.
        has_spoken: Whether any message has come.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._calls = itertools.count(1)
        self.heard_at = time.monotonic()
        self.has_spoken = False

    def send(self, message: messages.Message) -> None:
        """Send a message without waiting; it is lost if nobody is at the other end."""
        self._writer.write(encode(message))

    async def ask(self, question: messages.Question, within_s: float) -> Any:
        """Send a question and return the answer; None if the channel is aborted first.

        Somebody must be iterating over :meth:`received` meanwhile.

        Raises:
            asyncio.TimeoutError: No answer came within ``within_s`` seconds.
            KinesisConnectorError: The other end could not answer, and said why.
        """
        call = next(self._calls)
        future = self._answers[call] = asyncio.get_running_loop().create_future()
        try:
            self.send(replace(question, call=call))
            return await asyncio.wait_for(future, within_s)
        finally:
            del self._answers[call]

    async def received(self) -> AsyncGenerator[messages.Message, None]:
        """Yield each message that comes, except answers, until the connection ends.

        Raises:
            AgentError: What came is not a message.
        """
        deframer = Deframer()
        with contextlib.suppress(OSError):
            while data := await self._reader.read(_READ_BYTES):
                for message in deframer.feed(data):
                    self.heard_at, self.has_spoken = time.monotonic(), True
                    match message:
                        case messages.Answer(call, value, error):
                            self._answered(call, value, error)
                        case _:
                            yield message

    def _answered(self, call: int, value: Any, error: Exception | None) -> None:
        future = self._answers.get(call)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def finish(self) -> None:
        """Send nothing more. The other end sees the connection end, and is expected to leave."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def abort(self) -> None:
        """Close the connection at once. Every question that is open is answered with None."""
        self._writer.transport.abort()
        for future in self._answers.values():
            if not future.done():
                future.set_result(None)
