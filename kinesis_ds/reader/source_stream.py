"""One stream of a query: what it is, its consumer, its shards, and the agent that reads them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.settings import AgentOptions
from kinesis_ds.aws.consumers import deregister_consumer, ensure_consumer, registered_consumer
from kinesis_ds.aws.streams import list_shards
from kinesis_ds.errors import InternalError, KinesisConnectorError
from kinesis_ds.plan.decoding import decoding_of
from kinesis_ds.plan.loss import Loss, may_have_expired, shard_gone, stream_recreated
from kinesis_ds.plan.offsets import StreamOffset
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import TRIM_HORIZON, AtTimestamp, Position, ShardEnd, precedes
from kinesis_ds.plan.ranges import ShardRange, advance, has_news, ranges
from kinesis_ds.plan.start import first_positions
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.plan.tasks import lineage_groups
from kinesis_ds.reader.discovery import Discovery
from kinesis_ds.reader.expiry import lost_before_start

if TYPE_CHECKING:
    from kinesis_ds.agent.interface import Agent, Agents
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.read import ReadOptions, StreamChoice
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import Start

logger = logging.getLogger(__name__)

CONTROL_TIMEOUT_S = 120.0
# Each shard whose position is old is looked at, and the service may be slow to answer.
_LOOK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Until:
    """A moment that has passed: what arrived later is not read.

    Attributes:
        service_ms: By the service's clock, in milliseconds since the epoch.
        host_ms: The same moment, or a later one, by this machine's clock.
    """

    service_ms: int
    host_ms: int


class StreamReading:
    """A stream that was looked up. Reads nothing before :meth:`open`. Close it when done.

    Args:
        choice: What the user says of it.
    """

    def __init__(
        self,
        options: ReadOptions,
        choice: StreamChoice,
        info: StreamInfo,
        listed: ShardMap,
        network: NetworkLoop,
        clock: Clock,
    ) -> None:
        self.choice = choice
        self.info = info
        self.consumer = ""
        self._options = options
        self._listed = listed
        self._network = network
        self._clock = clock
        self._agent: Agent | None = None
        self._discovery: Discovery | None = None
        self._looking: asyncio.Task[None] | None = None
        self._freed: StreamOffset | None = None
        self._told_recreated = False

    @property
    def listed(self) -> ShardMap:
        """The shards of the stream, as far as is known."""
        return self._discovery.listed if self._discovery is not None else self._listed

    @property
    def label(self) -> str:
        return f"stream {self.info.name}"

    def checked(self, base: StreamOffset) -> StreamOffset:
        """The offset to go on from: ``base``, or the oldest record of a stream created since.

        Raises:
            StreamRecreatedError: The stream was created again, and the query is to fail then.
        """
        if base.created_ms == self.info.created_ms:
            return base
        loss = stream_recreated(self.info.name)
        warning = loss.accept(fail_on_data_loss=self._options.fail_on_data_loss)
        if not self._told_recreated:
            self._told_recreated = True
            logger.warning("%s", warning)
        return self.at_start(base.consumer, TRIM_HORIZON, 0)

    def at_start(self, consumer: str, start: Start, now_ms: int) -> StreamOffset:
        """The offset before anything was read of this stream.

        A time before all that the stream keeps is its oldest record. As a time it would look, when
        the query comes back, like a position that grew old unread.
        """
        kept_since_ms = now_ms - self.info.retention_hours * 3_600_000
        if isinstance(start, AtTimestamp) and start.ms < kept_since_ms:
            start = TRIM_HORIZON
        shards = first_positions(start, self.listed, now_ms)
        return StreamOffset(self.info.name, self.info.arn, self.info.created_ms, consumer, shards)

    def looked_after(self, base: StreamOffset) -> StreamOffset:
        """An offset of a checkpoint, once it is known that nothing behind it has been lost, without
        the shards that are gone.

        Raises:
            DataLossError: A shard is gone or records expired unread, and the query is to fail.
        """
        open_shards = {s: p for s, p in base.shards.items() if not isinstance(p, ShardEnd)}
        gone = {s for s, p in open_shards.items() if self._lost(s, p)}
        network, info = self._network, self.info
        now_ms = int(self._clock.wall() * 1000)

        async def look() -> list[Loss | None]:
            return [
                await lost_before_start(network.connection, info, s, p, self._clock)
                for s, p in open_shards.items()
                if s not in gone and may_have_expired(p, now_ms, info.retention_hours)
            ]

        for loss in network.run(look(), _LOOK_TIMEOUT_S, f"Looking at the age of {self.label}"):
            if loss is not None:
                self._accept(loss)
        return base.with_shards({s: p for s, p in base.shards.items() if s not in gone})

    # --- reading --------------------------------------------------------------------------------

    def open(self, base: StreamOffset, agents: Agents, *, resumed: bool) -> None:
        """Start reading behind ``base``, once.

        Args:
            resumed: Whether ``base`` comes from a checkpoint: then records may have expired since.

        Raises:
            KinesisConnectorError: The consumer cannot be had.
        """
        if self._agent is not None:
            return
        options, network, info = self._options, self._network, self.info
        choice, polled = self.choice, options.mode == "polling"
        self.consumer = "" if polled else choice.registered or choice.consumer or base.consumer
        consumer_arn = "" if polled else self._consumer_arn()
        discovery = Discovery(
            info,
            self.consumer,
            consumer_arn,
            self._listed,
            base.shards,
            options.discovery_interval_s,
            fail_on_data_loss=options.fail_on_data_loss,
            parents_first=options.parents_first,
            consumer_refresh_s=options.consumer_refresh_s,
            own_consumer=choice.registered is None,
            resumed=resumed,
            clock=self._clock,
        )
        agent = agents.agent(
            AgentOptions(
                stream=info.name,
                stream_arn=info.arn,
                consumer_arn=consumer_arn,
                idle_timeout_s=options.idle_timeout_s,
                fail_on_data_loss=options.fail_on_data_loss,
                host=options.agent_host,
                polling=options.polling if polled else None,
                retention_s=info.retention_hours * 3600.0,
                deaggregate=options.deaggregate,
                metadata=options.metadata,
            ),
            diagnose=lambda shard: discovery.explain(network.connection, shard),
            changed=discovery.poke,
        )
        self._agent, self._discovery = agent, discovery

        async def begin() -> asyncio.Task[None]:
            return network.spawn(discovery.run(network.connection, agent), f"discovery {info.name}")

        self._looking = network.run(
            begin(), CONTROL_TIMEOUT_S, f"Starting discovery of {self.label}"
        )

    def raise_failure(self) -> None:
        """Raise why this stream delivers nothing more, if that is so."""
        agent, discovery = self._opened()
        failure = discovery.failure or agent.failure()
        if failure is not None:
            raise failure

    def free(self, done: StreamOffset) -> None:
        """Nothing up to ``done`` is needed any more."""
        if self._agent is None or done.created_ms != self.info.created_ms or done is self._freed:
            return
        self._agent.free(done.shards)
        self._freed = done

    def following(self, base: StreamOffset, until: Until | None) -> StreamOffset:
        """The furthest offset that may follow ``base``, and not behind ``until``."""
        agent, discovery = self._opened()
        available = agent.available()
        if until is not None:
            targets = agent.targets(until.service_ms, until.host_ms)
            for shard_id, target in targets.items():
                if shard_id in available:
                    available[shard_id] = _earlier(available[shard_id], target)
        return advance(base, available, discovery.listed, parents_first=self._options.parents_first)

    def has_news(self, base: StreamOffset, following: StreamOffset) -> bool:
        """Whether a batch from ``base`` to ``following`` would do anything for the query."""
        agent, _ = self._opened()
        return base.created_ms != following.created_ms or has_news(
            base, following, agent.any_records
        )

    def reached(self, base: StreamOffset, until: Until) -> bool:
        """Whether all that arrived before ``until`` lies before ``base``, as far as shards are
        known.
        """
        agent, discovery = self._opened()
        listed, available = discovery.listed, agent.available()
        targets = agent.targets(until.service_ms, until.host_ms)
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
                # begin at its end, which is told behind its last record.
                return False
            start = base.shards.get(shard_id, TRIM_HORIZON)
            if precedes(start, target):
                unread.append(ShardRange(shard_id, start, target))
        # Only silence may lie between. What came since the offset was made is no silence.
        return not (unread and agent.any_records(unread))

    async def knows_all_shards(self) -> bool:
        """Whether the stream has no shard that is not known yet; if it has, they soon are."""
        _, discovery = self._opened()
        now = await list_shards(self._network.connection, StreamId(arn=self.info.arn))
        if now.keys() <= discovery.listed.keys():
            return True
        discovery.poke()
        return False

    @property
    def agent(self) -> Agent:
        """What reads its shards, once it was opened."""
        return self._opened()[0]

    # --- planning -------------------------------------------------------------------------------

    def plan(self, origin: StreamOffset, end: StreamOffset) -> list[PlannedRange]:
        """The ranges of a batch in this stream."""
        planned = []
        found = ranges(origin, end)
        tied: dict[str, str] = {}
        if len(found) > 1:
            tied = self._tied([r.shard_id for r in found])
        agent = self._agent
        holds = agent.hold(found) if agent is not None and found else [None] * len(found)
        for shard_range, held in zip(found, holds, strict=True):
            address = None
            if agent is not None and held is not None:
                address = agent.address_of(shard_range.shard_id)
            if held is not None and not held.records:
                continue
            if held is None and self._lost(shard_range.shard_id, shard_range.start):
                continue
            planned.append(
                PlannedRange(
                    stream=end.name,
                    stream_arn=end.arn,
                    shard_id=shard_range.shard_id,
                    start=shard_range.start,
                    end=shard_range.end,
                    records=held.records if held is not None else None,
                    agent=address,
                    fail_on_data_loss=self._options.fail_on_data_loss,
                    nbytes=held.nbytes if held is not None else None,
                    lineage=tied.get(shard_range.shard_id, ""),
                    decoding=decoding_of(self.listed.get(shard_range.shard_id), self._options),
                )
            )
        order = {shard_id: i for i, shard_id in enumerate(tied)}
        return sorted(planned, key=lambda p: order.get(p.shard_id, -1)) if order else planned

    def _tied(self, shard_ids: list[str]) -> dict[str, str]:
        """Groups of shards that one task reads in order: a parent and its child in one batch."""
        if not self._options.parents_first:
            return {}
        among = set(shard_ids)
        related = any(
            parent in among
            for shard_id in shard_ids
            if shard_id in self.listed
            for parent in self.listed[shard_id].parents
        )
        return lineage_groups(self.listed, among) if related else {}

    def _lost(self, shard_id: str, start: Position) -> bool:
        """Whether the stream has forgotten a shard that is still to be read.

        Raises:
            DataLossError: It has, and the query is to fail then.
        """
        if shard_id in self.listed:
            return False
        self._accept(shard_gone(self.info.name, shard_id, start))
        return True

    def _accept(self, loss: Loss) -> None:
        logger.warning("%s", loss.accept(fail_on_data_loss=self._options.fail_on_data_loss))

    # --- ending ---------------------------------------------------------------------------------

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Counters by shard, as plain values."""
        return self._agent.statistics() if self._agent is not None else {}

    def available(self) -> dict[str, Position]:
        """Up to where each shard that is being read has come."""
        return self._agent.available() if self._agent is not None else {}

    def close(self) -> None:
        """End what was opened. The consumer stays. Idempotent."""
        if self._agent is not None:
            self._agent.close()
        if self._looking is not None:
            self._network.post(self._looking.cancel)
        self._agent = self._discovery = self._looking = None

    def deregister(self) -> None:
        """Remove the consumer that this query registered; says so when that fails."""
        if not self.consumer or self.choice.registered is not None:
            return
        info, consumer, connection = self.info, self.consumer, self._network.connection
        try:
            self._network.run(
                deregister_consumer(connection, info, consumer),
                self._options.deregister_timeout_s,
                f"Deregistering the consumer {consumer}",
            )
        except KinesisConnectorError as exc:
            logger.warning("the consumer %s was not deregistered: %s", consumer, exc)

    def _opened(self) -> tuple[Agent, Discovery]:
        if self._agent is None or self._discovery is None:
            raise InternalError(f"{self.label} was not opened.", "Please report this.")
        return self._agent, self._discovery

    def _consumer_arn(self) -> str:
        """The consumer to read with: one that its owner has registered, or our own."""
        network, timeout_s = self._network, self._options.register_timeout_s
        find = ensure_consumer if self.choice.registered is None else registered_consumer
        return network.run(
            find(network.connection, self.info, self.consumer, timeout_s, self._clock),
            timeout_s + CONTROL_TIMEOUT_S,
            f"Looking for the consumer {self.consumer}",
        )


def _earlier(one: Position, other: Position) -> Position:
    return other if precedes(other, one) else one
