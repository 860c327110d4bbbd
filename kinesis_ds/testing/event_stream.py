"""Send the events of one subscription over its connection, with the faults that strike it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.testing import frames
from kinesis_ds.testing.faults import (
    Alter,
    CloseStream,
    Corrupt,
    Cut,
    OutliveTakeover,
    Pause,
    Raise,
    Repeat,
    SendBytes,
    Stall,
    StreamAction,
    Trickle,
)
from kinesis_ds.testing.subscription import End, Fail, Send, Subscription, Wait

if TYPE_CHECKING:
    from kinesis_ds.testing.clock import Changes, ServerClock
    from kinesis_ds.testing.fault_script import StreamFaults
    from kinesis_ds.testing.http import Reply
    from kinesis_ds.testing.replay import Replay


# What a replaced subscription's client gets to take what is still to be said, in real seconds.
_LAST_WORDS_S = 0.5


class TakenOver(Exception):  # noqa: N818  # what happened, not an error of anybody
    """The client did not read while another subscription took over; the connection was torn."""


@dataclass
class EventStreamWriter:
    """Sends a subscription's events until the account, or a fault, ends it.

    Attributes:
        reply: The answer to send them in, already started.
        subscription: Says what to send, and when.
        faults: What goes wrong in this subscription.
        clock: Tells the account and the faults the time.
        changes: Wakes it when something in the account has changed.
        replay: Events to send in place of the subscription's; None for none.
    """

    reply: Reply
    subscription: Subscription
    faults: StreamFaults
    clock: ServerClock
    changes: Changes
    replay: Replay | None
    _piece: int = field(default=0, init=False)
    _outlive: int = field(default=0, init=False)

    @property
    def _key(self) -> tuple[str, str]:
        return self.subscription.stream_name, self.subscription.shard_id

    async def run(self, position: Mapping[str, Any]) -> None:
        """Send until the stream ends.

        Args:
            position: The request's StartingPosition, for a replay.

        Raises:
            TakenOver: The connection was torn, since another subscription took over and the client
                did not read.
        """
        if not await self._event(0, frames.initial_message(), None):
            return
        if self.replay is not None:
            for chunk in self.replay.chunks_from(position):
                await self._write(chunk)
            while True:
                await self.changes.sleep(self.replay.heartbeat_s)
                await self._write(self.replay.heartbeat())
        number = 0
        while True:
            ticket = self.changes.ticket(self._key)
            late = self.subscription.superseded and self._outlive > 0
            if late:
                self.subscription.superseded = False  # as if it did not know yet
            step = self.subscription.next(self.clock.wall())
            if late:
                self.subscription.superseded = True
                self._outlive -= isinstance(step, Send)
            match step:
                case Wait():
                    await self.changes.wait(self._key, ticket, step.until)
                case Send():
                    number += 1
                    frame = frames.event_message(step.payload)
                    if not await self._event(number, frame, step.payload):
                        return
                case Fail():
                    await self._write(frames.exception_message(step.code, step.message))
                    await self.reply.end()
                    return
                case End():
                    await self.reply.end()
                    return

    async def _event(self, number: int, frame: bytes, payload: bytes | None) -> bool:
        """Send one event with the faults that strike it; return whether the stream goes on."""
        copies = 1
        for action in self.faults.at_event(number, self.clock.wall()):
            match action:
                case Repeat():
                    copies += action.times
                case Alter() if payload is not None:
                    payload = _altered(payload, action)
                    frame = frames.event_message(payload)
                case Corrupt():
                    damaged = bytearray(frame)
                    at = min(max(action.byte, -len(damaged)), len(damaged) - 1)
                    damaged[at] ^= 0xFF
                    frame = bytes(damaged)
                case _:
                    if not await self._act(action, frame):
                        return False
        for _ in range(copies):
            await self._write(frame)
        return True

    async def _act(self, action: StreamAction, frame: bytes) -> bool:
        """Do what happens before or instead of a frame; return whether the frame is still sent."""
        match action:
            case Stall():
                await self._until_gone()
            case Pause():
                await self.changes.sleep(action.seconds)
            case SendBytes():
                await self._write(action.data)
            case Trickle():
                self._piece = action.size
            case OutliveTakeover():
                self._outlive = action.events
            case CloseStream():
                await self.reply.end()
                return False
            case Cut():
                await self._write(frame[: action.byte])
                if action.properly:
                    await self.reply.end()
                else:
                    self.reply.tear()
                return False
            case Raise():
                await self._write(frames.exception_message(action.code, action.message))
                await self.reply.end()
                return False
        return True

    async def _write(self, data: bytes) -> None:
        if not self._piece:
            await self._write_whole(data)
            return
        for at in range(0, len(data), self._piece):
            await self._write_whole(data[at : at + self._piece])

    async def _write_whole(self, data: bytes) -> None:
        """Write; cut off a client that does not read once another subscription has taken over."""
        if not data:
            return
        writing = asyncio.ensure_future(self.reply.write(data))
        try:
            while not writing.done():
                ticket = self.changes.ticket(self._key)
                if self.subscription.superseded and not self._outlive:
                    await asyncio.wait({writing}, timeout=_LAST_WORDS_S)
                    if not writing.done():
                        self.reply.tear(at_once=True)
                        raise TakenOver
                    break
                waiting = asyncio.ensure_future(self.changes.wait(self._key, ticket))
                try:
                    await asyncio.wait({writing, waiting}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
            writing.result()
        finally:
            writing.cancel()

    async def _until_gone(self) -> None:
        """Hold the connection until its client leaves, which cancels this."""
        await asyncio.get_running_loop().create_future()


def _altered(payload: bytes, change: Alter) -> bytes:
    event = orjson.loads(payload)
    event.update(change.put)
    for name in change.drop:
        event.pop(name, None)
    return orjson.dumps(event)
