"""A stream that is being read: its agent, and the discovery that gives the agent its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.aws.streams import list_shards
from kinesis_ds.plan.position import TRIM_HORIZON, precedes
from kinesis_ds.plan.ranges import ShardRange, advance, any_records, has_news
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.reader.discovery import Discovery
from kinesis_ds.reader.silence import watch_silence
from kinesis_ds.reader.source_stream import CONTROL_TIMEOUT_S

if TYPE_CHECKING:
    import asyncio

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.plan.offsets import StreamOffset
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.reader.source_stream import SourceStream, Until


class OpenStream:
    """A stream that is being read. Close it when done.

    Making one starts reading behind ``base``, and blocks until the stream's consumer is there.

    Args:
        source: The stream as it was looked up.
        base: Where it starts.
        agents: Gives the agent that reads it.
        resumed: True if ``base`` comes from a checkpoint: records may have expired since.

    Attributes:
        source: The stream as it was looked up.
        agent: Reads its shards.
        ended_shards: How many shards were read to their ends, and forgotten when these were
            committed.

    Raises:
        KinesisConnectorError: The consumer cannot be had.
    """

    def __init__(
        self, source: SourceStream, base: StreamOffset, agents: Agents, *, resumed: bool
    ) -> None:
        options, network, info = source.options, source.network, source.info
        consumer_arn = source.consumer_arn(base.consumer)
        self.source = source
        self.ended_shards = 0
        self._freed: StreamOffset | None = None
        # The shards that ended in it.
        self._ended: set[str] = set()
        self._discovery = Discovery(
            info,
            source.consumer,
            consumer_arn,
            source.listed,
            base.shards,
            options,
            own_consumer=source.choice.registered is None,
            resumed=resumed,
            clock=source.clock,
        )
        self.agent = agents.agent(
            AgentOptions(
                stream=info.name,
                stream_arn=info.arn,
                consumer_arn=consumer_arn,
                idle_timeout_s=options.idle_timeout_s,
                fail_on_data_loss=options.fail_on_data_loss,
                host=options.agent_host,
                advertised_host=options.agent_advertised_host,
                first_port=options.agent_ports[0],
                last_port=options.agent_ports[1],
                polling=options.polling if options.mode == "polling" else None,
                retention_s=info.retention_hours * 3600.0,
                deaggregate=options.deaggregate,
                metadata=options.metadata,
            ),
            diagnose=lambda shard: self._discovery.explain(network.connection, shard),
            changed=self._discovery.look_soon,
        )
        try:
            self._looking = network.run(
                self._begin(), CONTROL_TIMEOUT_S, f"Starting discovery of {source.label}"
            )
        except BaseException:
            self.agent.close()
            raise

    async def _begin(self) -> list[asyncio.Task[None]]:
        network, name = self.source.network, self.source.info.name
        discovering = self._discovery.run(network.connection, self.agent)
        return [
            network.spawn(discovering, f"discovery {name}"),
            network.spawn(watch_silence(self.agent, name), f"silence {name}"),
        ]

    @property
    def listed(self) -> ShardMap:
        """The shards of the stream, as far as they are known by now."""
        return self._discovery.listed

    def raise_failure(self) -> None:
        """Raise the error that ended reading, if there is one."""
        failure = self._discovery.failure or self.agent.failure()
        if failure is not None:
            raise failure

    def free(self, done: StreamOffset) -> None:
        """Drop the records up to ``done`` from the buffers: Spark does not need them any more."""
        if done.created_ms != self.source.info.created_ms or done is self._freed:
            return
        self.agent.free(done.shards)
        self._freed = done
        ended = {shard_id for shard_id in done.shards if done.ended(shard_id)}
        if new := ended - self._ended:
            self.ended_shards += len(new & self.agent.available().keys())
            self.source.network.post(self._discovery.end, self.agent, new)
        self._ended = ended

    def following(self, base: StreamOffset, until: Until | None) -> StreamOffset:
        """Return the furthest offset that may follow ``base``, and not behind ``until``."""
        available = self.agent.available()
        if until is not None:
            targets = self.agent.targets(until.service_ms, until.host_ms)
            for shard_id, target in targets.items():
                if shard_id in available and precedes(target, available[shard_id]):
                    available[shard_id] = target
        parents_first = self.source.options.parents_first
        return advance(base, available, self.listed, parents_first=parents_first)

    def has_news(self, base: StreamOffset, following: StreamOffset) -> bool:
        """Return True if a batch from ``base`` to ``following`` would do anything for the query."""
        return base.created_ms != following.created_ms or has_news(base, following, self.agent.hold)

    def reached(self, base: StreamOffset, until: Until) -> bool:
        """Return True if ``base`` has all that arrived before ``until`` in the known shards."""
        listed, available = self.listed, self.agent.available()
        targets = self.agent.targets(until.service_ms, until.host_ms)
        unread = []
        for shard_id in {*listed, *base.shards}:
            if base.ended(shard_id):
                continue
            if shard_id not in available:
                parents = listed[shard_id].parents if shard_id in listed else ()
                # Behind a parent that goes on, everything is later still.
                if any(p in listed and not base.ended(p) for p in parents):
                    continue
                return False
            target = targets.get(shard_id)
            if target is None:
                return False
            closed = shard_id in listed and listed[shard_id].closed
            if closed and not precedes(target, available[shard_id]):
                # All of it that arrived was in time, so its children may hold more that was. They
                # begin at its end, which becomes known behind its last record.
                return False
            start = base.shards.get(shard_id, TRIM_HORIZON)
            if precedes(start, target):
                unread.append(ShardRange(shard_id, start, target))
        # Only silence may lie between. What came since the offset was made is no silence.
        return not any_records(unread, self.agent.hold)

    async def knows_all_shards(self) -> bool:
        """Return True if Kinesis lists no unknown shard; else make discovery look soon.

        On the network loop.
        """
        now = await list_shards(self.source.network.connection, StreamId(arn=self.source.info.arn))
        if now.keys() <= self.listed.keys():
            return True
        self._discovery.look_soon()
        return False

    def close(self) -> None:
        """Stop reading. The consumer stays registered. Idempotent."""
        self.agent.close()
        for task in self._looking:
            self.source.network.post(task.cancel)
