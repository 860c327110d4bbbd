"""The driver's side of the source: knows the positions, plans exact ranges, owns the embedded
agent.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import AgentOptions, ShardAgent
from kinesis_ds.agent.network import NetworkLoop
from kinesis_ds.aws.streams import (
    StreamInfo,
    deregister_consumer,
    describe_stream,
    ensure_consumer,
    list_shards,
)
from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import KinesisConnectorError, OffsetError
from kinesis_ds.metrics import StatisticsFile
from kinesis_ds.offsets import InitialOffset, Offset, SourceOffset, StreamOffset
from kinesis_ds.planning import advance, first_positions, has_news, pin_now_ms, ranges
from kinesis_ds.reader.discovery import Discovery, recreated
from kinesis_ds.reader.partition import PlannedRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.options import AwsOptions, ReadOptions
    from kinesis_ds.shards import ShardMap

logger = logging.getLogger(__name__)

_CONTROL_TIMEOUT_S = 120.0
# Positions that moved over silence are checkpointed this often. The shortest retention is 24 h.
_IDLE_CHECKPOINT_S = 600.0


class Coordinator:
    """One source of one query. Called by one thread (PySpark's), closed by it.

    The first offset of a new query only pins its start: positions and the consumer's name are in
    the checkpoint before the consumer is registered or a record is read. From then on ``latest`` is
    what the agent has buffered, and nothing in it waits for data.

    Args:
        options: What the user asked for.
        clock: For deadlines and the pinned start.
        new_network: Makes the network loop; a test may let its time pass faster.
    """

    def __init__(
        self,
        options: ReadOptions,
        clock: Clock | None = None,
        new_network: Callable[[AwsOptions], NetworkLoop] = NetworkLoop,
    ) -> None:
        self._options = options
        self._new_network = new_network
        self._clock = clock or SystemClock()
        self._network: NetworkLoop | None = None
        self._agent: ShardAgent | None = None
        self._discovery: Discovery | None = None
        self._info: StreamInfo | None = None
        self._consumer = ""
        self._pinned: SourceOffset | None = None
        # The end of the last batch that Spark has planned; PySpark 4.0 and 4.1 pass no start.
        self._base: StreamOffset | None = None
        self._last_moved = self._clock.monotonic()
        self._statistics_file: StatisticsFile | None = None

    def latest(self, start: Offset | None) -> Offset:
        """Up to where a batch behind ``start`` can go; equal to ``start`` when there is nothing to
        do.

        Raises:
            KinesisConnectorError: The stream, the consumer or a shard cannot be read.
        """
        if isinstance(start, SourceOffset):
            base = start.single()
        elif self._base is not None:
            base = self._base
        else:
            self._pinned = self._pinned or self._pin()
            return self._pinned
        agent, discovery = self._open(base)
        self._raise_failure(agent, discovery)
        # Spark asks for the next offset when the batch before it is done, and calls commit only
        # once there is a next batch. Waiting for commit would be a deadlock: a full buffer that
        # holds a finished batch can receive nothing, so there would never be a next one.
        agent.free(base.shards)
        following = advance(base, agent.available(), discovery.listed)
        now = self._clock.monotonic()
        overdue = following != base and now - self._last_moved > _IDLE_CHECKPOINT_S
        if overdue or has_news(base, following, agent.count):
            self._last_moved = now
            return SourceOffset({following.arn: following})
        return SourceOffset({base.arn: base})

    def plan(self, start: Offset, end: Offset) -> list[PlannedRange]:
        """The ranges of the batch from ``start`` to ``end``.

        Spark also calls this with two equal offsets, to tell a restarted source where it stands.
        """
        if isinstance(end, InitialOffset):
            return []
        to = end.single()
        self._base = to
        if isinstance(start, InitialOffset):
            return []  # the batch that pins the start holds nothing
        agent, discovery = self._open(to)
        planned = []
        for shard_range in ranges(start.single(), to):
            count = agent.count(shard_range.shard_id, shard_range.start, shard_range.end)
            if count == 0:
                continue
            if count is None and discovery.lost(shard_range.shard_id, shard_range.start):
                continue
            planned.append(
                PlannedRange(
                    stream=to.name,
                    stream_arn=to.arn,
                    shard_id=shard_range.shard_id,
                    start=shard_range.start,
                    end=shard_range.end,
                    records=count,
                    agent=agent.address if count is not None else None,
                    fail_on_data_loss=self._options.fail_on_data_loss,
                )
            )
        return planned

    def commit(self, end: Offset) -> None:
        """Spark is done with everything up to ``end``: give its room back."""
        if self._agent is not None and isinstance(end, SourceOffset):
            self._agent.free(end.single().shards)

    def statistics(self) -> dict[str, Any]:
        """Counters of this source, as plain values."""
        found: dict[str, Any] = {"kind": "source", "stream": self._options.stream.label}
        if self._info is not None:
            found |= {"stream": self._info.name, "consumer": self._consumer}
        if self._agent is not None:
            found |= self._agent.statistics()
        return found

    def close(self) -> None:
        """End everything this source started. Idempotent, never raises."""
        if self._statistics_file is not None:
            self._statistics_file.close()
        if self._agent is not None:
            self._agent.close()
        if self._network is not None:
            # Known since before it is registered: a query may be stopped in between.
            if self._options.deregister and self._info is not None:
                self._deregister(self._network, self._info)
            self._network.close()
        self._agent = self._network = self._discovery = self._statistics_file = None
        self._info = None

    # --- opening --------------------------------------------------------------------------------

    def _connect(self) -> NetworkLoop:
        if self._network is None:
            self._network = self._new_network(self._options.aws)
        return self._network

    def _look_up(self) -> tuple[StreamInfo, ShardMap]:
        network = self._connect()
        stream = self._options.stream

        async def look() -> tuple[StreamInfo, ShardMap]:
            info = await describe_stream(network.connection, stream)
            return info, await list_shards(network.connection, stream)

        return network.run(look(), _CONTROL_TIMEOUT_S, f"Looking up stream {stream.label}")

    def _pin(self) -> SourceOffset:
        info, listed = self._look_up()
        now_ms = pin_now_ms(self._clock.wall(), info.server_time)
        consumer = self._options.consumer_name or f"kinesis_ds_{secrets.token_hex(6)}"
        shards = first_positions(self._options.initial_position, listed, now_ms)
        logger.info(
            "start pinned stream=%s consumer=%s shards=%d", info.name, consumer, len(shards)
        )
        return SourceOffset(
            {info.arn: StreamOffset(info.name, info.arn, info.created_ms, consumer, shards)}
        )

    def _open(self, base: StreamOffset) -> tuple[ShardAgent, Discovery]:
        """Start the agent at ``base``, once."""
        if self._agent is not None and self._discovery is not None:
            return self._agent, self._discovery
        info, listed = self._look_up()
        _check_identity(base, info)
        network, options = self._connect(), self._options
        self._info = info
        self._consumer = options.consumer_name or base.consumer
        consumer_arn = network.run(
            ensure_consumer(
                network.connection, info, self._consumer, options.register_timeout_s, self._clock
            ),
            options.register_timeout_s + _CONTROL_TIMEOUT_S,
            f"Registering the consumer {self._consumer}",
        )
        discovery = Discovery(
            info,
            self._consumer,
            consumer_arn,
            listed,
            base.shards,
            options.discovery_interval_s,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        agent = ShardAgent(
            AgentOptions(
                stream=info.name,
                stream_arn=info.arn,
                consumer_arn=consumer_arn,
                buffer_bytes=options.buffer_bytes,
                idle_timeout_s=options.idle_timeout_s,
                fail_on_data_loss=options.fail_on_data_loss,
                host=options.agent_host,
            ),
            network,
            self._clock,
            diagnose=lambda shard: discovery.explain(network.connection, shard),
            changed=discovery.poke,
        )
        self._agent, self._discovery = agent, discovery

        async def begin() -> None:
            network.spawn(discovery.run(network.connection, agent), "discovery")

        network.run(begin(), _CONTROL_TIMEOUT_S, "Starting discovery")
        if options.diagnostics_dir:
            self._statistics_file = StatisticsFile(
                options.diagnostics_dir, "source", self.statistics
            )
        return agent, discovery

    @staticmethod
    def _raise_failure(agent: ShardAgent, discovery: Discovery) -> None:
        failure = discovery.failure or agent.failure()
        if failure is not None:
            raise failure

    def _deregister(self, network: NetworkLoop, info: StreamInfo) -> None:
        async def deregister(connection: Connection) -> None:
            await deregister_consumer(connection, info, self._consumer)

        try:
            network.run(deregister(network.connection), 30.0, "Deregistering the consumer")
        except KinesisConnectorError as exc:
            logger.warning("the consumer %s was not deregistered: %s", self._consumer, exc)


def _check_identity(base: StreamOffset, info: StreamInfo) -> None:
    if base.arn != info.arn:
        raise OffsetError(
            f"The checkpoint belongs to the stream {base.arn}, and the query reads {info.arn}.",
            "Use the stream of the checkpoint, or start with a new checkpointLocation.",
        )
    if base.created_ms != info.created_ms:
        raise recreated(info.name)
