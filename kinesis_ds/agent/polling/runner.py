"""Reads one shard with GetRecords: performs the instructions of ``polling/machine``."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from kinesis_ds.agent.machine import Instruction, Refused, ShardState
from kinesis_ds.agent.polling.machine import (
    Accepted,
    AskRoom,
    Cancel,
    Locate,
    Located,
    Polling,
    Read,
    Received,
    RoomGiven,
    TooLarge,
)
from kinesis_ds.agent.runner import ShardRunner
from kinesis_ds.aws.answers import json_object
from kinesis_ds.aws.get_records import Page, get_records_request, parse_page, shard_iterator
from kinesis_ds.errors import KinesisConnectorError, unexpected
from kinesis_ds.plan.position import After, AtTimestamp, Position
from kinesis_ds.wire.decode import Records, decode_records, label_protocol_errors

if TYPE_CHECKING:
    import asyncio

    from kinesis_ds.agent.buffer import ShardBuffer
    from kinesis_ds.agent.context import ShardContext
    from kinesis_ds.agent.executor import ShardExecutor
    from kinesis_ds.agent.pool import BufferPool
    from kinesis_ds.aws.connection import Answer
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)


# A start at a time stays so far behind the service's clock: no record arrives at a time that long
# ago any more.
_TIMES_LAG_MS = 60_000


class PollingRunner(ShardRunner):
    """Reads one shard with GetRecords. All but :meth:`decode` runs on the network loop."""

    machine: Polling

    def __init__(
        self,
        context: ShardContext,
        machine: Polling,
        buffer: ShardBuffer,
        pool: BufferPool,
        executor: ShardExecutor,
        network: NetworkLoop,
        clock: Clock,
    ) -> None:
        super().__init__(context, machine, buffer, pool, executor, network, clock)
        self._call: asyncio.Task[None] | None = None
        # Asked for and not given yet, since when; then given, and not yet with a call.
        self._asking_since: float | None = None
        self._room: _Reserved | None = None
        # Used by the executor only: the position behind what it has decoded.
        self._received: Position = machine.position

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case AskRoom(generation, nbytes, least):
                self._ask_room(generation, nbytes, least)
            case Locate(generation, start):
                self._call = self._spawn(self._locate(generation, start), "iterator")
            case Read(generation, iterator, limit):
                room, self._room = self._room, None
                assert room is not None
                self._call = self._spawn(self._read(generation, iterator, limit, room), "poll")
            case Cancel():
                self._cancel()
            case _:
                super()._perform(instruction)

    # --- room -----------------------------------------------------------------------------------

    def _ask_room(self, generation: int, nbytes: int, least: int) -> None:
        """Reserve room for the next answer: up to ``nbytes`` now, or wait for ``least``.

        Only this shard stands still while there is no room. It never waits for more than ``least``:
        its own share of the pool is there for it, whatever the others hold.
        """
        key = self._pool_key
        self._asking_since = self._clock.monotonic()
        while True:
            room = _Reserved(self._pool, key, nbytes)
            granted = functools.partial(self._network.post, self._on_room, generation, room)
            if self._pool.request(key, nbytes, granted):
                self._take_room(generation, room)
                return
            if nbytes <= least or not self._pool.withdraw(key):
                # It comes, or it came between the two questions and is on its way.
                self._listen(again=False)
                return
            nbytes = max(least, nbytes // 2)

    def _on_room(self, generation: int, room: _Reserved) -> None:
        if self._asking_since is None:
            room.give_back()  # stopped meanwhile
            return
        self._listen()
        self.counters.back_pressure_s += self._clock.monotonic() - self._asking_since
        self._take_room(generation, room)

    def _take_room(self, generation: int, room: _Reserved) -> None:
        self._asking_since = None
        self._room = room
        self.handle(RoomGiven(generation, room.size, round(self._clock.wall() * 1000)))

    def _cancel(self) -> None:
        """Give back the room that no call has yet, and cancel the call under way.

        A cancelled call gives back its room itself; what the executor has, it still decodes.
        """
        if self._asking_since is not None:
            self._asking_since = None
            self._pool.withdraw(self._pool_key)
        if self._room is not None:
            self._room.give_back()
            self._room = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    # --- calls ----------------------------------------------------------------------------------

    async def _locate(self, generation: int, start: Position) -> None:
        context = self.context
        self.counters.calls += 1
        try:
            iterator = await shard_iterator(
                self._network.connection,
                context.options.stream_arn,
                context.shard.shard_id,
                start,
                context.label,
            )
        except KinesisConnectorError as exc:
            if self._room is not None:
                self._room.give_back()
                self._room = None
            self._refused(generation, exc)
            return
        self.handle(Located(generation, iterator))

    async def _read(self, generation: int, iterator: str, limit: int, room: _Reserved) -> None:
        """Call GetRecords. Its room goes to the executor with the answer, or is given back."""
        self.counters.calls += 1
        kept = False
        try:
            request = get_records_request(self.context.options.stream_arn, iterator, limit)
            async with self._network.connection.answer(
                "GetRecords", request, self.context.label
            ) as answer:
                found = await self._take_in(answer, room)
            kept = isinstance(found, bytes)
        except KinesisConnectorError as exc:
            self._refused(generation, exc)
            return
        finally:
            if not kept:
                room.give_back()
        if isinstance(found, int):
            self.handle(TooLarge(generation, found))
            return
        self.handle(Received(generation))
        self._executor.submit(
            functools.partial(self.decode, generation, found, room, answer.served_ms)
        )

    async def _take_in(self, answer: Answer, room: _Reserved) -> bytes | int:
        """Return the whole answer; or its size, as far as known, if there is no room for it."""
        needed = self.machine.room_for
        if answer.length is not None and not room.grow(needed(answer.length)):
            return answer.length
        chunks: list[bytes] = []
        size = 0
        async for chunk in answer.chunks:
            size += len(chunk)
            if not room.grow(needed(size)):
                return size
            chunks.append(chunk)
        return b"".join(chunks)

    def _refused(self, generation: int, error: KinesisConnectorError) -> None:
        logger.debug("%s: %s", self.context.label, error)
        if error.code != "ExpiredIteratorException":  # as normal as the end of a subscription
            self.counters.count(error)
            self.context.changed()
        self.handle(Refused(generation, error))

    # --- decoding -------------------------------------------------------------------------------

    def decode(self, generation: int, body: bytes, room: _Reserved, served_ms: int | None) -> None:
        """Check, decode and buffer one answer. Runs in the shard's executor, on a thread."""
        if self.machine.state is not ShardState.DECODING or generation != self.machine.generation:
            room.give_back()  # stopped meanwhile
            return
        label = self.context.label
        try:
            page = parse_page(json_object(body, "GetRecords", label), label)
            with label_protocol_errors(label):
                records = decode_records(page.records, self._received, self.context.decoding)
            position = self._position_behind(page, records, served_ms)
            payload = _payload(page)
        except Exception as exc:
            # Whatever it is, nothing behind this answer may be taken without it.
            room.give_back()
            if not isinstance(exc, KinesisConnectorError):
                exc = unexpected(exc, label)
            self._network.post(self._refused, generation, exc)
            return
        self._received = position
        self.buffer.append(records, position, room.size)
        self._note_heard(page.behind_ms)
        counters = self.counters
        counters.empty += not page.records
        if records is not None:
            counters.records += records.batch.num_rows
            counters.leave_out(records.misplaced, label)
        counters.bytes += len(body)
        self._network.post(
            self.handle,
            Accepted(
                generation,
                position,
                len(page.records),
                page.behind_ms,
                page.following,
                len(body),
                payload,
                page.has_children,
                records.batch.nbytes if records is not None else 0,
            ),
        )

    def _position_behind(
        self, page: Page, records: Records | None, served_ms: int | None
    ) -> Position:
        """Return up to where the shard is read after an answer.

        Where nothing new came, the sequence number stays. But the shard is now known to hold
        nothing up to the moment of the answer, less how far the answer is behind the tip; by the
        service's clock, not ours, as records arrive by that one. A start at a time moves on with
        that moment, at a distance, so that the start of a query that waits for its first record
        does not expire.
        """
        current = self._received
        if records is not None:
            return records.end
        if served_ms is None:
            return current
        seen_ms = served_ms - page.behind_ms
        if isinstance(current, After):
            return After(current.sequence_number, max(current.seen_ms or 0, seen_ms))
        if isinstance(current, AtTimestamp):
            return AtTimestamp(max(current.ms, seen_ms - _TIMES_LAG_MS))
        return current


class _Reserved:
    """Room in the pool for one answer."""

    def __init__(self, pool: BufferPool, pool_key: str, size: int) -> None:
        self.size = size
        self._pool = pool
        self._pool_key = pool_key

    def grow(self, size: int) -> bool:
        """Reserve ``size`` bytes in all. Never waits; False if the pool has less just now."""
        more = size - self.size
        if more <= 0:
            return True
        if not self._pool.request(self._pool_key, more, _nothing) and self._pool.withdraw(
            self._pool_key
        ):
            return False
        # At once, or by another thread between the two questions.
        self.size = size
        return True

    def give_back(self) -> None:
        """Return the room to the pool. Idempotent."""
        size, self.size = self.size, 0
        self._pool.change(self._pool_key, -size, 0)


def _nothing() -> None:
    """Do nothing: nobody waits for room that is not there at once."""


def _payload(page: Page) -> int:
    """Return about how many bytes of data and keys the service counts against the shard."""
    return sum(
        len(record["Data"]) * 3 // 4 + len(record.get("PartitionKey") or "")
        for record in page.records
    )
