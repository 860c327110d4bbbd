"""One shard read with GetRecords, as a state machine. Pure: no clock, no sockets, no asyncio.

Everything that affects how a shard is polled is decided here, and in
:mod:`kinesis_ds.agent.machine` what is the same for a subscription. It is long because a state
machine is read in one piece.
:mod:`kinesis_ds.agent.polling.runner` turns what happens into stimuli, calls :meth:`Polling.handle`
with the time, and performs the instructions that come back.

States and the stimuli that leave them::

    WAITING    --Tick (due)-----> PARKED      (AskRoom)
    PARKED     --RoomGiven------> READING     (Read) | LOCATING (Locate: no iterator, or an old one)
    LOCATING   --Located--------> READING     (Read, at once)
    LOCATING   --Refused--------> WAITING | DIAGNOSING (Diagnose) | FAILED
    READING    --Received-------> DECODING
    READING    --TooLarge-------> WAITING     (the next call has more room)
    READING    --Refused--------> WAITING | DIAGNOSING | FAILED
    DECODING   --Accepted-------> WAITING | ENDED (Finish)
    DECODING   --Refused--------> WAITING | FAILED
    DIAGNOSING --Diagnosed------> WAITING | FAILED | ENDED
    any        --Stop-----------> STOPPED     (Cancel)

Rules kept here. All readers of a shard share its 5 calls and 2 MiB a second (see ``limits``), and
:mod:`~kinesis_ds.agent.polling.pace` leaves others their turn between two calls. Room for an answer
is asked for before the call: a shard that has none holds no connection, and an iterator that got
old while it waited is replaced before it is used. A fresh iterator starts behind the last record
*read*, and is used at once.

An empty answer means "nothing" only at the tip. Behind it (``MillisBehindLatest`` above 0) the
shard holds an empty stretch, and the next iterator goes on from the middle of it. No sequence
number can say so: the position stays, and only the moment up to which the shard was seen to be
empty moves on (``After.seen_ms``).

Each poll has a generation number. What comes from an older one is dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kinesis_ds.agent.growth import StreamGrowth
from kinesis_ds.agent.machine import (
    DIAGNOSE_AFTER,
    Instruction,
    Refused,
    ShardClosed,
    ShardMachine,
    ShardState,
    Stimulus,
    Warn,
)
from kinesis_ds.agent.polling.answer_size import AnswerSize
from kinesis_ds.agent.polling.pace import PollingPace
from kinesis_ds.errors import (
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    StreamNotFoundError,
)
from kinesis_ds.limits import (
    RETENTION_HOURS_DEFAULT,
    SHARD_ITERATOR_LIFETIME_S,
)
from kinesis_ds.plan.loss import records_expired
from kinesis_ds.plan.position import (
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    refuses_position,
)

if TYPE_CHECKING:
    import random

    from kinesis_ds.agent.growth import Growth
    from kinesis_ds.options.read import PollingOptions

# Older than this an iterator is not worth the call: it may have expired when it gets there.
_ITERATOR_USED_S = SHARD_ITERATOR_LIFETIME_S - 30.0
_THROTTLED_WARNING_S = 30.0
# How much earlier than ``seen_ms`` reading starts when that moment is all that is left to go by,
# and how much younger than the retention it must be. Clocks differ, answers tell theirs in whole
# seconds, and a record is readable a moment after its arrival. What is read twice is dropped.
_TIME_MARGIN_MS = 60_000


# --- stimuli, beside those of every machine -------------------------------------------------------


@dataclass(frozen=True)
class RoomGiven(Stimulus):
    """Room is reserved: as much as was asked for, or less.

    Attributes:
        nbytes: How much it is.
        wall_ms: The time now, in milliseconds since the epoch.
    """

    generation: int
    nbytes: int
    wall_ms: int


@dataclass(frozen=True)
class Located(Stimulus):
    """GetShardIterator answered with an iterator."""

    generation: int
    iterator: str


@dataclass(frozen=True)
class Received(Stimulus):
    """GetRecords answered; the answer is with the shard's executor."""

    generation: int


@dataclass(frozen=True)
class TooLarge(Stimulus):
    """GetRecords answered with ``size`` bytes or more, for which there was no room.

    None of it was kept.
    """

    generation: int
    size: int


@dataclass(frozen=True)
class Accepted(Stimulus):
    """An answer was decoded and its records are in the buffer.

    Attributes:
        position: Behind those records; the position before, where there were none.
        records: How many the answer held, those dropped included.
        millis_behind: How far behind the tip it was.
        following: The next iterator; None at the end of the shard.
        size: Of the answer, in bytes.
        payload: Bytes of data and keys, which count against the shard's limit.
        has_children: Whether it named child shards.
        held: Bytes of its records in the buffer.
    """

    generation: int
    position: Position
    records: int
    millis_behind: int
    following: str | None
    size: int
    payload: int
    has_children: bool = False
    held: int = 0


# --- instructions, beside those of every machine --------------------------------------------------


@dataclass(frozen=True)
class AskRoom(Instruction):
    """Reserve bytes in the pool and send RoomGiven: ``nbytes``, or what can be had at once.

    When that is less than ``least``, it is worth waiting for as many.
    """

    generation: int
    nbytes: int
    least: int


@dataclass(frozen=True)
class Locate(Instruction):
    """Call GetShardIterator."""

    generation: int
    start: Position


@dataclass(frozen=True)
class Read(Instruction):
    """Call GetRecords for at most ``limit`` records."""

    generation: int
    iterator: str
    limit: int


@dataclass(frozen=True)
class Cancel(Instruction):
    """End what is under way, and give back the room that it has or waits for."""


class _From(Enum):
    """The start of a fresh iterator: the position, the time in it, or the oldest record."""

    POSITION = "position"
    SEEN = "seen"
    OLDEST = "oldest"


class Polling(ShardMachine):
    """Decides how one shard is polled.

    Args:
        options: How fast to poll.
        buffer_bytes: Room of all shards together; an answer is asked for that takes a quarter at
            most.
        retention_s: How long the stream keeps records, in seconds; None where that is not known.
        growth: Of the shard's records; None: they take no more than the answers they come in.
    """

    _first_backoff_s = 0.25
    _backoff_cap_s = 10.0

    def __init__(
        self,
        shard: str,
        position: Position,
        options: PollingOptions,
        *,
        buffer_bytes: int,
        fail_on_data_loss: bool = True,
        retention_s: float | None = None,
        growth: Growth | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(shard, position, fail_on_data_loss=fail_on_data_loss, rng=rng)
        self._pace = PollingPace(options, self._rng)
        self._size = AnswerSize(
            options.max_records,
            options.bytes_per_s,
            buffer_bytes,
            growth or StreamGrowth().of_a_shard(),
        )
        self._retention_s = retention_s
        self._from = _From.POSITION
        self._iterator: str | None = None
        self._iterator_since = 0.0
        self._iterator_fresh = False
        self._located = False
        # Of the poll under way: when it got its room, and for how many records that is.
        self._wall_ms = 0
        self._limit = 1
        self._end_doubted = False
        self._expiries = 0
        self._unknown: StreamNotFoundError | None = None
        self._throttled_since: float | None = None
        self._throttling_warned = False

    def _on(self, stimulus: Stimulus, now: float) -> list[Instruction] | None:
        match stimulus:
            case ShardClosed():
                self._closed = True
                return []
            case RoomGiven() if self.state is ShardState.PARKED:
                return self._on_room(stimulus, now)
            case Located() if self.state is ShardState.LOCATING:
                self._keep(stimulus.iterator, now, fresh=True)
                return self._read(stimulus.iterator)
            case Received() if self.state is ShardState.READING:
                self.state = ShardState.DECODING
                self._pace.answered(now)
                return []
            case TooLarge() if self.state is ShardState.READING:
                self._pace.answered(now)
                self._pace.pay(stimulus.size * 3 // 4)
                self._size.refused(stimulus.size, self._limit)
                return self._wait(now)
            case Accepted() if self.state is ShardState.DECODING:
                return self._on_accepted(stimulus, now)
            case Refused() if self.state in (ShardState.LOCATING, ShardState.READING):
                self._pace.answered(now)
                return self._on_failure(stimulus.error, now)
            case Refused() if self.state is ShardState.DECODING:
                return self._on_failure(stimulus.error, now)
        return None

    def room_for(self, wire: int) -> int:
        """Return how much room the records of an answer of ``wire`` bytes are expected to take."""
        return self._size.room_for(wire, self._limit)

    # --- the way of a poll ----------------------------------------------------------------------

    def _begin(self, now: float) -> list[Instruction]:
        self.state = ShardState.PARKED
        return [AskRoom(self.generation, self._size.room(), self._size.least())]

    def _on_room(self, room: RoomGiven, now: float) -> list[Instruction]:
        self._wall_ms = room.wall_ms
        self._limit = self._size.limit(room.nbytes)
        if self._iterator is not None and now - self._iterator_since < _ITERATOR_USED_S:
            return self._read(self._iterator)
        warnings: list[Instruction] = []
        # A start was looked at by whoever gave it; this is what became of it since.
        if self._located and self._from is not _From.OLDEST and self._expired():
            warnings = self._go_to_oldest(
                "Nothing was read there for longer than the stream keeps records."
            )
            if self.state is ShardState.FAILED:
                return warnings
        self.renewals += self._located
        self._located = True
        self.state = ShardState.LOCATING
        return [*warnings, Locate(self.generation, self._start())]

    def _start(self) -> Position:
        """Return where a fresh iterator starts. What is read before ``position`` is dropped."""
        if self._from is _From.OLDEST:
            return TRIM_HORIZON
        if self._from is _From.SEEN:
            assert isinstance(self.position, After)
            return AtTimestamp(max(0, (self.position.seen_ms or 0) - _TIME_MARGIN_MS))
        return self.position

    def _read(self, iterator: str) -> list[Instruction]:
        self.state = ShardState.READING
        return [Read(self.generation, iterator, self._limit)]

    def _on_accepted(self, answer: Accepted, now: float) -> list[Instruction]:
        if answer.position != self.position:
            self._from = _From.POSITION
        self.position = answer.position
        self.failures = self._expiries = self._protocol_failures = 0
        self._throttled_since = None
        self._pace.pay(answer.payload)
        self._size.learn(answer.size, answer.records, answer.held, more=answer.millis_behind > 0)
        if answer.following is None:
            return self._on_end(answer, now)
        self._end_doubted = False
        self._keep(answer.following, self._pace.answered_at, fresh=False)
        self._pace.learn(nothing_new=not (answer.records or answer.millis_behind))
        return self._wait(now)

    def _on_end(self, answer: Accepted, now: float) -> list[Instruction]:
        """Believe an end that names the children, or of a shard that is listed as closed.

        Any other is asked for again first: an end cannot be taken back.
        """
        if answer.has_children or self._closed or self._end_doubted:
            return self._finish()
        self._end_doubted = True
        self._iterator = None
        return self._wait(now)

    def _keep(self, iterator: str, since: float, *, fresh: bool) -> None:
        self._iterator, self._iterator_since, self._iterator_fresh = iterator, since, fresh

    # --- failures -------------------------------------------------------------------------------

    def _on_failure(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        if error.code == "ExpiredIteratorException":
            # Normal, once. An iterator that is too old as soon as it is made is not.
            self._iterator = None
            self._expiries += 1
            self.failures += self._expiries > 1
            return self._wait(now, backoff=self._expiries > 1)
        if isinstance(error, StreamNotFoundError):
            self._unknown = error if self.state is ShardState.LOCATING else None
        if isinstance(error, ProtocolError):
            self._iterator = None
        instructions = super()._on_failure(error, now)
        if error.code == "ProvisionedThroughputExceededException":
            instructions += self._on_throttled(now)
        return instructions

    def _on_throttled(self, now: float) -> list[Instruction]:
        """Warn, once, when the shard has refused every read for long."""
        self._throttled_since = now if self._throttled_since is None else self._throttled_since
        refused_s = now - self._throttled_since
        if refused_s < _THROTTLED_WARNING_S or self._throttling_warned:
            return []
        self._throttling_warned = True
        return [
            Warn(
                f"{self.shard} has refused every read for {refused_s:.0f}s: all its readers share "
                "5 calls and 2 MB a second. Read less often elsewhere, or set consumerMode=efo."
            )
        ]

    def _on_invalid(self, error: InvalidRequestError, now: float) -> list[Instruction]:
        if self.state is ShardState.LOCATING and (
            self._from is _From.SEEN
            or (self._from is _From.POSITION and refuses_position(error, self.position))
        ):
            return self._on_refused_position(error, now)
        if self.state is ShardState.LOCATING or self._iterator_fresh:
            return self._fail(error)
        self._iterator = None
        return self._wait(now)

    def _on_refused_position(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        """Go on from the time in the position if that is safe; if not, records may be lost.

        It is safe where the shard was seen to be empty up to a moment that it still remembers.
        """
        self._iterator = None
        if self._from is _From.POSITION and self._remembered():
            self._from = _From.SEEN
            warning = Warn(
                f"{self.shard}: Kinesis no longer knows the position {self.position}, although "
                "nothing behind it can have expired yet. Going on from the time in it. "
                f"({error.message})"
            )
            return [*self._wait(now), warning]
        lost = self._go_to_oldest(f"Kinesis no longer knows it ({error.message})")
        return lost if self.state is ShardState.FAILED else [*lost, *self._wait(now)]

    def _go_to_oldest(self, why: str) -> list[Instruction]:
        """Fail, or warn and go on at the oldest record, as the user wants it."""

        def from_oldest() -> list[Instruction]:
            self._from = _From.OLDEST
            return []

        return self._on_loss(records_expired(self.shard, self.position, why), from_oldest)

    def _expired(self) -> bool:
        """Return whether what came right behind the position is gone, as far as is known."""
        seen_ms, kept_s = self._seen_ms(), self._retention_s
        return bool(seen_ms is not None and kept_s and seen_ms < self._wall_ms - kept_s * 1000)

    def _remembered(self) -> bool:
        """Return whether all that came right behind the position is certainly still kept."""
        seen_ms, kept_s = self._seen_ms(), self._retention_s or RETENTION_HOURS_DEFAULT * 3600.0
        return seen_ms is not None and seen_ms - _TIME_MARGIN_MS > self._wall_ms - kept_s * 1000

    def _seen_ms(self) -> int | None:
        return self.position.seen_ms if isinstance(self.position, After) else None

    def _diagnose(self) -> list[Instruction]:
        # Some servers answer 500 to an iterator of a stream that is not there any more.
        self._iterator = None
        return super()._diagnose()

    def _on_diagnosis(self, error: KinesisConnectorError | None, now: float) -> list[Instruction]:
        unknown, self._unknown = self._unknown, None
        if (
            error is None
            and unknown is not None
            and self.failures >= DIAGNOSE_AFTER
            and self._from is _From.POSITION
            and isinstance(self.position, (At, After))
        ):
            # Stream and shard are there, so it is the number that is not: some servers know only
            # those of records.
            return self._on_refused_position(unknown, now)
        return super()._on_diagnosis(error, now)

    def _earliest(self) -> float:
        return self._pace.earliest()

    def _cancel(self) -> list[Instruction]:
        return [Cancel()]
