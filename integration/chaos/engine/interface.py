"""The interface of an engine: run one query over one checkpoint, and suffer faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from integration.chaos.schedule import Moment, Victim
from integration.chaos.verdict import Attempt, Delivered, PutCall


class EngineError(RuntimeError):
    """The query failed in a way that no fault explains, or the engine itself failed."""


@dataclass(frozen=True)
class Job:
    """The query to run: from Kinesis to Kinesis, with a record of everything its source returned.

    Attributes:
        folder: The folder for checkpoint, output, logs and all else; it outlives the processes.
        source, sink: Options of the connector.
    """

    folder: Path
    source: Mapping[str, str]
    sink: Mapping[str, str]


@dataclass(frozen=True)
class Observed:
    """The results of the query."""

    batches: Mapping[int, Sequence[Delivered]]
    changed: Sequence[str]
    attempts: Sequence[Attempt]
    calls: Sequence[PutCall]


@dataclass
class Tally:
    """The counters of a run.

    Attributes:
        restarts: How often the query failed and was started again, by reason.
        replays: The number of batches that were run again.
        rss: The largest memory of a process in bytes, by its role.
        pids: The ids of all processes there ever were, by role.
    """

    restarts: dict[str, int] = field(default_factory=dict)
    replays: int = 0
    rss: dict[str, int] = field(default_factory=dict)
    pids: dict[int, str] = field(default_factory=dict)


class Engine(Protocol):
    """One query. Only :meth:`close` may be called twice.

    Attributes:
        speed: How many times faster its time passes than the machine's.
        pace: How many seconds of a schedule pass in one second of its time.
    """

    speed: float
    pace: float
    tally: Tally

    def start(self) -> None:
        """Run the query from its checkpoint."""

    def running(self) -> bool:
        """Return whether the driver lives, after its messages have been read.

        Raises:
            EngineError: The query failed, or the driver died for another reason than a kill.
        """

    def pinned(self) -> bool:
        """Return whether the query's start is in its checkpoint: later records must be read."""

    def delivered(self) -> int:
        """Return the number of records in the output of committed batches."""

    def kill(self, victim: Victim, moment: Moment) -> None:
        """Kill a process with SIGKILL, now or when it next reaches the given moment."""

    def freeze(self, victim: Victim) -> object:
        """Stop a process with SIGSTOP; return a handle for :meth:`thaw`, None without a process."""

    def thaw(self, frozen: object) -> None: ...

    def stand_still(self, seconds: float) -> None:
        """Stop taking records from the source for so long."""

    def speculate(self, tasks: int) -> None:
        """Run the next tasks twice at the same time, if the engine can do that."""

    def stop(self) -> list[str]:
        """Stop the query cleanly; return what its processes had not released."""

    def sample(self) -> None:
        """Measure memory."""

    def observed(self) -> Observed:
        """Return the results, after the driver is gone."""

    def states(self) -> str:
        """Return a text about the state, for a run that does not finish."""

    def close(self) -> None:
        """Kill whatever is left."""
