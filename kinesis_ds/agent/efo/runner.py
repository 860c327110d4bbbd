"""Reads one shard with SubscribeToShard: performs the instructions of ``efo/machine``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING

import aiohttp

from kinesis_ds.agent.efo.machine import (
    AwaitRoom,
    Broke,
    CheckEnd,
    Close,
    EndChecked,
    Open,
    Opened,
    Progressed,
    ReachedEnd,
    RoomAgain,
    Starved,
    Subscription,
)
from kinesis_ds.agent.efo.silence import SilenceAlarm
from kinesis_ds.agent.efo.undecoded import Undecoded
from kinesis_ds.agent.machine import Instruction, Refused, ShardState
from kinesis_ds.agent.runner import ShardRunner
from kinesis_ds.aws.errors import service_error
from kinesis_ds.aws.read_range import shard_is_drained
from kinesis_ds.codecs import JSONDecodeError, loads
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    TransientError,
    unexpected,
)
from kinesis_ds.plan.position import After, At, AtTimestamp, Position
from kinesis_ds.wire.decode import Event, decode_event, label_protocol_errors
from kinesis_ds.wire.event_stream import Message, MessageParser

if TYPE_CHECKING:
    from kinesis_ds.agent.buffer import ShardBuffer
    from kinesis_ds.agent.context import ShardContext
    from kinesis_ds.agent.executor import ShardExecutor
    from kinesis_ds.agent.pool import BufferPool
    from kinesis_ds.aws.connection import EventStream
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

_SUBSCRIBE_TIMEOUT_S = 60.0
# A message that is no longer than this, and the last that came, is decoded on the loop. A heartbeat
# has some 200 bytes; waking a thread for it, and then the loop again, takes three times as long as
# decoding it.
_AT_ONCE_BYTES = 2048
# So much of a shard waits to be decoded at most, and one message more. Messages are paid for in the
# pool, but their memory does not become that of the records: with a network faster than the
# decoders, memory would be taken twice.
_MAX_UNDECODED_BYTES = 512 * 1024


class SubscriptionRunner(ShardRunner):
    """Reads one shard with subscriptions. All but :meth:`decode` runs on the network loop."""

    machine: Subscription

    def __init__(
        self,
        context: ShardContext,
        machine: Subscription,
        buffer: ShardBuffer,
        pool: BufferPool,
        executor: ShardExecutor,
        network: NetworkLoop,
        clock: Clock,
    ) -> None:
        super().__init__(context, machine, buffer, pool, executor, network, clock)
        self._connection_task: asyncio.Task[None] | None = None
        # Used by the executor only: the position behind the last event, and the generation of which
        # nothing more may be used because one of its events could not be.
        self._received: Position = machine.position
        self._spoilt = 0
        self._undecoded = Undecoded(network)
        # Room of the message that did not get it. Less room than that would not help: the
        # subscription would be opened, find the same message, and be given back again.
        self._starved_for = 0
        self._growth = context.growth.of_a_shard()

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case Open(generation, position):
                self._connection_task = self._spawn(
                    self._stream(generation, position), "subscription"
                )
            case Close():
                if self._connection_task is not None:
                    self._connection_task.cancel()
                    self._connection_task = None
            case AwaitRoom():
                self._await_room()
            case CheckEnd(generation, position):
                self.context.changed()
                self._spawn(self._check_end(generation, position), "end-check")
            case _:
                super()._perform(instruction)

    def _await_room(self) -> None:
        key, needed = self._pool_key, self._starved_for

        def resume() -> None:
            self._pool.change(key, -needed, 0)
            self._listen()
            self.handle(RoomAgain())

        if self._pool.request(key, needed, lambda: self._network.post(resume)):
            resume()

    # --- one connection -------------------------------------------------------------------------

    async def _stream(self, generation: int, position: Position) -> None:
        """Open a subscription and hand its messages to the executor until it ends."""
        connection = self._network.connection
        context = self.context
        opened = False
        try:
            async with contextlib.AsyncExitStack() as stack:
                stream = await asyncio.wait_for(
                    stack.enter_async_context(
                        connection.subscribe(
                            context.options.consumer_arn,
                            context.shard.shard_id,
                            position,
                            context.label,
                        )
                    ),
                    _SUBSCRIBE_TIMEOUT_S,
                )
                if (
                    self.machine.state is not ShardState.OPENING
                    or generation != self.machine.generation
                ):
                    return  # closed in the same moment: wait_for (before 3.12) forgets that
                opened = True
                self.handle(Opened(generation))
                await self._carry(generation, stream)
            ending: KinesisConnectorError | None = None
        except asyncio.TimeoutError:
            ending = TransientError(f"SubscribeToShard for {context.label} was not answered.")
        except KinesisConnectorError as exc:
            ending = exc
        if ending is not None and not isinstance(ending, ResourceInUseError):
            logger.debug("%s: %s", context.label, ending)
        if ending is not None:
            self.counters.count(ending)
        if opened:
            # Through the executor, so that it comes after every event before it was decoded.
            self._executor.submit(lambda: self._network.post(self._broke, generation, ending))
        elif ending is not None:
            self.handle(Refused(generation, ending))

    def _broke(self, generation: int, error: KinesisConnectorError | None) -> None:
        self.context.changed()
        self.handle(Broke(generation, error))

    async def _carry(self, generation: int, stream: EventStream) -> None:
        parser = MessageParser()
        began = False
        room = 0
        alarm = SilenceAlarm(stream.abort, self.context.options.silence_s)
        try:
            while True:
                try:
                    with alarm:
                        chunk = await stream.chunks.__anext__()
                except StopAsyncIteration:
                    break
                self._listen()
                parser.feed(chunk)
                while (size := parser.next_size()) is not None:
                    began = True
                    if not room:
                        # Event by event until it is known how much they grow.
                        await self._undecoded.below(
                            _AT_ONCE_BYTES if self._growth.is_guessed else _MAX_UNDECODED_BYTES
                        )
                        room = await self._room_for(generation, self._growth.room(size))
                    message = parser.take()
                    if message is None:
                        break
                    reserved, room = room, 0
                    self._undecoded.add(size)
                    self._executor.submit(
                        functools.partial(self._decode_queued, generation, message, reserved),
                        at_once=size <= _AT_ONCE_BYTES and not parser.pending,
                    )
        except aiohttp.ClientError as exc:
            if alarm.rang:
                raise TransientError(
                    f"Nothing came from {self.context.label} for "
                    f"{self.context.options.silence_s:g}s, not even a heartbeat."
                ) from exc
            raise
        finally:
            alarm.close()
            if room:
                self._pool.change(self._pool_key, -room, 0)
        if parser.pending and not began:
            raise ProtocolError(
                f"What came from {self.context.label} ended with {parser.pending} bytes that begin "
                "no event. Is the endpoint a Kinesis endpoint?"
            )
        if parser.pending:
            raise TransientError(
                f"The event stream of {self.context.label} was cut inside an event."
            )

    async def _room_for(self, generation: int, size: int) -> int:
        """Reserve room in the pool; while there is none, only this shard stops reading."""
        key = self._pool_key
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()

        def grant() -> None:
            if granted.done():
                self._pool.change(key, -size, 0)  # granted too late: nobody wants it any more
            else:
                granted.set_result(None)

        if self._pool.request(key, size, lambda: self._network.post(grant)):
            return size
        since = self._clock.monotonic()
        self._listen(again=False)
        try:
            # Not wait_for: before Python 3.12 it forgets a cancellation that comes with the result.
            await asyncio.wait({granted}, timeout=self.context.options.idle_timeout_s)
        except asyncio.CancelledError:
            self._pool.withdraw(key)
            if granted.done() and not granted.cancelled():
                self._pool.change(key, -size, 0)
            granted.cancel()
            raise
        finally:
            self.counters.back_pressure_s += self._clock.monotonic() - since
            self._listen()
        if granted.done():
            return size
        self._pool.withdraw(key)
        granted.cancel()
        self._starved_for = size
        self.handle(Starved(generation))  # cancels this task, and asks for room in its own name
        await asyncio.sleep(0)
        raise TransientError(f"{self.context.label} was given back")

    # --- decoding -------------------------------------------------------------------------------

    def _decode_queued(self, generation: int, message: Message, room: int) -> None:
        try:
            self.decode(generation, message, room)
        finally:
            self._undecoded.done(message.size)

    def decode(self, generation: int, message: Message, room: int) -> None:
        """Check, decode and buffer one message. Runs in the shard's executor, so maybe on a thread.

        A message that cannot be used ends the connection: those behind it must not be used either.
        """
        try:
            if generation == self._spoilt or generation != self.machine.generation:
                # Replaced, or an event before this one was bad: a later connection reads it again.
                self._pool.change(self._pool_key, -room, 0)
                return
            message.check()
            headers = message.headers()
            if headers.get(":message-type") in ("exception", "error"):
                raise service_error(
                    "SubscribeToShard",
                    self.context.label,
                    headers.get(":exception-type")
                    or headers.get(":error-code")
                    or "UnknownException",
                    headers.get(":error-message") or _message_of(message.payload),
                )
            if ":event-type" not in headers:
                raise ProtocolError("An event came without its type, so what it holds is unknown.")
            if headers[":event-type"] != "SubscribeToShardEvent":
                self._pool.change(self._pool_key, -room, 0)
                return
            with label_protocol_errors(self.context.label):
                event = decode_event(message.payload, self._received, self.context.decoding)
            rows = event.records.batch.num_rows if event.records else 0
            position = self._next_position(event)
        except Exception as exc:
            # Whatever it is, the events behind this one must not be taken without it.
            self._spoilt = generation
            self._pool.change(self._pool_key, -room, 0)
            if not isinstance(exc, KinesisConnectorError):
                exc = unexpected(exc, self.context.label)
            self._network.post(self._abandon, generation, exc)
            return
        self._received = position
        if event.records is not None:
            self._growth.learn(message.size, event.records.batch.nbytes)
        self.buffer.append(event.records, position, room)
        self._note_heard(event.millis_behind)
        self.counters.records += rows
        if event.records is not None:
            self.counters.leave_out(event.records.misplaced, self.context.label)
        self.counters.bytes += message.size
        if event.continuation is None or event.has_children:
            more = event.continuation is not None
            reached = ReachedEnd(generation, event.has_children, more, position)
            self._network.post(self.handle, reached)
        else:
            self._network.post(
                self.handle, Progressed(generation, position, rows, event.millis_behind)
            )

    def _next_position(self, event: Event) -> Position:
        """Return where to go on after an event.

        A continuation is taken only when it can be resumed from: some servers send "0" before the
        first record. While everything that arrives is older than the wanted time, the position
        stays that time, so that a range read again from Kinesis drops the same records.
        """
        current = self._received
        last = event.records.end if event.records is not None else None
        dropped_all = event.received > 0 and last is None
        if event.continuation is not None and not (
            dropped_all and isinstance(current, AtTimestamp)
        ):
            number = int(event.continuation)
            if (
                number >= int(self.context.shard.first_sequence_number)
                and number > 0
                and (last is None or number >= last.number)
                and not (isinstance(current, (At, After)) and number < current.number)
            ):
                return After(event.continuation, self._seen_ms(event))
        if last is not None:
            return After(last.sequence_number, self._seen_ms(event))
        if isinstance(current, After) and not event.received:
            return After(current.sequence_number, self._seen_ms(event))
        return current

    def _seen_ms(self, event: Event) -> int:
        """Return up to which moment the shard is known, in ms since the epoch. Never steps back."""
        arrived_ms = event.records.end.seen_ms if event.records is not None else None
        if arrived_ms is None:
            arrived_ms = int(self._clock.wall() * 1000) - event.millis_behind
        before = self._received.seen_ms if isinstance(self._received, After) else None
        return max(before or 0, arrived_ms)

    def _abandon(self, generation: int, error: KinesisConnectorError) -> None:
        """End the connection behind the last event that could be used."""
        self.counters.count(error)
        if generation == self.machine.generation:
            if self._connection_task is not None:
                self._connection_task.cancel()
                self._connection_task = None
            self._broke(generation, error)

    # --- questions ------------------------------------------------------------------------------

    async def _check_end(self, generation: int, position: Position) -> None:
        context = self.context
        ended = gone = False
        denied: AccessError | None = None
        try:
            ended = await shard_is_drained(
                self._network.connection,
                context.options.stream_arn,
                context.shard.shard_id,
                position,
                context.label,
                self._clock,
            )
        except KinesisConnectorError as exc:
            self.counters.count(exc)
            gone = isinstance(exc, StreamNotFoundError)
            denied = exc if isinstance(exc, AccessError) else None
        self.handle(EndChecked(generation, ended, gone, denied))


def _message_of(payload: memoryview) -> str:
    try:
        parsed = loads(payload)
    except JSONDecodeError:
        return ""
    if not isinstance(parsed, dict):
        return ""
    said = parsed.get("message") or parsed.get("Message")
    return said if isinstance(said, str) else ""
