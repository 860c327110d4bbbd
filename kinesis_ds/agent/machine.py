"""The part of a shard's state machine that does not depend on how the shard is read. Pure.

A machine takes in a *stimulus* (something happened) with the time, and returns *instructions* for
its runner. :mod:`kinesis_ds.agent.efo.machine` and :mod:`kinesis_ds.agent.polling.machine` add the
states between waiting and the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from kinesis_ds.errors import (
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_ds.plan.loss import going_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.plan.loss import Loss
    from kinesis_ds.plan.position import Position

# Failures in a row, without progress between, before the cause is looked for or given up on.
DIAGNOSE_AFTER = 3
_GIVE_UP_PROTOCOL_AFTER = 5


class ShardState(Enum):
    """The states of a shard, as statistics name them. A machine uses its own and those of both."""

    WAITING = "waiting"
    PARKED = "parked"
    DIAGNOSING = "diagnosing"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"
    # With a subscription.
    OPENING = "opening"
    STREAMING = "streaming"
    CHECKING = "checking"
    # Polled.
    LOCATING = "locating"
    READING = "reading"
    DECODING = "decoding"


# --- stimuli ------------------------------------------------------------------------------------


class Stimulus:
    """Something that happened to a shard.

    One with a ``generation`` belongs to the attempt of that number; a machine drops and counts
    those of an older attempt.
    """


@dataclass(frozen=True)
class Tick(Stimulus):
    """The time asked for has come, or may have."""


@dataclass(frozen=True)
class Refused(Stimulus):
    """A call was answered with an error, or not at all."""

    generation: int
    error: KinesisConnectorError


@dataclass(frozen=True)
class ShardClosed(Stimulus):
    """ListShards shows that the shard takes no more records."""


@dataclass(frozen=True)
class Diagnosed(Stimulus):
    """Stream, shard and consumer were looked up: the error that explains the refusals, if any."""

    generation: int
    error: KinesisConnectorError | None


@dataclass(frozen=True)
class Crashed(Stimulus):
    """Something of ours failed that the shard cannot be read without."""

    error: KinesisConnectorError


@dataclass(frozen=True)
class Stop(Stimulus):
    """The agent is closing."""


# --- instructions -------------------------------------------------------------------------------


class Instruction:
    """Something that a runner is to do."""


@dataclass(frozen=True)
class WakeAt(Instruction):
    """Send a Tick at this monotonic time, in seconds."""

    when: float


@dataclass(frozen=True)
class Diagnose(Instruction):
    """Look up stream, shard and consumer."""

    generation: int


@dataclass(frozen=True)
class Finish(Instruction):
    """The shard is read to its end."""


@dataclass(frozen=True)
class Fail(Instruction):
    """Nothing more will come, for this reason."""

    error: KinesisConnectorError


@dataclass(frozen=True)
class Warn(Instruction):
    """Log a warning."""

    text: str


class ShardMachine:
    """Decides what becomes of one shard.

    Args:
        shard: The shard's name in messages, for example ``shard shardId-0 of stream orders``.
        position: Where to start.
        fail_on_data_loss: What to do when records behind the position are no longer in the stream.
        rng: Source of jitter.

    Attributes:
        state: Where the shard stands.
        position: Reading goes on behind this.
        generation: Number of the attempt under way; 0 before the first.
        renewals: How often reading had to be begun again.
        stale: Stimuli of older attempts that were dropped.
        failures: Failures since the last progress.
    """

    _first_backoff_s: ClassVar[float]
    _backoff_cap_s: ClassVar[float]

    def __init__(
        self,
        shard: str,
        position: Position,
        *,
        fail_on_data_loss: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        self.shard = shard
        self.position = position
        self.state = ShardState.WAITING
        self.generation = 0
        self.renewals = 0
        self.stale = 0
        self.failures = 0
        self._fail_on_data_loss = fail_on_data_loss
        self._rng = rng or random.Random()
        self._due = 0.0
        self._closed = False
        self._protocol_failures = 0

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.shard} {self.state.value} generation={self.generation} "
            f"at {self.position} failures={self.failures} stale={self.stale}>"
        )

    def handle(self, stimulus: Stimulus, now: float) -> list[Instruction]:
        """Take in what happened; return what to do.

        Args:
            now: Monotonic time in seconds.

        Raises:
            InternalError: The stimulus cannot happen in this state.
        """
        if self.state in (ShardState.ENDED, ShardState.FAILED, ShardState.STOPPED):
            return []
        if getattr(stimulus, "generation", self.generation) != self.generation:
            self.stale += 1
            return []
        match stimulus:
            case Stop():
                return self._stop()
            case Crashed(error):
                return self._fail(error)
            case Tick():
                if self.state is not ShardState.WAITING:
                    return []
                if now < self._due:
                    return [WakeAt(self._due)]
                self.generation += 1
                return self._begin(now)
            case Diagnosed(_, cause) if self.state is ShardState.DIAGNOSING:
                return self._on_diagnosis(cause, now)
        instructions = self._on(stimulus, now)
        if instructions is None:
            raise InternalError(f"{stimulus} cannot happen in {self!r}.", "Please report this.")
        return instructions

    # --- what each way of reading adds ----------------------------------------------------------

    def _begin(self, now: float) -> list[Instruction]:
        """Begin a new attempt: it is due."""
        raise NotImplementedError

    def _on(self, stimulus: Stimulus, now: float) -> list[Instruction] | None:
        """Handle a stimulus of this way of reading; None where it cannot happen."""
        raise NotImplementedError

    def _cancel(self) -> list[Instruction]:
        """Return what ends the attempt under way."""
        raise NotImplementedError

    def _earliest(self) -> float:
        """Return the time before which the next attempt may not begin."""
        raise NotImplementedError

    def _on_invalid(self, error: InvalidRequestError, now: float) -> list[Instruction]:
        """Handle that the service finds a request senseless."""
        raise NotImplementedError

    # --- waiting --------------------------------------------------------------------------------

    def _wait(self, now: float, *, backoff: bool = False) -> list[Instruction]:
        """Begin again when the service allows it; with ``backoff``, later at each failure."""
        self.state = ShardState.WAITING
        self._due = max(now, self._earliest())
        if backoff:
            longer = self._first_backoff_s * 2.0 ** min(self.failures, 10)
            ceiling = min(self._backoff_cap_s, longer)
            self._due = max(self._due, now + self._rng.uniform(ceiling / 2, ceiling))
        return [WakeAt(self._due)]

    # --- failures -------------------------------------------------------------------------------

    def _on_failure(self, error: KinesisConnectorError, now: float) -> list[Instruction]:
        """Begin again, look for the cause, or give up."""
        self.failures += 1
        if isinstance(error, StreamNotFoundError):
            return self._diagnose()
        if isinstance(error, InvalidRequestError):
            return self._on_invalid(error, now)
        if isinstance(error, ProtocolError):
            self._protocol_failures += 1
            if self._protocol_failures >= _GIVE_UP_PROTOCOL_AFTER:
                return self._fail(error)
            return self._wait(now, backoff=True)
        if not error.retryable:
            return self._fail(error)
        if self.failures % DIAGNOSE_AFTER == 0 and not isinstance(error, ThrottledError):
            return self._diagnose()
        return self._wait(now, backoff=True)

    def _diagnose(self) -> list[Instruction]:
        self.state = ShardState.DIAGNOSING
        return [Diagnose(self.generation)]

    def _on_diagnosis(self, error: KinesisConnectorError | None, now: float) -> list[Instruction]:
        if error is None:
            return self._wait(now, backoff=True)
        if not isinstance(error, DataLossError):
            return self._fail(error)
        return self._on_loss(going_on(error), self._finish)

    def _on_loss(self, loss: Loss, go_on: Callable[[], list[Instruction]]) -> list[Instruction]:
        """Fail, or warn and do what ``go_on`` returns, as the user wants it."""
        try:
            warning = loss.accept(fail_on_data_loss=self._fail_on_data_loss)
        except KinesisConnectorError as error:
            return self._fail(error)
        return [*go_on(), Warn(warning)]

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> list[Instruction]:
        self.state = ShardState.ENDED
        return [Finish()]

    def _fail(self, error: KinesisConnectorError) -> list[Instruction]:
        self.state = ShardState.FAILED
        return [*self._cancel(), Fail(error)]

    def _stop(self) -> list[Instruction]:
        self.state = ShardState.STOPPED
        return self._cancel()
