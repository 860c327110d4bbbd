"""The driver's side of the source: knows the positions, plans exact ranges, owns the agents."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import EmbeddedAgents
from kinesis_ds.agent.remote.processes import AgentProcesses
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.aws.service_clock import passed_second
from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.aws.transport import require
from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import OffsetError, StreamRecreatedError
from kinesis_ds.observe.counters_file import StatisticsFile
from kinesis_ds.observe.table import reported
from kinesis_ds.plan.batch import everything_until
from kinesis_ds.plan.limits import Limits, admit
from kinesis_ds.plan.loss import stream_recreated
from kinesis_ds.plan.offsets import InitialOffset, Offset, SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.ranges import ranges
from kinesis_ds.plan.start import ShardPositions, pin_now_ms
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.reader.source_stream import CONTROL_TIMEOUT_S, StreamReading, Until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.options.read import ReadOptions, StreamChoice
    from kinesis_ds.plan.planned_range import PlannedRange
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import Start

logger = logging.getLogger(__name__)

# Positions that moved over silence are checkpointed this often. The shortest retention is 24 h.
_IDLE_CHECKPOINT_S = 600.0
# A query that ends at the tip looks at least this often whether it is there.
_LOOK_S = 0.25


class Coordinator:
    """One source of one query. Called by one thread (PySpark's), closed by it.

    The first offset of a new query only pins its start: positions and the consumer's name are in
    the checkpoint before the consumer is registered or a record is read. From then on ``latest`` is
    what the agents have buffered, and nothing in it waits for data.

    Two triggers end: ``AvailableNow`` (:meth:`prepare_available_now`) in as many batches as it
    takes, and ``Once`` (``everything=True``) in one, which is read from Kinesis by the tasks,
    however much it is.

    Args:
        options: What the user asked for.
        clock: For deadlines and the pinned start.
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
        self._new_processes = new_processes
        self._new_network = new_network
        self._clock = clock or SystemClock()
        self._network: NetworkLoop | None = None
        self._agents: Agents | None = None
        self._readings: dict[str, StreamReading] = {}
        self._pinned: SourceOffset | None = None
        # The end of the last batch that Spark has planned; PySpark 4.0 and 4.1 pass no start.
        self._base: SourceOffset | None = None
        # An offset behind which there was nothing to do, so long as no news came.
        self._quiet: SourceOffset | None = None
        self._until: dict[str, Until] | None = None
        self._last_moved = self._clock.monotonic()
        self._statistics_file: StatisticsFile | None = None

    # --- what Spark asks ------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """End at the tip as of now, whatever is written from now on.

        Raises:
            KinesisConnectorError: A stream cannot be read.
        """
        self._until = {arn: self._now(reading) for arn, reading in self._look_up().items()}

    def latest(self, start: Offset | None, *, everything: bool = False) -> Offset:
        """Up to where a batch behind ``start`` can go; equal to ``start`` when there is nothing to
        do.

        Args:
            start: The end of the batch before; None where Spark does not tell.
            everything: All there is, in one batch, whatever the limits.

        Raises:
            KinesisConnectorError: A stream, its consumer or a shard cannot be read.
        """
        base = start if isinstance(start, SourceOffset) else None
        if start is None:
            base = self._base
        if everything:
            return self._everything(base)
        if base is None:
            self._pinned = self._pinned or self._pin()
            return self._pinned
        offset = self._next(base)
        while offset is base and self._until is not None and not self._arrived(base):
            agents = self._opened_agents()
            agents.moved.clear()
            agents.moved.wait(_LOOK_S)
            offset = self._next(base)
        return offset

    def plan(self, start: Offset, end: Offset) -> list[PlannedRange]:
        """The ranges of the batch from ``start`` to ``end``.

        Spark also calls this with two equal offsets, to tell a restarted source where it stands.
        """
        if isinstance(end, InitialOffset):
            return []
        self._base = end
        origins = {arn: _origin(start, to) for arn, to in end.streams.items()}
        if all(
            origin is None or not ranges(origin, end.streams[arn])
            for arn, origin in origins.items()
        ):
            return []  # for example the batch that pins the start
        readings = self._check(end)
        return [
            planned
            for arn, origin in origins.items()
            if origin is not None
            for planned in readings[arn].plan(origin, end.streams[arn])
        ]

    def commit(self, end: Offset) -> None:
        """Spark is done with everything up to ``end``: give its room back."""
        if isinstance(end, SourceOffset):
            self._free(end)

    def report(self) -> dict[str, Any] | None:
        """How far the streams are known and how far behind reading is, for Spark's progress.

        An offset, with ``lag`` and the ``counters`` of the shards that are furthest behind beside
        it; None before anything is read.
        """
        base = self._base
        if base is None or self._agents is None:
            return None
        streams = {
            arn: stream.with_shards({**stream.shards, **self._readings[arn].available()})
            for arn, stream in base.streams.items()
            if arn in self._readings
        }
        shards = self._shard_counters()
        behind = [s["millis_behind"] for s in shards.values() if s["state"] != "ended"]
        pool = self._agents.statistics()["pool"]
        return {
            **encode_offset(SourceOffset(streams)),
            "lag": {
                "shards": len(behind),
                "minMsBehindLatest": min(behind, default=0),
                "avgMsBehindLatest": sum(behind) // len(behind) if behind else 0,
                "maxMsBehindLatest": max(behind, default=0),
                "bufferedRecords": pool["used_records"],
                "bufferedBytes": pool["used_bytes"],
            },
            "counters": reported(shards),
        }

    def statistics(self) -> dict[str, Any]:
        """Counters of this source, as plain values.

        Shards are named by their id, with ``<stream>/`` before it where there are several streams.
        """
        readings = tuple(self._readings.values())
        names = [r.info.name for r in readings] or [s.label for s in self._options.streams]
        found: dict[str, Any] = {"kind": "source", "stream": ",".join(names)}
        if readings:
            found["consumer"] = readings[0].consumer
        if self._agents is not None:
            found.update(self._agents.statistics())
            found["shards"] = self._shard_counters()
        return found

    def close(self) -> None:
        """End everything this source started. Idempotent, never raises."""
        if self._statistics_file is not None:
            self._statistics_file.close()
        for reading in self._readings.values():
            reading.close()
        if self._agents is not None:
            self._agents.close()
        if self._network is not None:
            if self._options.deregister:
                for reading in self._readings.values():
                    reading.deregister()
            self._network.close()
        self._agents = self._network = self._statistics_file = None
        self._readings = {}

    def _shard_counters(self) -> dict[str, dict[str, Any]]:
        several = len(self._options.streams) > 1
        return {
            (f"{reading.info.name}/{shard}" if several else shard): counters
            for reading in tuple(self._readings.values())
            for shard, counters in reading.statistics().items()
        }

    # --- the next offset ------------------------------------------------------------------------

    def _next(self, base: SourceOffset) -> SourceOffset:
        readings = self._open(base)
        for reading in tuple(readings.values()):
            self._raise_failure(reading)
        # Spark asks for the next offset when the batch before it is done, and calls commit only
        # once there is a next batch. Waiting for commit would be a deadlock: a full buffer that
        # holds a finished batch can receive nothing, so there would never be a next one.
        self._free(base)
        agents = self._opened_agents()
        now = self._clock.monotonic()
        overdue = now - self._last_moved > _IDLE_CHECKPOINT_S
        if base == self._quiet and not agents.news.is_set() and not overdue:
            return base
        agents.news.clear()
        known = SourceOffset({arn: self._known(r, base) for arn, r in readings.items()})
        following = SourceOffset(
            {
                # A stream that is new in the query enters the checkpoint before it is read.
                arn: reading.following(known.streams[arn], self._until_of(arn))
                if arn in base.streams
                else known.streams[arn]
                for arn, reading in readings.items()
            }
        )
        if known != base or any(
            reading.has_news(known.streams[arn], following.streams[arn])
            for arn, reading in readings.items()
        ):
            limits = Limits(self._options.max_records, self._options.max_bytes)
            following = admit(known, following, limits, {a: r.agent for a, r in readings.items()})
            if following == base:
                return base  # who held what had come is gone; it comes again
        elif not (overdue and encode_offset(following) != encode_offset(base)):
            self._quiet = base
            return base
        self._last_moved, self._quiet = now, None
        return following

    def _until_of(self, arn: str) -> Until | None:
        return self._until[arn] if self._until is not None else None

    def _raise_failure(self, reading: StreamReading) -> None:
        """Raise why a stream delivers nothing more; one that was created again is begun again,
        where the user wants that.
        """
        try:
            reading.raise_failure()
        except StreamRecreatedError:
            loss = stream_recreated(reading.info.name)
            loss.accept(fail_on_data_loss=self._options.fail_on_data_loss)
            reading.close()
            self._readings.update(self._find([reading.choice]))

    def _known(self, reading: StreamReading, base: SourceOffset) -> StreamOffset:
        """Where a stream stands: in the offset, or at its start where the offset does not have
        it.
        """
        stream = base.streams.get(reading.info.arn)
        if stream is None:
            assert self._pinned is not None
            return self._pinned.streams[reading.info.arn]
        return reading.checked(stream)

    def _arrived(self, base: SourceOffset) -> bool:
        """Whether a query that ends at the tip as of its start is there."""
        assert self._until is not None
        readings, until = self._readings, self._until

        def reached() -> bool:
            return all(r.reached(self._known(r, base), until[a]) for a, r in readings.items())

        async def ask() -> bool:
            return all(await asyncio.gather(*(r.knows_all_shards() for r in readings.values())))

        if not reached():
            return False
        complete = self._connect().run(ask(), CONTROL_TIMEOUT_S, "Listing the shards")
        # Once more, with the shards that have become known since.
        return complete and reached()

    def _everything(self, base: SourceOffset | None) -> SourceOffset:
        readings = self._look_up(fresh=True)
        origin = self._pin() if base is None else base
        streams = {}
        for arn, reading in readings.items():
            stream = origin.streams.get(arn) or self._pin().streams[arn]
            known = base is not None and arn in base.streams
            stream = reading.checked(stream)
            if known:
                stream = reading.looked_after(stream)
            ends = everything_until(stream.shards, reading.listed, self._now(reading).service_ms)
            streams[arn] = StreamOffset(
                stream.name,
                stream.arn,
                stream.created_ms,
                stream.consumer,
                ends,
                start=None if known else stream.shards,
            )
        return SourceOffset(streams)

    def _free(self, done: SourceOffset) -> None:
        for arn, stream in done.streams.items():
            if arn in self._readings:
                self._readings[arn].free(stream)

    def _now(self, reading: StreamReading) -> Until:
        network = self._connect()
        stream = StreamId(arn=reading.info.arn)
        passed = network.run(
            passed_second(network.connection, stream, self._clock),
            CONTROL_TIMEOUT_S,
            f"Asking for the time of {reading.label}",
        )
        return Until(passed, int(self._clock.wall() * 1000))

    # --- opening --------------------------------------------------------------------------------

    def _connect(self) -> NetworkLoop:
        if self._network is None:
            aws = self._options.aws
            if self._options.mode == "efo":
                require(aws.transport, aws.endpoint)
            self._network = self._new_network(aws)
        return self._network

    def _look_up(self, *, fresh: bool = False) -> dict[str, StreamReading]:
        """The streams of the query by ARN, looked up once, or again if nothing reads them yet."""
        if self._readings and not (fresh and self._agents is None):
            return self._readings
        self._readings = self._find(self._options.choices)
        return self._readings

    def _find(self, choices: Sequence[StreamChoice]) -> dict[str, StreamReading]:
        network, options = self._connect(), self._options

        async def look(stream: StreamId) -> tuple[StreamInfo, ShardMap]:
            info = await describe_stream(network.connection, stream)
            return info, await list_shards(network.connection, StreamId(arn=info.arn))

        async def look_all() -> list[tuple[StreamInfo, ShardMap]]:
            return await asyncio.gather(*(look(choice.stream) for choice in choices))

        label = ", ".join(choice.stream.label for choice in choices)
        found = network.run(look_all(), CONTROL_TIMEOUT_S, f"Looking up stream {label}")
        return {
            info.arn: StreamReading(options, choice, info, listed, network, self._clock)
            for choice, (info, listed) in zip(choices, found, strict=True)
        }

    def _pin(self) -> SourceOffset:
        options = self._options
        made_up = f"{options.consumer_prefix}{secrets.token_hex(6)}"
        streams = {}
        for arn, reading in self._look_up().items():
            info, consumer = reading.info, reading.choice.consumer or made_up
            now_ms = pin_now_ms(self._clock.wall(), info.server_time)
            start: Start | ShardPositions = options.initial_position
            if isinstance(start, ShardPositions):
                start = start.of(info.arn, reading.listed, info.created_ms)
            streams[arn] = reading.at_start(consumer, start, now_ms)
            logger.info(
                "start pinned stream=%s consumer=%s shards=%d",
                info.name,
                consumer,
                len(streams[arn].shards),
            )
        return SourceOffset(streams)

    def _check(self, base: SourceOffset) -> dict[str, StreamReading]:
        """The streams of an offset, looked up.

        Raises:
            OffsetError: The query does not read one of them.
        """
        readings = self._look_up()
        gone = sorted(base.streams.keys() - readings.keys())
        if gone:
            raise OffsetError(
                f"The checkpoint belongs to the stream {', '.join(gone)}, and the query reads "
                f"{', '.join(readings)}.",
                "Use the streams of the checkpoint, or start with a new checkpointLocation.",
            )
        return readings

    def _open(self, base: SourceOffset) -> dict[str, StreamReading]:
        """Start reading at ``base``, once."""
        readings = self._check(base)
        if self._agents is None:
            self._agents = self._new_agents()
            if self._options.diagnostics_dir:
                self._statistics_file = StatisticsFile(
                    self._options.diagnostics_dir, "source", self.statistics
                )
        if readings.keys() - base.streams.keys() and self._pinned is None:
            self._pinned = self._pin()  # a stream that was added to the query
        for reading in readings.values():
            reading.open(self._known(reading, base), self._agents, resumed=base != self._pinned)
        return readings

    def _new_agents(self) -> Agents:
        options, network = self._options, self._connect()
        if options.agent_processes == 1:
            return EmbeddedAgents(options.buffer_bytes, network, self._clock)
        return self._new_processes(
            options.agent_processes, options.buffer_bytes, options.aws, network, self._clock
        )

    def _opened_agents(self) -> Agents:
        assert self._agents is not None
        return self._agents


def _origin(start: Offset, end: StreamOffset) -> StreamOffset | None:
    """Where a batch starts in a stream; None when it holds nothing of it."""
    before = start.streams.get(end.arn) if isinstance(start, SourceOffset) else None
    if before is not None and before.created_ms == end.created_ms:
        return before
    if before is not None:
        return end.with_shards({})  # a stream created again is read from its oldest record
    return end.with_shards(end.start) if end.start is not None else None
