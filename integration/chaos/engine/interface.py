"""What a conductor asks of an engine: to run one query over one checkpoint, and to be harmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from integration.chaos.schedule import Moment, Victim
from integration.chaos.verdict import Attempt, Delivered, PutCall


class EngineError(RuntimeError):
    """The query failed in a way that no fault excuses, or the engine itself did."""


@dataclass(frozen=True)
class Job:
    """What to run: Kinesis to Kinesis, exactly seen at its source.

    Attributes:
        folder: For checkpoint, output, logs and everything else; it outlives the processes.
        source, sink: Options of the connector.
    """

    folder: Path
    source: Mapping[str, str]
    sink: Mapping[str, str]


@dataclass(frozen=True)
class Observed:
    """What the query has left behind."""

    batches: Mapping[int, Sequence[Delivered]]
    changed: Sequence[str]
    attempts: Sequence[Attempt]
    calls: Sequence[PutCall]


@dataclass
class Tally:
    """What was counted while it ran.

    Attributes:
        restarts: Times that the query failed and was started again, by the reason.
        replays: Batches that were run again.
        rss: Most memory of a process, by its role, in bytes.
        pids: Every process there ever was, by its role.
    """

    restarts: dict[str, int] = field(default_factory=dict)
    replays: int = 0
    rss: dict[str, int] = field(default_factory=dict)
    pids: dict[int, str] = field(default_factory=dict)


class Engine(Protocol):
    """One query. Only :meth:`close` may be called twice.

    Attributes:
        speed: How many times as fast as the machine's its time passes.
        pace: How many seconds of a schedule pass in one second of its time.
    """

    speed: float
    pace: float
    tally: Tally

    def start(self) -> None:
        """Run the query from its checkpoint."""

    def running(self) -> bool:
        """Whether the driver lives; takes note of what it said meanwhile.

        Raises:
            EngineError: The query failed, or the driver died of something else than a kill.
        """

    def pinned(self) -> bool:
        """Whether the query's start is in its checkpoint: what is written from now on counts."""

    def delivered(self) -> int:
        """Records in the output of committed batches."""

    def kill(self, victim: Victim, moment: Moment) -> None:
        """SIGKILL a process, now or at its next such moment."""

    def freeze(self, victim: Victim) -> object:
        """Stop a process; what comes back is given to :meth:`thaw`. None where there is none."""

    def thaw(self, frozen: object) -> None: ...

    def stand_still(self, seconds: float) -> None:
        """Take nothing from the source for so long."""

    def speculate(self, tasks: int) -> None:
        """Run the next tasks twice at once, where the engine can be made to."""

    def stop(self) -> list[str]:
        """Stop the query in good order; returns what its processes had not given back."""

    def sample(self) -> None:
        """Measure memory."""

    def observed(self) -> Observed:
        """What there is, once the driver is gone."""

    def states(self) -> str:
        """For people, when it does not finish."""

    def close(self) -> None:
        """Kill whatever is left."""
