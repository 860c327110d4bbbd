"""One shard read with GetRecords, as a state machine. Pure: no clock, no sockets, no asyncio.

Everything that affects how a shard is polled is decided here. The runner in ``poller`` turns what
happens into stimuli, calls :meth:`Polling.handle` with the time, and performs the instructions that
come back.

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

Rules kept here. All readers of a shard share its 5 calls and 2 MiB a second (see ``limits``), so
calls are a period apart, counted from the answer, and an answer of so many bytes is followed by as
many bytes' worth of silence. An answer is asked for of about a second's worth, so that other
readers have their turn between two. Room for it is asked for before the call: a shard that has none
holds neither a connection nor, for long, an iterator, and one that has got old meanwhile is
replaced before it is used. A fresh iterator starts behind the last record *read*, and is used at
once.

An empty answer means "nothing" only at the tip. Behind it (``MillisBehindLatest`` above 0) the
shard holds an empty stretch, and the next iterator goes on from the middle of it. Sequence numbers
give no way to say so: the position stays, and only the moment up to which the shard was seen to be
empty moves on (``After.seen_ms``).

A generation number is given to each poll. What comes from an older one is dropped and counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kinesis_ds.agent.efo.machine import (
    Diagnose,
    Diagnosed,
    Fail,
    Finish,
    Refused,
    ShardClosed,
    Stop,
    Tick,
    WakeAt,
    Warn,
)
from kinesis_ds.errors import (
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_ds.limits import (
    GET_RECORDS_MIN_INTERVAL_S,
    KIB,
    RETENTION_HOURS_DEFAULT,
    SHARD_ITERATOR_LIFETIME_S,
)
from kinesis_ds.plan.position import (
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    refuses_position,
)

if TYPE_CHECKING:
    from kinesis_ds.options.read import PollingOptions

# At the tip, an empty answer doubles the pause up to this: the most by which the first record after
# a silence is late. As long as a record may take to become readable anyway ("typically less than
# 1 second"), and a fifth of what the shard allows all its readers together.
IDLE_MAX_S = 1.0
# Older than this an iterator is not worth the call: it may have expired when it gets there.
_ITERATOR_USED_S = SHARD_ITERATOR_LIFETIME_S - 30.0
_BACKOFF_CAP_S = 10.0
# Failures in a row before the cause is looked for, or given up on.
_DIAGNOSE_AFTER = 3
_GIVE_UP_PROTOCOL_AFTER = 5
_THROTTLED_WARNING_S = 30.0
# How much earlier than ``seen_ms`` reading starts when that moment is all that is left to go by,
# and how much younger than the retention it must be. Clocks differ, answers tell theirs in whole
# seconds, and a record is readable a moment after its arrival. What is read twice is dropped.
_TIME_MARGIN_MS = 60_000

# Room for the first answer, and for each one at the tip, where answers are small: so little that
# the share of an idle shard among thousands suffices, and no busy one can keep it waiting.
_LEAST_ROOM = 16 * KIB
# Taken for the size of a record until one was seen.
_FIRST_RECORD_BYTES = 1 * KIB


class State(Enum):
    WAITING = "waiting"
    PARKED = "parked"
    LOCATING = "locating"
    READING = "reading"
    DECODING = "decoding"
    DIAGNOSING = "diagnosing"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"


# --- stimuli, beside Tick, Refused, Diagnosed, ShardClosed and Stop -----------------------------


@dataclass(frozen=True)
class RoomGiven:
    """Room is reserved: as much as was asked for, or less.

    ``wall_ms`` is the time, in milliseconds since the epoch.
    """

    generation: int
    nbytes: int
    wall_ms: int


@dataclass(frozen=True)
class Located:
    """GetShardIterator answered."""

    generation: int
    iterator: str


@dataclass(frozen=True)
class Received:
    """GetRecords answered; the answer is with the shard's lane."""

    generation: int


@dataclass(frozen=True)
class TooLarge:
    """GetRecords answered with more bytes than there was room for; none of it was kept."""

    generation: int
    size: int


@dataclass(frozen=True)
class Accepted:
    """An answer was decoded and its records are in the buffer.

    Attributes:
        position: Behind those records; the position before, where there were none.
        records: How many the answer held, those dropped included.
        millis_behind: How far behind the tip it was.
        following: The next iterator; None at the end of the shard.
        size: Of the answer, in bytes.
        payload: Bytes of data and keys, which count against the shard's limit.
        has_children: Whether it named child shards.
    """

    generation: int
    position: Position
    records: int
    millis_behind: int
    following: str | None
    size: int
    payload: int
    has_children: bool = False


Stimulus = (
    Tick
    | RoomGiven
    | Located
    | Received
    | TooLarge
    | Accepted
    | Refused
    | Diagnosed
    | ShardClosed
    | Stop
)


# --- instructions, beside WakeAt, Diagnose, Finish, Fail and Warn -------------------------------


@dataclass(frozen=True)
class AskRoom:
    """Send RoomGiven when bytes are reserved in the pool: so many, or what can be had at once.

    When that is less than ``least``, it is worth waiting for as many.
    """

    generation: int
    nbytes: int
    least: int


@dataclass(frozen=True)
class Locate:
    """Call GetShardIterator."""

    generation: int
    start: Position


@dataclass(frozen=True)
class Read:
    """Call GetRecords for at most ``limit`` records."""

    generation: int
    iterator: str
    limit: int


@dataclass(frozen=True)
class Cancel:
    """End what is under way, and give back the room that it has or waits for."""


Instruction = AskRoom | Locate | Read | Cancel | WakeAt | Diagnose | Finish | Fail | Warn


class _From(Enum):
    """What a fresh iterator goes by."""

    POSITION = "position"
    SEEN = "seen"
    OLDEST = "oldest"


class Polling:
    """How one shard is polled.

    Args:
        shard: For messages, for example ``shard shardId-0 of stream orders``.
        position: Where to start.
        options: How fast.
        buffer_bytes: Room of all shards together; an answer is asked for that takes a quarter at
            most.
        fail_on_data_loss: What to do when records behind the position are no longer in the stream.
        retention_s: How long the stream keeps records; None where that is not known.
        rng: Source of jitter.
    """

    def __init__(
        self,
        shard: str,
        position: Position,
        options: PollingOptions,
        *,
        buffer_bytes: int,
        fail_on_data_loss: bool = True,
        retention_s: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.shard = shard
        self.position = position
        self.state = State.WAITING
        self.generation = 0
        self.renewals = 0
        self.stale = 0
        self.failures = 0
        self._period_s = max(options.min_period_s, GET_RECORDS_MIN_INTERVAL_S)
        self._bytes_per_s = options.bytes_per_s
        self._size = _AnswerSize(options.max_records, options.bytes_per_s, buffer_bytes)
        self._fail_on_data_loss = fail_on_data_loss
        self._retention_s = retention_s
        self._rng = rng or random.Random()
        self._from = _From.POSITION
        self._iterator: str | None = None
        self._iterator_since = 0.0
        self._iterator_fresh = False
        self._located = False
        self._due = 0.0
        # The pace of the shard: no call before this.
        self._not_before = 0.0
        self._answered = 0.0
        self._idle_s = 0.0
        # Of the poll under way: when it got its room, and for how many records that is.
        self._wall_ms = 0
        self._limit = 1
        self._closed = False
        self._end_doubted = False
        self._expiries = 0
        self._unknown: StreamNotFoundError | None = None
        self._protocol_failures = 0
        self._throttled_since: float | None = None
        self._throttling_told = False

    def __repr__(self) -> str:
        return (
            f"<Polling {self.shard} {self.state.value} generation={self.generation} "
            f"at {self.position} failures={self.failures} stale={self.stale}>"
        )

    def handle(  # noqa: PLR0912  # one case a stimulus: the table of the module's header
        self, stimulus: Stimulus, now: float
    ) -> list[Instruction]:
        """Take in what happened; say what to do. ``now`` is monotonic, in seconds."""
        if self.state in (State.ENDED, State.FAILED, State.STOPPED):
            return []
        generation = getattr(stimulus, "generation", self.generation)
        if generation != self.generation:
            self.stale += 1
            return []
        match stimulus:
            case Stop():
                self.state = State.STOPPED
                return [Cancel()]
            case ShardClosed():
                self._closed = True
                return []
            case Tick():
                return self._on_tick(now)
            case RoomGiven() if self.state is State.PARKED:
                return self._on_room(stimulus, now)
            case Located() if self.state is State.LOCATING:
                self._keep(stimulus.iterator, now, fresh=True)
                return self._read(stimulus.iterator)
            case Received() if self.state is State.READING:
                self.state = State.DECODING
                self._on_answer(now)
                return []
            case TooLarge() if self.state is State.READING:
                self._on_answer(now)
                self._pay(stimulus.size * 3 // 4)
                self._size.refused(stimulus.size, self._limit)
                return self._wait(now)
            case Accepted() if self.state is State.DECODING:
                return self._on_accepted(stimulus, now)
            case Refused() if self.state in (State.LOCATING, State.READING, State.DECODING):
                if self.state is not State.DECODING:
                    self._on_answer(now)
                return self._on_failure(stimulus.error, now)
            case Diagnosed() if self.state is State.DIAGNOSING:
                return self._on_diagnosis(stimulus.error, now)
        raise InternalError(f"{stimulus} cannot happen in {self!r}.", "Please report this.")

    # --- the way of a poll ----------------------------------------------------------------------

    def _on_tick(self, now: float) -> list[Instruction]:
        if self.state is not State.WAITING:
            return []
        if now < self._due:
            return [WakeAt(self._due)]
        self.generation += 1
        self.state = State.PARKED
        return [AskRoom(self.generation, self._size.room(), self._size.least())]

    def _on_room(self, room: RoomGiven, now: float) -> list[Instruction]:
        self._wall_ms = room.wall_ms
        self._limit = self._size.limit(room.nbytes)
        if self._iterator is not None and now - self._iterator_since < _ITERATOR_USED_S:
            return self._read(self._iterator)
        told: list[Instruction] = []
        # A start was looked at by whoever gave it; this is what became of it since.
        if self._located and self._from is not _From.OLDEST and self._expired():
            told = self._on_loss("Nothing was read there for longer than the stream keeps records.")
            if self.state is State.FAILED:
                return told
        if self._located:
            self.renewals += 1
        self._located = True
        self.state = State.LOCATING
        return [*told, Locate(self.generation, self._start())]

    def _start(self) -> Position:
        """Where a fresh iterator starts. What is read before ``position`` is dropped there."""
        if self._from is _From.OLDEST:
            return TRIM_HORIZON
        if self._from is _From.SEEN:
            assert isinstance(self.position, After)
            return AtTimestamp(max(0, (self.position.seen_ms or 0) - _TIME_MARGIN_MS))
        return self.position

    def _read(self, iterator: str) -> list[Instruction]:
        self.state = State.READING
        return [Read(self.generation, iterator, self._limit)]

    def _on_accepted(self, answer: Accepted, now: float) -> list[Instruction]:
        if answer.position != self.position:
            self._from = _From.POSITION
        self.position = answer.position
        self.failures = self._expiries = self._protocol_failures = 0
        self._throttled_since = None
        self._pay(answer.payload)
        self._size.learn(answer.size, answer.records, more=answer.millis_behind > 0)
        if answer.following is None:
            return self._on_end(answer, now)
        self._end_doubted = False
        self._keep(answer.following, self._answered, fresh=False)
        if answer.records or answer.millis_behind:
            self._idle_s = 0.0
        else:
            longest = max(IDLE_MAX_S, self._period_s)
            self._idle_s = min(longest, max(self._period_s, 2 * self._idle_s))
        return self._wait(now)

    def _on_end(self, answer: Accepted, now: float) -> list[Instruction]:
        """Believe an end that names the children, or of a shard that is listed as closed.

        Any other is asked for again first: an end cannot be taken back.
        """
        if answer.has_children or self._closed or self._end_doubted:
            self.state = State.ENDED
            return [Finish()]
        self._end_doubted = True
        self._iterator = None
        return self._wait(now)

    def _keep(self, iterator: str, since: float, *, fresh: bool) -> None:
        self._iterator, self._iterator_since, self._iterator_fresh = iterator, since, fresh

    # --- the pace -------------------------------------------------------------------------------

    def _on_answer(self, now: float) -> None:
        """A call was answered. The service counts from when it got there, which was earlier."""
        self._answered = now
        self._not_before = now + self._period_s

    def _pay(self, payload: int) -> None:
        """So many bytes were read: the shard is left alone for as long as it takes to allow them.

        More than the service asks for, which refuses calls only after a second's worth was taken
        at once. But what is not read here, others can read.
        """
        self._not_before = max(self._not_before, self._answered + payload / self._bytes_per_s)

    def _wait(self, now: float, *, backoff: bool = False) -> list[Instruction]:
        self.state = State.WAITING
        # Shards that were opened together are not to be polled together for ever.
        idle = self._idle_s * self._rng.uniform(0.9, 1.0)
        self._due = max(now, self._not_before, self._answered + idle)
        if backoff:
            ceiling = min(_BACKOFF_CAP_S, 0.25 * 2.0 ** min(self.failures, 10))
            self._due = max(self._due, now + self._rng.uniform(ceiling / 2, ceiling))
        return [WakeAt(self._due)]

    # --- failures -------------------------------------------------------------------------------

    def _on_failure(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        if error.code == "ExpiredIteratorException":
            # Normal, once. An iterator that is too old as soon as it is made is not.
            self._iterator = None
            self._expiries += 1
            self.failures += self._expiries > 1
            return self._wait(now, backoff=self._expiries > 1)
        self.failures += 1
        if isinstance(error, StreamNotFoundError):
            self._unknown = error if self.state is State.LOCATING else None
            return self._diagnose()
        if isinstance(error, InvalidRequestError):
            return self._on_invalid(error, now)
        if isinstance(error, ProtocolError):
            self._iterator = None
            self._protocol_failures += 1
            if self._protocol_failures >= _GIVE_UP_PROTOCOL_AFTER:
                return self._fail(error)
            return self._wait(now, backoff=True)
        if isinstance(error, ThrottledError):
            return self._on_throttled(error, now)
        if not error.retryable:
            return self._fail(error)
        if self.failures % _DIAGNOSE_AFTER == 0:
            return self._diagnose()
        return self._wait(now, backoff=True)

    def _on_throttled(self, error: ThrottledError, now: float) -> list[Instruction]:
        instructions = self._wait(now, backoff=True)
        if error.code != "ProvisionedThroughputExceededException":
            return instructions
        if self._throttled_since is None:
            self._throttled_since = now
        elif now - self._throttled_since >= _THROTTLED_WARNING_S and not self._throttling_told:
            self._throttling_told = True
            instructions.append(
                Warn(
                    f"{self.shard} has refused every read for {now - self._throttled_since:.0f}s: "
                    "all its readers share 5 calls and 2 MB a second. Read less often elsewhere, "
                    "or set consumerMode=efo."
                )
            )
        return instructions

    def _on_invalid(self, error: InvalidRequestError, now: float) -> list[Instruction]:
        if self.state is State.LOCATING:
            if self._from is _From.SEEN or (
                self._from is _From.POSITION and refuses_position(error, self.position)
            ):
                return self._on_refused_position(error, now)
            return self._fail(error)
        if self._iterator_fresh:
            return self._fail(error)
        self._iterator = None
        return self._wait(now)

    def _on_refused_position(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        """Kinesis does not know the number any more. That alone is no loss.

        Where the shard was seen to be empty up to a moment that it still remembers, reading goes on
        from that moment; where it was not, records may have been there.
        """
        self._iterator = None
        if self._from is _From.POSITION and self._remembered():
            self._from = _From.SEEN
            told = Warn(
                f"{self.shard}: Kinesis no longer knows the position {self.position}, although "
                "nothing behind it can have expired yet. Going on from the time in it. "
                f"({error.message})"
            )
            return [*self._wait(now), told]
        lost = self._on_loss(f"Kinesis no longer knows it ({error.message})")
        return lost if self.state is State.FAILED else [*lost, *self._wait(now)]

    def _on_loss(self, why: str) -> list[Instruction]:
        if self._fail_on_data_loss:
            return self._fail(
                DataLossError(
                    f"{self.shard}: records behind the position {self.position} may have expired "
                    f"before they were read. {why}",
                    "Set failOnDataLoss=false to go on at the oldest record, or start with a new "
                    "checkpointLocation.",
                )
            )
        self._from = _From.OLDEST
        return [
            Warn(
                f"{self.shard}: the position {self.position} is gone; going on at the oldest "
                f"record (failOnDataLoss=false). {why}"
            )
        ]

    def _expired(self) -> bool:
        """Whether what came right behind the position is no longer kept, for all that is known."""
        seen_ms = self.position.seen_ms if isinstance(self.position, After) else None
        if seen_ms is None or not self._retention_s:
            return False
        return seen_ms < self._wall_ms - self._retention_s * 1000

    def _remembered(self) -> bool:
        """Whether all that came right behind the position is still kept, for certain."""
        seen_ms = self.position.seen_ms if isinstance(self.position, After) else None
        if seen_ms is None:
            return False
        kept_s = self._retention_s or RETENTION_HOURS_DEFAULT * 3600.0
        return seen_ms - _TIME_MARGIN_MS > self._wall_ms - kept_s * 1000

    def _diagnose(self) -> list[Instruction]:
        # Some servers answer 500 to an iterator of a stream that is not there any more.
        self._iterator = None
        self.state = State.DIAGNOSING
        return [Diagnose(self.generation)]

    def _on_diagnosis(self, error: KinesisConnectorError | None, now: float) -> list[Instruction]:
        unknown, self._unknown = self._unknown, None
        if error is None:
            if (
                unknown is not None
                and self.failures >= _DIAGNOSE_AFTER
                and self._from is _From.POSITION
                and isinstance(self.position, (At, After))
            ):
                # Stream and shard are there, so it is the number that is not: some servers know
                # only those of records.
                return self._on_refused_position(unknown, now)
            return self._wait(now, backoff=True)
        if isinstance(error, DataLossError) and not self._fail_on_data_loss:
            self.state = State.ENDED
            return [
                Finish(),
                Warn(f"{error.message} Going on without it (failOnDataLoss=false)."),
            ]
        return self._fail(error)

    def _fail(self, error: KinesisConnectorError) -> list[Instruction]:
        self.state = State.FAILED
        return [Cancel(), Fail(error)]


class _AnswerSize:
    """How much room to ask for, and how many records are likely to fit into what is given.

    Room is in bytes as they come over the network: JSON with base64. The size of records is an
    estimate. An answer that turns out larger is given more while it arrives, if the pool has more;
    if not, it is dropped unread and asked for again. So the pool's bound is not overshot by a byte,
    but for a single record larger than all of it, which comes when nothing else is held. What a bad
    estimate costs is an answer read twice.
    """

    def __init__(self, max_records: int, bytes_per_s: int, buffer_bytes: int) -> None:
        self._max_records = max_records
        # About a second's worth, and no more than leaves room for others.
        self._full = max(_LEAST_ROOM, min(bytes_per_s * 4 // 3, buffer_bytes // 4))
        self._per_record: float = _FIRST_RECORD_BYTES
        self._expected = self._full

    def room(self) -> int:
        """How much room is of use."""
        return max(self._expected, self.least())

    def least(self) -> int:
        """With how little room a call is worth making: that of one record."""
        return max(_LEAST_ROOM, int(self._per_record))

    def limit(self, room: int) -> int:
        """How many records to ask for."""
        return max(1, min(self._max_records, int(room / self._per_record)))

    def learn(self, size: int, records: int, *, more: bool) -> None:
        """An answer was of this size; ``more``: the next one will be full as well."""
        if records:
            each = size / records
            # Up at once and down slowly: a large record is rarely the last one.
            self._per_record = max(each, 0.75 * self._per_record + 0.25 * each)
        self._expected = self._full if more else min(self._full, max(_LEAST_ROOM, 2 * size))

    def refused(self, size: int, limit: int) -> None:
        """There was no room for an answer of this size, although it was asked to be small.

        Its records are larger than they were taken to be: by how much is not known, unless it was
        one.
        """
        more = size + size // 8  # it may grow meanwhile
        self._expected = min(self._full, more)
        self._per_record = more if limit == 1 else max(4 * self._per_record, size / limit)
