"""One stream's agent, as the coordinator sees it, when its shards are read by other processes.

Positions are mirrored here, so that what is asked all the time costs no round trip. How much is
held of ranges is asked of the processes, each once for all its ranges.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.lag import lag
from kinesis_ds.agent.remote import messages
from kinesis_ds.plan.position import Position, ShardEnd, precedes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.agent.interface import Diagnose
    from kinesis_ds.agent.remote.processes import AgentProcesses
    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.plan.held import Held, Limits
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import Shard
    from kinesis_ds.plan.ticket import AgentAddress


@dataclass
class _Shard:
    """A shard that was assigned to a process.

    Attributes:
        shard: The shard as it was last listed.
        process: The number of the process that reads it. It never changes; the process may die and
            be replaced.
        committed: Up to where Spark has committed. A new process starts here.
        reached: Up to where it can be planned: what the process that runs now has received. Never
            behind ``committed``: what is committed need not be received again.
    """

    shard: Shard
    process: int
    committed: Position
    reached: Position

    @property
    def reading(self) -> bool:
        """Return whether the shard is not at its end."""
        return not isinstance(self.reached, ShardEnd)


@dataclass(eq=False, repr=False)
class RemoteAgent:
    """An :class:`~kinesis_ds.agent.interface.Agent` whose shards are read by other processes.

    Attributes:
        number: Its number, which names it in messages.
        options: What each process is told about the stream.
        processes: The processes among which the shards are divided.
        diagnose: Finds out why the service refuses a shard.
        changed: Called on the loop when a shard broke off or ended.
    """

    number: int
    options: AgentOptions
    processes: AgentProcesses
    diagnose: Diagnose
    changed: Callable[[], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shards: dict[str, _Shard] = field(default_factory=dict)
    # By process, how many of its shards are not at their end.
    _loads: Counter[int] = field(default_factory=Counter)
    _addresses: dict[int, AgentAddress] = field(default_factory=dict)
    # By process, the shards of which nothing comes.
    _silent: dict[int, list[str]] = field(default_factory=dict)
    _failure: KinesisConnectorError | None = None
    _closed: bool = False

    # --- on the loop, by discovery --------------------------------------------------------------

    def assign(self, shard: Shard, position: Position) -> None:
        """Start reading a shard behind ``position``."""
        process = self.processes.least_loaded()
        with self._lock:
            self._shards[shard.shard_id] = _Shard(shard, process, position, position)
            self._loads[process] += 1
        self.processes.send(process, messages.Assign(self.number, shard, position))

    def mark_closed(self, shard_id: str) -> None:
        """Note that ListShards now shows a shard as closed."""
        with self._lock:
            found = self._shards.get(shard_id)
            if found is None:
                return
            found.shard = replace(found.shard, closed=True)
        self.processes.send(found.process, messages.MarkClosed(self.number, shard_id))

    def forget(self, shard_ids: Collection[str]) -> None:
        """Forget shards whose ends were freed; their processes did when they were told of that."""
        with self._lock:
            for shard_id in shard_ids:
                self._shards.pop(shard_id, None)

    # --- on the loop, by AgentProcesses when something happens to a process --------------------

    def begin(self, process: int) -> None:
        """Send a process that has been started its shards, each with where it is committed."""
        options = self.options.part(process, self.processes.count)
        self.processes.send(process, messages.OpenAgent(self.number, options))
        with self._lock:
            theirs = [s for s in self._shards.values() if s.process == process]
        for found in theirs:
            if not isinstance(found.committed, ShardEnd):
                assign = messages.Assign(self.number, found.shard, found.committed)
                self.processes.send(process, assign)

    def opened(self, process: int, address: AgentAddress) -> None:
        """Note where a process serves ranges."""
        with self._lock:
            self._addresses[process] = address

    def moved(self, process: int, positions: Mapping[str, Position], *, news: bool) -> None:
        """Note up to where shards of a process can be planned now."""
        with self._lock:
            for shard_id, position in positions.items():
                found = self._shards.get(shard_id)
                if found is not None and found.process == process:
                    behind = precedes(position, found.committed)
                    self._reach(found, found.committed if behind else position)
        self.processes.wake(news=news)

    def silenced(self, process: int, shard_ids: list[str]) -> None:
        """Note of which shards of a process nothing comes although it should."""
        self._silent[process] = shard_ids

    def failed(self, failure: KinesisConnectorError) -> None:
        """Note why a shard will deliver nothing more."""
        with self._lock:
            self._failure = self._failure or failure
        self.processes.wake(news=True)

    def lost(self, process: int) -> None:
        """Note that a process is dead: what it had received and Spark has not committed is gone."""
        with self._lock:
            self._addresses.pop(process, None)
            self._silent.pop(process, None)
            for found in self._shards.values():
                if found.process == process:
                    self._reach(found, found.committed)
        self.processes.wake(news=True)

    def load(self, process: int) -> int:
        """Return how many shards a process reads that are not at their end; from any thread."""
        return self._loads[process]

    def _reach(self, found: _Shard, position: Position) -> None:
        """Set where a shard can be planned. Call with the lock held."""
        was_reading = found.reading
        found.reached = position
        self._loads[found.process] += found.reading - was_reading

    # --- from any thread, from memory -----------------------------------------------------------

    def available(self) -> dict[str, Position]:
        """Return, by shard id, up to where each shard can be planned."""
        with self._lock:
            return {shard_id: found.reached for shard_id, found in self._shards.items()}

    def failure(self) -> KinesisConnectorError | None:
        """Return why a shard, or every shard, will deliver nothing more; None if all do."""
        with self._lock:
            return self._failure or self.processes.failure

    def free(self, positions: Mapping[str, Position]) -> None:
        """Free the records up to these positions, which Spark has committed."""
        by_process: dict[int, dict[str, Position]] = {}
        with self._lock:
            for shard_id, position in positions.items():
                found = self._shards.get(shard_id)
                # The same position comes again with each batch that its shard did not move in.
                if (
                    found is None
                    or found.committed is position
                    or not precedes(found.committed, position)
                ):
                    continue
                by_process.setdefault(found.process, {})[shard_id] = position
                found.committed = position
                if precedes(found.reached, position):
                    self._reach(found, position)
        for process, freed in by_process.items():
            self.processes.post(process, messages.Free(self.number, freed))

    def address_of(self, shard_id: str) -> AgentAddress | None:
        """Return where tasks get the ranges of a shard; None while no process serves it."""
        with self._lock:
            found = self._shards.get(shard_id)
            return self._addresses.get(found.process) if found is not None else None

    def silent(self) -> list[str]:
        """Return the shards of which nothing has come for ``SILENT_S`` although it should."""
        return [shard_id for silent in tuple(self._silent.values()) for shard_id in silent]

    # --- from any thread but the loop's, one round trip -----------------------------------------

    def hold(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> list[Held | None]:
        """Return how much is held of each range, within its limits; None where not all of it is."""
        return self._ask_hold(ranges, limits, planned=False)

    def plan(self, ranges: Sequence[ShardRange]) -> list[Held | None]:
        """Do the same as ``hold``, and count later whether tasks fetched what is held."""
        return self._ask_hold(ranges, (), planned=True)

    def _ask_hold(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits], *, planned: bool
    ) -> list[Held | None]:
        mine: dict[int, list[int]] = {}
        with self._lock:
            for i, wanted in enumerate(ranges):
                owner = self._shards.get(wanted.shard_id)
                if owner is not None:
                    mine.setdefault(owner.process, []).append(i)
        answers = self.processes.ask(
            {
                process: messages.Hold(
                    0,
                    self.number,
                    tuple(ranges[i] for i in indexes),
                    tuple(limits[i] for i in indexes) if limits else (),
                    planned,
                )
                for process, indexes in mine.items()
            }
        )
        found: list[Held | None] = [None] * len(ranges)
        for process, answer in answers.items():
            for i, held in zip(mine[process], answer or (), strict=False):
                found[i] = held
        return found

    def targets(self, until_ms: int, host_ms: int) -> dict[str, Position]:
        """Return where a reader stops that wants all that arrived before ``until_ms``, by shard id,
        for the shards where that is known.
        """
        with self._lock:
            processes = {found.process for found in self._shards.values()}
        question = messages.Targets(0, self.number, until_ms, host_ms)
        answers = self.processes.ask(dict.fromkeys(processes, question))
        return {
            shard_id: position
            for answer in answers.values()
            for shard_id, position in (answer or {}).items()
        }

    def statistics(self) -> dict[str, Any]:
        """Return the counters of each shard since its process was started, as plain values."""
        of_processes = self.processes.counters()
        with self._lock:
            owners = {shard_id: found.process for shard_id, found in self._shards.items()}
        found = {}
        for shard_id, process in owners.items():
            mine = of_processes[process].get("agents", {}).get(str(self.number), {})
            if shard_id in mine:
                aged = _aged(mine[shard_id], of_processes[process]["at"])
                found[shard_id] = {**aged, "process": process}
        return found

    def close(self) -> None:
        """Stop reading in all processes. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.processes.forget(self.number)


def _aged(found: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Return counters that a process answered with at a monotonic time, with the lag of now."""
    if found["state"] == "ended":
        return dict(found)
    aged = lag(found["millis_behind"], time.monotonic() - at)
    aged["millis_behind_estimated"] |= found["millis_behind_estimated"]
    return {**found, **aged}
