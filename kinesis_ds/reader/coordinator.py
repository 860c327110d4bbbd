"""The driver's side of the source: it answers Spark with offsets and exact ranges."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.remote.processes import AgentProcesses
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.plan.batch import everything_until
from kinesis_ds.plan.held import Limits
from kinesis_ds.plan.limits import admit
from kinesis_ds.plan.offsets import InitialOffset, Offset, SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.ranges import ranges
from kinesis_ds.reader.planning import plan_stream
from kinesis_ds.reader.progress import progress_report
from kinesis_ds.reader.source import Source
from kinesis_ds.reader.source_stream import CONTROL_TIMEOUT_S, SourceStream, Until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.planned_range import PlannedRange

# Positions that moved over silence are checkpointed this often. The shortest retention is 24 h.
_IDLE_CHECKPOINT_S = 600.0
# A query that ends at the tip looks at least this often whether it is there.
_LOOK_S = 0.25


class Coordinator:
    """The offsets of one source of one query. Called by one thread (PySpark's), closed by it.

    The first offset of a new query only fixes its start: positions and the consumer's name are in
    the checkpoint before the consumer is registered or a record is read. From then on ``latest`` is
    what the agents have buffered, and nothing in it waits for data.

    Two triggers end: ``AvailableNow`` (:meth:`prepare_available_now`) in as many batches as it
    takes, and ``Once`` (``everything=True``) in one batch, which the tasks read from Kinesis,
    however much it is.

    Args:
        options: What the user asked for.
        clock: For deadlines and the start of a new query.
        new_network: Makes the network loop; a test may let its time pass faster.
        new_processes: Starts agent processes, where there are any.
    """

    def __init__(
        self,
        options: ReadOptions,
        clock: Clock | None = None,
        new_network: Callable[[AwsOptions], NetworkLoop] = NetworkLoop,
        new_processes: Callable[..., Agents] = AgentProcesses,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._source = Source(options, self._clock, new_network, new_processes)
        # The end of the last batch that Spark has planned; PySpark 4.0 and 4.1 pass no start.
        self._base: SourceOffset | None = None
        # An offset behind which there was nothing to do, so long as no news came.
        self._quiet: SourceOffset | None = None
        self._until: Until | None = None
        self._last_moved = self._clock.monotonic()

    # --- what Spark asks ------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """End at the tip as of now, whatever is written from now on. Takes 1 to 2 s.

        Raises:
            KinesisConnectorError: A stream cannot be read.
        """
        self._until = _now(self._source.streams())

    def latest(self, start: Offset | None, *, everything: bool = False) -> Offset:
        """Return up to where a batch behind ``start`` can go: ``start`` if there is nothing to do.

        Args:
            start: The end of the batch before; None where Spark does not pass it.
            everything: Take all there is in one batch, whatever the limits.

        Raises:
            KinesisConnectorError: A stream, its consumer or a shard cannot be read.
        """
        base = self._base if start is None else start
        if isinstance(base, InitialOffset):
            base = None
        if everything:
            return self._everything(base)
        if base is None:
            return self._source.start()
        offset = self._next(base)
        while offset is base and self._until is not None and not self._arrived(base, self._until):
            moved = self._source.agents.moved
            moved.clear()
            moved.wait(_LOOK_S)
            offset = self._next(base)
        return offset

    def plan(self, start: Offset, end: Offset) -> list[PlannedRange]:
        """Return the ranges of the batch from ``start`` to ``end``.

        Spark also calls this with two equal offsets, to show a restarted source where it stands.

        Raises:
            KinesisConnectorError: A stream cannot be looked up, or records of the batch are lost.
        """
        if isinstance(end, InitialOffset):
            return []
        self._base = end
        origins = {arn: _origin(start, to) for arn, to in end.streams.items()}
        if not any(origin and ranges(origin, end.streams[arn]) for arn, origin in origins.items()):
            return []  # for example the batch that fixes the start
        streams = self._source.streams_of(end)
        planned = []
        for arn, origin in origins.items():
            if origin is not None:
                opened = self._source.open.get(arn)
                listed = (opened or streams[arn]).listed
                agent = opened.agent if opened is not None else None
                planned += plan_stream(origin, end.streams[arn], listed, self._options, agent)
        self._source.fallbacks.not_held += sum(range_.agent is None for range_ in planned)
        return planned

    def commit(self, end: Offset) -> None:
        """Free the buffers up to ``end``: Spark is done with it."""
        if isinstance(end, SourceOffset):
            for arn, offset in end.streams.items():
                if arn in self._source.open:
                    self._source.open[arn].free(offset)
            if self._source.has_agents:
                self._source.fallbacks.look(self._source.agents)

    def report(self) -> dict[str, Any] | None:
        """Return how far behind reading is, for Spark's progress; None before anything is read."""
        source = self._source
        if self._base is None or not source.has_agents:
            return None
        return progress_report(
            self._base, source.open, source.agents, source.fallbacks, several=source.several
        )

    def statistics(self) -> dict[str, Any]:
        """Return the counters of this source, as plain values. From any thread."""
        return self._source.statistics()

    def close(self) -> None:
        """End everything this source started. Idempotent, never raises."""
        self._source.close()

    # --- the next offset ------------------------------------------------------------------------

    def _next(self, base: SourceOffset) -> SourceOffset:
        source = self._source
        streams = source.opened(base)
        # Spark asks for the next offset when the batch before it is done, and calls commit only
        # once there is a next batch. Waiting for commit would be a deadlock: a full buffer that
        # holds a finished batch can receive nothing, so there would never be a next one.
        self.commit(base)
        news = source.agents.news
        now = self._clock.monotonic()
        overdue = now - self._last_moved > _IDLE_CHECKPOINT_S
        if base == self._quiet and not news.is_set() and not overdue:
            return base
        news.clear()
        known = SourceOffset({arn: source.known(s.source, base) for arn, s in streams.items()})
        following = SourceOffset(
            {
                # A stream that is new in the query enters the checkpoint before it is read.
                arn: stream.following(known.streams[arn], self._until)
                if arn in base.streams
                else known.streams[arn]
                for arn, stream in streams.items()
            }
        )
        if known != base or any(
            stream.has_news(known.streams[arn], following.streams[arn])
            for arn, stream in streams.items()
        ):
            limits = Limits(self._options.max_records, self._options.max_bytes)
            holds = {arn: stream.agent.hold for arn, stream in streams.items()}
            following = admit(known, following, limits, holds)
            if following == base:
                return base  # who held what had come is gone; it comes again
        elif not (overdue and encode_offset(following) != encode_offset(base)):
            self._quiet = base
            return base
        self._last_moved, self._quiet = now, None
        return following

    def _arrived(self, base: SourceOffset, until: Until) -> bool:
        """Return True if a query that ends at ``until`` is there."""
        source = self._source

        def reached() -> bool:
            return all(s.reached(source.known(s.source, base), until) for s in source.open.values())

        async def ask() -> bool:
            return all(await asyncio.gather(*(s.knows_all_shards() for s in source.open.values())))

        if not reached():
            return False
        complete = source.network.run(ask(), CONTROL_TIMEOUT_S, "Listing the shards")
        # Once more, with the shards that have become known since.
        return complete and reached()

    def _everything(self, base: SourceOffset | None) -> SourceOffset:
        source = self._source
        source.streams(fresh=True)
        origin = source.new_start() if base is None else base
        streams = source.streams_of(origin)
        logged = base.streams.keys() if base is not None else ()
        starts = {}
        for arn, stream in streams.items():
            start = stream.checked(origin.streams.get(arn) or source.new_start().streams[arn])
            if arn in logged:
                stream.log_resumed(start)
                start = stream.without_lost(start)
            starts[arn] = start
        until_ms = _now(streams).service_ms
        return SourceOffset(
            {
                arn: replace(
                    start,
                    shards=everything_until(start.shards, streams[arn].listed, until_ms),
                    start=None if arn in logged else start.shards,
                )
                for arn, start in starts.items()
            }
        )


def _now(streams: Mapping[str, SourceStream]) -> Until:
    """Return the present moment, once it has passed (1 to 2 s).

    All streams of a query are in one region. So one of them shows the clock of all, and their
    number costs no time.
    """
    return next(iter(streams.values())).now()


def _origin(start: Offset, end: StreamOffset) -> StreamOffset | None:
    """Return where a batch starts in a stream, or None if it holds nothing of it."""
    before = start.streams.get(end.arn) if isinstance(start, SourceOffset) else None
    if before is not None and before.created_ms == end.created_ms:
        return before
    if before is not None:
        return end.with_shards({})  # a stream created again is read from its oldest record
    return end.with_shards(end.start) if end.start is not None else None
