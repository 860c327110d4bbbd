"""Speak with an agent over one connection: messages in both directions, questions and answers.

Knows nothing of what carries the bytes, nor of who is at the other end: it is given the two
streams of an open connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import Deframer, encode
from kinesis_ds.agent.remote.open_calls import OpenCalls

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
        self._calls = OpenCalls()
        self.heard_at = time.monotonic()
        self.has_spoken = False

    def send(self, message: messages.Message) -> None:
        """Send a message without waiting; it is lost if nobody is at the other end."""
        self._writer.write(encode(message))

    async def ask(self, question: messages.Question, within_s: float) -> Any:
        """Send a question and return the answer, as the question's class describes it; None if the
        other end does not know the agent, or the channel is aborted first.

        Somebody must be iterating over :meth:`received` meanwhile.

        Raises:
            asyncio.TimeoutError: No answer came within ``within_s`` seconds.
            KinesisConnectorError: The other end could not answer, and said why.
        """
        with self._calls.open() as (call, future):
            self.send(replace(question, call=call))
            value = await asyncio.wait_for(future, within_s)
        return None if value is None else question.answer.from_wire(value)

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
                    if isinstance(message, messages.Answer):
                        self._calls.answer(message.call, message.value, message.error)
                    else:
                        yield message

    def finish(self) -> None:
        """Send nothing more. The other end sees the connection end, and is expected to leave."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def abort(self) -> None:
        """Close the connection at once. Every question that is open is answered with None."""
        self._writer.transport.abort()
        self._calls.give_up()
