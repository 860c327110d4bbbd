"""Questions, answers and messages over one connection; the other end is scripted."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.channel import Channel
from kinesis_ds.agent.remote.framing import Deframer, encode
from kinesis_ds.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONG_S = 60.0


def between(story: Callable[[Channel, socket.socket], Awaitable[None]]) -> None:
    """Play a story with a channel and the socket at its other end."""

    async def play() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            channel = Channel(*await asyncio.open_connection(sock=ours))
            try:
                await story(channel, theirs)
            finally:
                channel.abort()

    asyncio.run(play())


async def asked(theirs: socket.socket) -> messages.Question:
    """The question that has come to the other end."""
    data = await asyncio.to_thread(theirs.recv, 65536)
    question = next(Deframer().feed(data))
    assert isinstance(question, messages.Question)
    return question


def test_answers_find_their_questions_and_all_else_is_passed_on() -> None:
    """In whatever order they come; an answer that nobody waits for is dropped."""

    async def story(channel: Channel, theirs: socket.socket) -> None:
        assert not channel.has_spoken
        first = asyncio.create_task(channel.ask(messages.Statistics(0), LONG_S))
        first_call = (await asked(theirs)).call
        second = asyncio.create_task(channel.ask(messages.Statistics(0), LONG_S))
        second_call = (await asked(theirs)).call
        said: list[messages.Message] = [
            messages.Answer(99, "nobody's", None),
            messages.Answer(second_call, None, AccessError("denied")),
            messages.Changed(1),
            messages.Answer(first_call, 7, None),
        ]
        theirs.sendall(b"".join(map(encode, said)))
        theirs.shutdown(socket.SHUT_WR)

        assert [m async for m in channel.received()] == [messages.Changed(1)]
        assert channel.has_spoken
        assert await first == 7
        with pytest.raises(AccessError, match="denied"):
            await second

    between(story)


def test_no_answer_in_time_is_a_timeout() -> None:
    """What it means for the other end is decided by the caller."""

    async def story(channel: Channel, theirs: socket.socket) -> None:
        del theirs
        with pytest.raises(asyncio.TimeoutError):
            await channel.ask(messages.Statistics(0), 0.0)

    between(story)


def test_a_channel_that_is_aborted_answers_with_nothing() -> None:
    """Nobody is left waiting for the dead."""

    async def story(channel: Channel, theirs: socket.socket) -> None:
        waiting = asyncio.create_task(channel.ask(messages.Statistics(0), LONG_S))
        await asked(theirs)
        channel.abort()

        assert await waiting is None

    between(story)


def test_a_channel_that_finishes_still_hears() -> None:
    """The other end sees the connection end, and may say something more before it goes."""

    async def story(channel: Channel, theirs: socket.socket) -> None:
        channel.finish()
        assert await asyncio.to_thread(theirs.recv, 1) == b""
        theirs.sendall(encode(messages.Changed(1)))
        theirs.shutdown(socket.SHUT_WR)

        assert [m async for m in channel.received()] == [messages.Changed(1)]

    between(story)
