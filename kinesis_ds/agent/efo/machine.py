"""One shard's subscription as a state machine. Pure: no clock, no sockets, no asyncio.

Everything that affects the life of a subscription is decided here, and in
:mod:`kinesis_ds.agent.machine` what is the same for a polled shard.
:mod:`kinesis_ds.agent.efo.runner` turns what happens into stimuli, calls
:meth:`Subscription.handle` with the time, and performs the instructions that come back.

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
    DIAGNOSING--Diagnosed----------------> WAITING | FAILED | ENDED
    any       --Stop---------------------> STOPPED     (Close)

Rules kept here, all of the service's (see ``limits``):

* One call a second, counted from the answer; and five seconds between a successful call and the
  next.
* After ResourceInUse the pause does not grow with each failure: the rightful owner must get in
  soon. Inside an open stream, ResourceInUse means that somebody else's call succeeded just now.
* Each Open has a generation number. What comes from an older one is dropped and counted.
* Only progress resets the back-off, a successful call does not: a stream that opens and closes
  without an event must not be hammered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.agent.machine import (
    Instruction,
    Refused,
    ShardClosed,
    ShardMachine,
    ShardState,
    Stimulus,
    Warn,
)
from kinesis_ds.errors import (
    AccessError,
    InvalidRequestError,
    KinesisConnectorError,
    ResourceInUseError,
)
from kinesis_ds.limits import SUBSCRIBE_AFTER_SUCCESS_S, SUBSCRIBE_MIN_INTERVAL_S
from kinesis_ds.plan.loss import position_refused
from kinesis_ds.plan.position import TRIM_HORIZON, Position, refuses_position

if TYPE_CHECKING:
    import random

_CONTENTION_WARNING_S = 30.0
_TAKEOVERS_WARNING = 3
# A closed shard that has been silent this long at the tip is asked for its end with GetRecords.
_IDLE_AT_TIP_S = 5.0


# --- stimuli and instructions, beside those of every machine --------------------------------------


@dataclass(frozen=True)
class Opened(Stimulus):
    """The call was answered with an event stream."""

    generation: int


@dataclass(frozen=True)
class Progressed(Stimulus):
    """An event was decoded and its records are in the buffer.

    Attributes:
        position: Behind those records.
        records: How many they are.
        millis_behind: How far the event was behind the tip of the shard, in milliseconds.
    """

    generation: int
    position: Position
    records: int
    millis_behind: int


@dataclass(frozen=True)
class ReachedEnd(Stimulus):
    """An event was decoded that has no continuation or names child shards; it is in the buffer.

    The service sends both together. One without the other is confirmed before it is believed.

    Attributes:
        has_children: The event names child shards.
        has_continuation: The event has a continuation.
        position: Behind the event's records; None where that is not known.
    """

    generation: int
    has_children: bool
    has_continuation: bool = False
    position: Position | None = None


@dataclass(frozen=True)
class Broke(Stimulus):
    """The event stream is over: cleanly (None, for example after five minutes) or by an error.

    Comes after every event received before it was decoded.
    """

    generation: int
    error: KinesisConnectorError | None


@dataclass(frozen=True)
class Starved(Stimulus):
    """The buffer has been full for so long that the subscription should be given back."""

    generation: int


@dataclass(frozen=True)
class RoomAgain(Stimulus):
    """The buffer has room."""


@dataclass(frozen=True)
class EndChecked(Stimulus):
    """GetRecords was asked whether the shard holds anything more.

    Attributes:
        ended: It holds nothing, and never will.
        gone: The service does not know the shard any more.
        denied: Why GetRecords may not be called.
    """

    generation: int
    ended: bool
    gone: bool = False
    denied: AccessError | None = None


@dataclass(frozen=True)
class Open(Instruction):
    """Call SubscribeToShard."""

    generation: int
    position: Position


@dataclass(frozen=True)
class Close(Instruction):
    """End the connection of this generation."""

    generation: int


@dataclass(frozen=True)
class AwaitRoom(Instruction):
    """Send RoomAgain when the buffer has room."""


@dataclass(frozen=True)
class CheckEnd(Instruction):
    """Ask GetRecords whether the shard holds anything behind ``position``."""

    generation: int
    position: Position


class Contention:
    """Remembers whether the user was warned that another application uses the same consumer.

    One for all shards of a consumer, so that the warning comes once.

    Args:
        consumer: Name or ARN of the consumer, for messages.
    """

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        self.warned = False


class Subscription(ShardMachine):
    """Decides how one shard is read with subscriptions.

    Args:
        contention: Shared by the subscriptions of one consumer.
    """

    _first_backoff_s = 1.0
    _backoff_cap_s = 30.0

    def __init__(
        self,
        shard: str,
        position: Position,
        *,
        fail_on_data_loss: bool = True,
        contention: Contention | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(shard, position, fail_on_data_loss=fail_on_data_loss, rng=rng)
        self._last_call = -1e9
        self._last_success = -1e9
        self._children_named = False
        self._quiet_since = 0.0
        self._contended_since: float | None = None
        self._takeovers = 0
        self._contention = contention or Contention("of this query")

    def _on(  # noqa: PLR0912  # one case a stimulus: the table of the module's header
        self, stimulus: Stimulus, now: float
    ) -> list[Instruction] | None:
        match stimulus:
            case ShardClosed():
                return self._on_shard_closed(now)
            case RoomAgain() if self.state is ShardState.PARKED:
                return self._wait(now)
            case Opened() if self.state is ShardState.OPENING:
                self.state = ShardState.STREAMING
                self._last_success = self._quiet_since = now
                self._contended_since = None
                return []
            case Refused() if self.state is ShardState.OPENING:
                # The service counts from when the call reached it, which may have taken a while.
                self._last_call = now
                return self._on_failure(stimulus.error, now)
            case Progressed() if self.state is ShardState.STREAMING:
                return self._on_progress(stimulus, now)
            case ReachedEnd() if self.state is ShardState.STREAMING:
                self._children_named = self._children_named or stimulus.has_children
                self.position = stimulus.position or self.position
                if stimulus.has_children and not stimulus.has_continuation:
                    return self._finish()
                return [Close(self.generation), *self._check_end()]
            case Broke() if self.state is ShardState.STREAMING:
                return self._on_broken(stimulus.error, now)
            case Starved() if self.state is ShardState.STREAMING:
                self.state = ShardState.PARKED
                return [Close(self.generation), AwaitRoom()]
            case EndChecked() if self.state is ShardState.CHECKING:
                if stimulus.denied is not None:
                    return self._fail(stimulus.denied)
                if stimulus.ended or (stimulus.gone and self._children_named):
                    return self._finish()
                self._quiet_since = now
                return self._wait(now)
            case Progressed():
                # Its connection is closed already, but the records are in the buffer.
                self.position = stimulus.position
                return []
            case Starved() | RoomAgain() | Broke() | ReachedEnd():
                # Already decided otherwise within this generation (two error paths may both fire).
                return []
        return None

    def _begin(self, now: float) -> list[Instruction]:
        self.renewals += self.generation > 1
        self.state = ShardState.OPENING
        self._last_call = now
        return [Open(self.generation, self.position)]

    def _on_shard_closed(self, now: float) -> list[Instruction]:
        if self._closed:
            return []
        self._closed = True
        self._quiet_since = now
        if self.state is ShardState.WAITING and self.failures:
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
        return super()._on_failure(error, now)

    def _on_contention(self, now: float) -> list[Instruction]:
        if self._contended_since is None:
            self._contended_since = now
        waited = now - self._contended_since
        what = f"has been refused for {waited:.0f}s because another subscription holds it"
        warn = now - self._contended_since >= _CONTENTION_WARNING_S
        if self.state is ShardState.STREAMING:
            # Taken over: taking it back before five seconds are over is refused, and would be rude.
            self._last_success = now
            self._takeovers += 1
            what = f"was taken over {self._takeovers} times by another subscription"
            warn = self._takeovers >= _TAKEOVERS_WARNING
        # A successful call of somebody else is younger than 5 s. Trying at the floor is all there
        # is.
        instructions = self._wait(now)
        if warn and not self._contention.warned:
            self._contention.warned = True
            instructions.append(
                Warn(
                    f"{self.shard} {what}. Does another application use the same consumerName? The "
                    f"consumer {self._contention.consumer} serves one reader a shard: give each "
                    "query one of its own. (Told once, for all shards.)"
                )
            )
        return instructions

    def _on_invalid(self, error: InvalidRequestError, now: float) -> list[Instruction]:
        if self.state is not ShardState.OPENING or not refuses_position(error, self.position):
            return self._fail(error)

        def from_oldest() -> list[Instruction]:
            self.position = TRIM_HORIZON
            return self._wait(now)

        loss = position_refused(self.shard, self.position, error.message)
        return self._on_loss(loss, from_oldest)

    def _earliest(self) -> float:
        return max(
            self._last_call + SUBSCRIBE_MIN_INTERVAL_S,
            self._last_success + SUBSCRIBE_AFTER_SUCCESS_S,
        )

    def _check_end(self) -> list[Instruction]:
        self.state = ShardState.CHECKING
        return [CheckEnd(self.generation, self.position)]

    def _cancel(self) -> list[Instruction]:
        return [Close(self.generation)]

    def _finish(self) -> list[Instruction]:
        return [*self._cancel(), *super()._finish()]

    def _stop(self) -> list[Instruction]:
        was_open = self.state in (ShardState.OPENING, ShardState.STREAMING)
        closing = super()._stop()
        return closing if was_open else []
