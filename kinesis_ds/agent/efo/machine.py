"""One shard's subscription as a state machine. Pure: no clock, no sockets, no asyncio.

Everything that affects the life of a subscription is decided here. The runner in ``network`` turns
what happens into stimuli, calls :meth:`Subscription.handle` with the time, and performs the
instructions that come back.

States and the stimuli that leave them::

    WAITING   --Tick (due)---------------> OPENING     (Open)
    WAITING   --ShardClosed, after a break-> CHECKING  (CheckEnd)
    OPENING   --Opened-------------------> STREAMING
    OPENING   --Refused------------------> WAITING | DIAGNOSING (Diagnose) | FAILED
    STREAMING --Broke--------------------> WAITING | CHECKING | DIAGNOSING | FAILED
    STREAMING --Progressed (idle, closed)> CHECKING    (Close, CheckEnd)
    STREAMING --ReachedEnd---------------> ENDED       (Finish) | CHECKING (no children named)
    STREAMING --Starved------------------> PARKED      (Close, AwaitRoom)
    PARKED    --RoomAgain----------------> WAITING
    CHECKING  --EndChecked---------------> ENDED | WAITING | FAILED
    DIAGNOSING--Diagnosed----------------> WAITING | FAILED
    any       --Stop---------------------> STOPPED     (Close)

Rules kept here, all of the service's (see ``limits``): one call a second, counted from the answer;
five seconds after a successful call; ResourceInUse is waited out at a fixed floor, without
escalation (the rightful owner must get in soon), and inside the stream it means that somebody
else's call succeeded just now. A generation number is given to each Open, and whatever comes from
an older one is dropped and counted. Back-off is forgotten on progress only, not on a successful
call: a stream that opens and closes without an event must not be hammered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from kinesis_ds.errors import (
    AccessError,
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import SUBSCRIBE_AFTER_SUCCESS_S, SUBSCRIBE_MIN_INTERVAL_S
from kinesis_ds.plan.position import TRIM_HORIZON, Position, refuses_position

_BACKOFF_CAP_S = 30.0
_CONTENTION_WARNING_S = 30.0
_TAKEOVERS_WARNING = 3
# A closed shard that has been silent this long at the tip is asked for its end with GetRecords.
_IDLE_AT_TIP_S = 5.0
# Failures in a row, without an event between, before the cause is looked for or given up on.
_DIAGNOSE_AFTER = 3
_GIVE_UP_PROTOCOL_AFTER = 5


class State(Enum):
    WAITING = "waiting"
    OPENING = "opening"
    STREAMING = "streaming"
    PARKED = "parked"
    CHECKING = "checking"
    DIAGNOSING = "diagnosing"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"


# --- stimuli ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tick:
    """The time asked for has come, or may have."""


@dataclass(frozen=True)
class Opened:
    """The call was answered with an event stream."""

    generation: int


@dataclass(frozen=True)
class Refused:
    """The call was answered with an error, or not at all."""

    generation: int
    error: KinesisConnectorError


@dataclass(frozen=True)
class Progressed:
    """An event was decoded and its records are in the buffer."""

    generation: int
    position: Position
    records: int
    millis_behind: int


@dataclass(frozen=True)
class ReachedEnd:
    """An event without continuation, or naming child shards, was decoded; its records are buffered.

    The service sends both together. One without the other is confirmed before it is believed.
    ``position`` is behind the event's records, where there were any.
    """

    generation: int
    has_children: bool
    has_continuation: bool = False
    position: Position | None = None


@dataclass(frozen=True)
class Broke:
    """The event stream is over: cleanly (None, for example after five minutes) or by an error.

    Comes after every event received before it was decoded.
    """

    generation: int
    error: KinesisConnectorError | None


@dataclass(frozen=True)
class Starved:
    """The buffer has been full for so long that the subscription should be given back."""

    generation: int


@dataclass(frozen=True)
class RoomAgain:
    """The buffer has room."""


@dataclass(frozen=True)
class ShardClosed:
    """ListShards shows that the shard takes no more records."""


@dataclass(frozen=True)
class EndChecked:
    """GetRecords was asked whether anything is left.

    ``ended``: it said no, and never again. ``gone``: it does not know the shard any more.
    ``denied``: it may not be asked.
    """

    generation: int
    ended: bool
    gone: bool = False
    denied: AccessError | None = None


@dataclass(frozen=True)
class Diagnosed:
    """Consumer, stream and shard were looked up: the error that explains the refusals, if any."""

    generation: int
    error: KinesisConnectorError | None


@dataclass(frozen=True)
class Stop:
    """The agent is closing."""


Stimulus = (
    Tick
    | Opened
    | Refused
    | Progressed
    | ReachedEnd
    | Broke
    | Starved
    | RoomAgain
    | ShardClosed
    | EndChecked
    | Diagnosed
    | Stop
)


# --- instructions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Open:
    """Call SubscribeToShard."""

    generation: int
    position: Position


@dataclass(frozen=True)
class Close:
    """End the connection of this generation."""

    generation: int


@dataclass(frozen=True)
class WakeAt:
    """Send a Tick at this monotonic time."""

    when: float


@dataclass(frozen=True)
class AwaitRoom:
    """Send RoomAgain when the buffer has room."""


@dataclass(frozen=True)
class CheckEnd:
    """Ask GetRecords whether the shard holds anything behind ``position``."""

    generation: int
    position: Position


@dataclass(frozen=True)
class Diagnose:
    """Look up consumer, stream and shard."""

    generation: int


@dataclass(frozen=True)
class Finish:
    """The shard is read to its end."""


@dataclass(frozen=True)
class Fail:
    """Nothing more will come, for this reason."""

    error: KinesisConnectorError


@dataclass(frozen=True)
class Warn:
    """Tell the log, once."""

    text: str


Instruction = Open | Close | WakeAt | AwaitRoom | CheckEnd | Diagnose | Finish | Fail | Warn


class Contention:
    """Whether it was told that somebody else subscribes with a consumer. One for all its shards.

    Args:
        consumer: Its name or ARN, for messages.
    """

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        self.told = False


class Subscription:
    """The life of one shard's subscription.

    Args:
        shard: For messages, for example ``shard shardId-0 of stream orders``.
        position: Where to start.
        fail_on_data_loss: What to do when the position is no longer in the stream.
        contention: Shared by the subscriptions of one consumer.
        rng: Source of jitter.
    """

    def __init__(
        self,
        shard: str,
        position: Position,
        *,
        fail_on_data_loss: bool = True,
        contention: Contention | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.shard = shard
        self.position = position
        self.state = State.WAITING
        self.generation = 0
        self.renewals = 0
        self.stale = 0
        self.failures = 0
        self._fail_on_data_loss = fail_on_data_loss
        self._rng = rng or random.Random()
        self._due = 0.0
        self._last_call = -1e9
        self._last_success = -1e9
        self._closed = False
        self._children_named = False
        self._quiet_since = 0.0
        self._contended_since: float | None = None
        self._takeovers = 0
        self._contention = contention or Contention("of this query")
        self._protocol_failures = 0

    def __repr__(self) -> str:
        return (
            f"<Subscription {self.shard} {self.state.value} generation={self.generation} "
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
                was_open = self.state in (State.OPENING, State.STREAMING)
                self.state = State.STOPPED
                return [Close(self.generation)] if was_open else []
            case ShardClosed():
                return self._on_shard_closed(now)
            case Tick():
                return self._on_tick(now)
            case RoomAgain() if self.state is State.PARKED:
                return self._wait(now)
            case Opened() if self.state is State.OPENING:
                self.state = State.STREAMING
                self._last_success = self._quiet_since = now
                self._contended_since = None
                return []
            case Refused() if self.state is State.OPENING:
                # The service counts from when the call reached it, which may have taken a while.
                self._last_call = now
                return self._on_failure(stimulus.error, now)
            case Progressed() if self.state is State.STREAMING:
                return self._on_progress(stimulus, now)
            case ReachedEnd() if self.state is State.STREAMING:
                self._children_named = self._children_named or stimulus.has_children
                self.position = stimulus.position or self.position
                if stimulus.has_children and not stimulus.has_continuation:
                    return self._finish()
                return [Close(self.generation), *self._check_end()]
            case Broke() if self.state is State.STREAMING:
                return self._on_broken(stimulus.error, now)
            case Starved() if self.state is State.STREAMING:
                self.state = State.PARKED
                return [Close(self.generation), AwaitRoom()]
            case EndChecked() if self.state is State.CHECKING:
                if stimulus.denied is not None:
                    return self._fail(stimulus.denied)
                if stimulus.ended or (stimulus.gone and self._children_named):
                    return self._finish()
                self._quiet_since = now
                return self._wait(now)
            case Diagnosed() if self.state is State.DIAGNOSING:
                return self._on_diagnosis(stimulus.error, now)
            case Progressed():
                # Its connection is closed already, but the records are in the buffer.
                self.position = stimulus.position
                return []
            case Starved() | RoomAgain() | Broke() | ReachedEnd():
                # Already decided otherwise within this generation (two error paths may both fire).
                return []
        raise InternalError(f"{stimulus} cannot happen in {self!r}.", "Please report this.")

    def _on_tick(self, now: float) -> list[Instruction]:
        if self.state is not State.WAITING:
            return []
        if now < self._due:
            return [WakeAt(self._due)]
        self.generation += 1
        self.renewals += self.generation > 1
        self.state = State.OPENING
        self._last_call = now
        return [Open(self.generation, self.position)]

    def _on_shard_closed(self, now: float) -> list[Instruction]:
        if self._closed:
            return []
        self._closed = True
        self._quiet_since = now
        if self.state is State.WAITING and self.failures:
            return self._check_end()
        return []

    def _on_progress(self, event: Progressed, now: float) -> list[Instruction]:
        self.position = event.position
        self.failures = self._protocol_failures = 0
        if event.records or event.millis_behind:
            self._quiet_since = now
        elif self._closed and now - self._quiet_since >= _IDLE_AT_TIP_S:
            return [Close(self.generation), *self._check_end()]
        return []

    def _on_broken(self, error: KinesisConnectorError | None, now: float) -> list[Instruction]:
        if self._closed and (error is None or error.retryable):
            return self._check_end()
        if error is not None:
            return self._on_failure(error, now)
        self._takeovers = 0
        if now - self._last_success < SUBSCRIBE_AFTER_SUCCESS_S:
            self.failures += 1  # opened and closed again at once: not the five-minute expiry
        return self._wait(now, backoff=self.failures > 1)

    def _on_failure(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        if isinstance(error, ResourceInUseError):
            return self._on_contention(now)
        self.failures += 1
        if isinstance(error, StreamNotFoundError):
            return self._diagnose()
        if isinstance(error, InvalidRequestError) and self.state is State.OPENING:
            return self._on_refused_position(error, now)
        if isinstance(error, ProtocolError):
            self._protocol_failures += 1
            if self._protocol_failures >= _GIVE_UP_PROTOCOL_AFTER:
                return self._fail(error)
            return self._wait(now, backoff=True)
        if isinstance(error, (ThrottledError, TransientError)):
            if self.failures % _DIAGNOSE_AFTER == 0 and not isinstance(error, ThrottledError):
                return self._diagnose()
            return self._wait(now, backoff=True)
        return self._fail(error)

    def _on_diagnosis(self, error: KinesisConnectorError | None, now: float) -> list[Instruction]:
        if error is None:
            return self._wait(now, backoff=True)
        if isinstance(error, DataLossError) and not self._fail_on_data_loss:
            return [
                *self._finish(),
                Warn(f"{error.message} Going on without it (failOnDataLoss=false)."),
            ]
        return self._fail(error)

    def _on_contention(self, now: float) -> list[Instruction]:
        if self._contended_since is None:
            self._contended_since = now
        waited = now - self._contended_since
        what = f"has been refused for {waited:.0f}s because another subscription holds it"
        telling = now - self._contended_since >= _CONTENTION_WARNING_S
        if self.state is State.STREAMING:
            # Taken over: taking it back before five seconds are over is refused, and would be rude.
            self._last_success = now
            self._takeovers += 1
            what = f"was taken over {self._takeovers} times by another subscription"
            telling = self._takeovers >= _TAKEOVERS_WARNING
        # A successful call of somebody else is younger than 5 s. Trying at the floor is all there
        # is.
        instructions = self._wait(now)
        if telling and not self._contention.told:
            self._contention.told = True
            instructions.append(
                Warn(
                    f"{self.shard} {what}. Does another application use the same consumerName? The "
                    f"consumer {self._contention.consumer} serves one reader a shard: give each "
                    "query one of its own. (Told once, for all shards.)"
                )
            )
        return instructions

    def _on_refused_position(self, error: InvalidRequestError, now: float) -> list[Instruction]:
        if not refuses_position(error, self.position):
            return self._fail(error)
        if self._fail_on_data_loss:
            return self._fail(
                DataLossError(
                    f"{self.shard}: Kinesis no longer knows the position {self.position} "
                    f"({error.message})",
                    "Records may have expired before they were read. Set failOnDataLoss=false to "
                    "go on at the "
                    "oldest record, or start with a new checkpointLocation.",
                )
            )
        lost, self.position = self.position, TRIM_HORIZON
        return [
            *self._wait(now),
            Warn(
                f"{self.shard}: the position {lost} is gone; going on at the oldest record "
                "(failOnDataLoss=false)"
            ),
        ]

    def _wait(self, now: float, *, backoff: bool = False) -> list[Instruction]:
        self.state = State.WAITING
        self._due = max(
            now,
            self._last_call + SUBSCRIBE_MIN_INTERVAL_S,
            self._last_success + SUBSCRIBE_AFTER_SUCCESS_S,
        )
        if backoff:
            ceiling = min(_BACKOFF_CAP_S, 2.0 ** min(self.failures, 10))
            self._due = max(self._due, now + self._rng.uniform(ceiling / 2, ceiling))
        return [WakeAt(self._due)]

    def _check_end(self) -> list[Instruction]:
        self.state = State.CHECKING
        return [CheckEnd(self.generation, self.position)]

    def _diagnose(self) -> list[Instruction]:
        self.state = State.DIAGNOSING
        return [Diagnose(self.generation)]

    def _finish(self) -> list[Instruction]:
        self.state = State.ENDED
        return [Close(self.generation), Finish()]

    def _fail(self, error: KinesisConnectorError) -> list[Instruction]:
        self.state = State.FAILED
        return [Close(self.generation), Fail(error)]
