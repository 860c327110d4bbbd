"""The agent itself: reads the shards of one stream, buffers their records and serves ranges.

``EmbeddedAgents`` and ``ShardAgent`` are the :class:`~kinesis_ds.agent.interface.Agents` and the
:class:`~kinesis_ds.agent.interface.Agent` of a source that has no agent processes. An agent process
has an ``AgentHost`` and a ``ShardAgent`` for each stream, too.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.context import AgentOptions, ShardContext
from kinesis_ds.agent.efo.machine import Contention, Subscription
from kinesis_ds.agent.efo.runner import SubscriptionRunner
from kinesis_ds.agent.executor import DecodingThreads
from kinesis_ds.agent.fetches import FetchCounts, Fetches
from kinesis_ds.agent.growth import FIRST_GUESS, StreamGrowth
from kinesis_ds.agent.machine import ShardClosed, Stop
from kinesis_ds.agent.polling.machine import Polling
from kinesis_ds.agent.polling.runner import PollingRunner
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.agent.range_server import RangeServer
from kinesis_ds.aws.consumers import consumer_name
from kinesis_ds.errors import AgentError, KinesisConnectorError
from kinesis_ds.limits import MAX_BUFFERED_RECORDS, SILENT_S
from kinesis_ds.plan.held import NO_LIMITS
from kinesis_ds.plan.position import After, ShardEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kinesis_ds.agent.buffer import OnMoved
    from kinesis_ds.agent.interface import Diagnose
    from kinesis_ds.agent.runner import ShardRunner
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.plan.held import Held, Limits
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import Shard
    from kinesis_ds.plan.ticket import AgentAddress

logger = logging.getLogger(__name__)


# Two, so that a decoder that hangs holds up nobody else. More than a few get into each other's way
# under one interpreter lock: on two cores, two are 8% slower than one.
_MOST_THREADS = 4


# The part of the buffer that is reserved for one message by a guess at most.
_GUESSED_PART = 4


class AgentHost:
    """Shared by the agents of one process: room for records, and the threads that decode them.

    Attributes:
        buffer_bytes: The bound of the pool.
        pool: Room for the records of all agents.
        threads: Where records are decoded.
        fetch_counts: What became of the ranges that tasks were to fetch.
        news: Set when records came, or a shard ended or failed. Clear it before you look.
        moved: Set when any position moved, also over silence. Clear it before you look.
    """

    def __init__(self, buffer_bytes: int, max_records: int = MAX_BUFFERED_RECORDS) -> None:
        self.buffer_bytes = buffer_bytes
        self.pool = BufferPool(buffer_bytes, max_records)
        self.threads = DecodingThreads(min(_MOST_THREADS, max(2, os.cpu_count() or 1)))
        self.fetch_counts = FetchCounts()
        self.news = threading.Event()
        self.moved = threading.Event()

    def wake(self, *, news: bool) -> None:
        """Wake who waits for a position to move; with ``news``, who waits for records, the end of a
        shard or a failure. From any thread.
        """
        if news:
            self.news.set()
        self.moved.set()

    def close(self) -> None:
        """Drop queued work and wait for the pieces under way; close the agents first."""
        self.threads.close()


class EmbeddedAgents(AgentHost):
    """The agents of a source in its own process and on its network loop."""

    def __init__(self, buffer_bytes: int, network: NetworkLoop, clock: Clock) -> None:
        super().__init__(buffer_bytes)
        self._network = network
        self._clock = clock

    def agent(
        self, options: AgentOptions, diagnose: Diagnose, changed: Callable[[], None]
    ) -> ShardAgent:
        """Return a new agent for a stream. Close it before this."""
        return ShardAgent(options, self, self._network, self._clock, diagnose, changed)

    def statistics(self) -> dict[str, Any]:
        """Return the state of the pool, and what became of the ranges that were planned."""
        return {"pool": asdict(self.pool.statistics()), "ranges": self.fetch_counts.counters()}


class ShardAgent:
    """Reads the shards of one stream that it is assigned, and serves ranges of them, until closed.

    ``assign``, ``mark_closed`` and ``forget`` run on the network loop; everything else may be
    called from any thread.

    Args:
        diagnose: Finds out why the service refuses a shard.
        changed: Called on the loop when a shard broke or ended.
        on_moved: Returns, for a shard id, what its buffer calls when it has moved; None: the buffer
            wakes who waits at the host.
    """

    def __init__(
        self,
        options: AgentOptions,
        host: AgentHost,
        network: NetworkLoop,
        clock: Clock,
        diagnose: Diagnose,
        changed: Callable[[], None],
        on_moved: Callable[[str], OnMoved] | None = None,
    ) -> None:
        self._options = options
        self._host = host
        self._network = network
        self._clock = clock
        self._diagnose = diagnose
        self._changed = changed
        self._on_moved = on_moved
        self._lock = threading.Lock()
        self._runners: dict[str, ShardRunner] = {}
        self._fetches = Fetches(host.fetch_counts)
        self._server = RangeServer(
            options.host,
            self._served,
            self._fetches,
            advertised_host=options.advertised_host,
            ports=(options.first_port, options.last_port),
        )
        self._contention = Contention(consumer_name(options.consumer_arn))
        self._growth = StreamGrowth(
            FIRST_GUESS if options.deaggregate else 1.0, host.buffer_bytes // _GUESSED_PART
        )
        self._closed = False

    @property
    def address(self) -> AgentAddress:
        """Where tasks fetch ranges."""
        return self._server.address

    def assign(self, shard: Shard, position: Position) -> None:
        """Start reading a shard behind ``position``. On the network loop."""
        options = self._options
        context = ShardContext(options, shard, self._diagnose, self._changed, self._growth)
        shard_id, pool = shard.shard_id, self._host.pool
        on_moved = self._host.wake if self._on_moved is None else self._on_moved(shard_id)
        buffer = ShardBuffer(shard_id, position, pool, on_moved, context.pool_key)
        executor = self._host.threads.executor()
        fail = options.fail_on_data_loss
        runner: ShardRunner
        if options.polling is None:
            machine = Subscription(
                context.label, position, fail_on_data_loss=fail, contention=self._contention
            )
            runner = SubscriptionRunner(
                context, machine, buffer, pool, executor, self._network, self._clock
            )
        else:
            polling = Polling(
                context.label,
                position,
                options.polling,
                buffer_bytes=self._host.buffer_bytes,
                fail_on_data_loss=fail,
                retention_s=options.retention_s,
                growth=context.growth.of_a_shard(),
            )
            runner = PollingRunner(
                context, polling, buffer, pool, executor, self._network, self._clock
            )
        with self._lock:
            self._runners[shard.shard_id] = runner
        logger.info(
            "shard assigned shard=%s stream=%s position=%s",
            shard.shard_id,
            options.stream,
            position,
        )
        runner.start()
        if shard.closed:
            runner.handle(ShardClosed())

    def mark_closed(self, shard_id: str) -> None:
        """Note that ListShards shows the shard closed. On the network loop."""
        runner = self._runner(shard_id)
        if runner is not None:
            runner.handle(ShardClosed())

    def forget(self, shard_ids: Collection[str]) -> None:
        """Forget shards whose ends were freed. On the network loop."""
        with self._lock:
            for shard_id in shard_ids:
                self._runners.pop(shard_id, None)

    def available(self) -> dict[str, Position]:
        """Return, by shard id, up to where the shard can be planned."""
        with self._lock:
            return {shard: runner.buffer.available for shard, runner in self._runners.items()}

    def buffer(self, shard_id: str) -> ShardBuffer | None:
        """Return the buffer of a shard; None for one that is not read here."""
        runner = self._runner(shard_id)
        return runner.buffer if runner is not None else None

    def address_of(self, shard_id: str) -> AgentAddress | None:
        """Return where tasks fetch the ranges of a shard; None if it is not read here."""
        return self.address if self._runner(shard_id) is not None else None

    # --- questions ------------------------------------------------------------------------------

    def hold(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> Iterator[Held | None]:
        """Yield how much is held of each range, within its limits; None where not all of it is."""
        for r, limit in zip(ranges, limits or (NO_LIMITS,) * len(ranges), strict=True):
            runner = self._runner(r.shard_id)
            yield None if runner is None else runner.buffer.hold(r.start, r.end, limit)

    def plan(self, ranges: Sequence[ShardRange]) -> list[Held | None]:
        """Do the same as ``hold``, and count later whether tasks fetched what is held."""
        found = list(self.hold(ranges))
        for planned, held in zip(ranges, found, strict=True):
            if held is not None and held.records:
                self._fetches.plan(planned)
        return found

    def targets(self, until_ms: int, host_ms: int) -> dict[str, Position]:
        """Return where a reader stops that wants all that arrived before ``until_ms``."""
        with self._lock:
            runners = dict(self._runners)
        found = {shard: _target(r, until_ms, host_ms) for shard, r in runners.items()}
        return {shard: target for shard, target in found.items() if target is not None}

    # --- what became of it ----------------------------------------------------------------------

    def free(self, positions: Mapping[str, Position]) -> None:
        """Drop what Spark has committed: by shard id, up to which position."""
        for shard_id, position in positions.items():
            self._fetches.commit(shard_id, position)
            runner = self._runner(shard_id)
            if runner is None:
                continue
            runner.buffer.free(position)
            if isinstance(position, ShardEnd) and not isinstance(runner.buffer.available, ShardEnd):
                # Read to its end by an agent that is gone; this one had only begun to follow.
                self._network.post(runner.handle, Stop())

    def failure(self) -> KinesisConnectorError | None:
        """Return why a shard will deliver nothing more; None while none has failed."""
        with self._lock:
            return next((r.failure for r in self._runners.values() if r.failure is not None), None)

    def silent(self) -> list[str]:
        """Return the shards of which nothing has come for ``SILENT_S`` although it should."""
        polling = self._options.polling
        for_s = SILENT_S + (polling.min_period_s if polling is not None else 0.0)
        with self._lock:
            return [shard for shard, r in self._runners.items() if r.silent_s() >= for_s]

    def statistics(self) -> dict[str, Any]:
        """Return the counters of each shard by its id, as plain values."""
        with self._lock:
            runners = dict(self._runners)
        return {
            shard: {
                **vars(runner.counters),
                **runner.lag(),
                # A copy in one step: the loop adds to it meanwhile.
                "errors": dict(runner.counters.errors),
                "state": runner.state,
                "generation": runner.machine.generation,
                "renewals": runner.machine.renewals,
                "stale": runner.machine.stale,
                "held_bytes": self._host.pool.used(runner.buffer.pool_key),
                "available": str(runner.buffer.available),
                "committed": str(runner.buffer.start),
            }
            for shard, runner in runners.items()
        }

    def close(self) -> None:
        """Stop reading and serving. Idempotent. Loop and host are left to their owner."""
        if self._closed:
            return
        self._closed = True
        for runner in tuple(self._runners.values()):
            self._network.post(runner.handle, Stop())
        self._server.close()
        for runner in tuple(self._runners.values()):
            runner.buffer.close()

    def _runner(self, shard_id: str) -> ShardRunner | None:
        return self._runners.get(shard_id)  # one step: needs no lock

    def _served(self, shard_id: str) -> ShardBuffer:
        buffer = self.buffer(shard_id)
        if buffer is None:
            raise AgentError(f"This agent does not hold shard {shard_id}.")
        return buffer


def _target(runner: ShardRunner, until_ms: int, host_ms: int) -> Position | None:
    at_tip = runner.counters.events > 0 and not runner.counters.millis_behind
    available = runner.buffer.available
    before = runner.buffer.until(until_ms)
    if before is not None or isinstance(available, ShardEnd) or at_tip:
        return before or available
    seen = available.seen_ms if isinstance(available, After) else None
    return available if seen is not None and seen >= host_ms else None
