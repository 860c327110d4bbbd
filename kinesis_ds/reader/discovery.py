"""Discovery: keep the list of shards fresh and give each shard to the agent in its turn."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from kinesis_ds.aws.consumers import serving_consumer
from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.clock import Clock, SystemClock
from kinesis_ds.errors import (
    ConsumerError,
    KinesisConnectorError,
    ProtocolError,
    StreamNotFoundError,
    unexpected,
)
from kinesis_ds.plan.loss import Loss, age_unknown, may_have_expired, shard_gone, stream_recreated
from kinesis_ds.plan.position import TRIM_HORIZON, Position, ShardEnd
from kinesis_ds.plan.shards import Shard, ShardMap, closing_parents, held_back, vanished, with_news
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.reader.diagnosis import SharedDiagnosis
from kinesis_ds.reader.expiry import lost_before_start

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesis_ds.agent.interface import Agent
    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.options.read import ReadOptions

logger = logging.getLogger(__name__)

# Looks caused by events (a shard broke or ended) are at least this far apart.
_MIN_INTERVAL_S = 1.0
# A look that failed is repeated after this long, or after the interval if that is shorter.
_RETRY_S = 10.0
# Every so many intervals all shards are listed. Where they are so few, whenever something happened.
_EVERYTHING_AFTER = 60
_CHEAP_LISTING = 100
# A proxy may answer nonsense for a moment. So many such answers in a row: this is not Kinesis.
_GIVE_UP_PROTOCOL_AFTER = 5
# Shards whose oldest record is looked at, at the same time.
_CHECKS_AT_ONCE = 50


class Discovery:
    """Lists the shards of a stream at intervals, and whenever something about them changed.

    Most looks ask only for the shards behind the last known one: at rest that is one call with an
    empty answer, however many shards there are. A new shard names its parents, which closes them.
    Every so often all shards are listed, to find those that the stream has forgotten, and because
    Kinesis does not promise that ids ascend.

    Everything runs on the network loop; ``listed`` and ``failure`` may be read from other threads.

    Args:
        info: The stream.
        consumer: Name or ARN of the consumer, as the user knows it; for messages.
        consumer_arn: ARN of the consumer; empty where none is used.
        listed: All shards of the stream.
        positions: Where each shard of the checkpoint stands. Shards found later start at the oldest
            record, after all their parents.
        options: What the user asked for. The consumer is looked at every ``consumer_refresh_s``:
            while every subscription is open and quiet, nothing else would show that it is gone.
        own_consumer: True if the query registers the consumer itself.
        resumed: True if ``positions`` come from a checkpoint: records may have expired since.
        clock: For the age of positions.

    Attributes:
        listed: The shards of the stream, as far as they are known.
        failure: Why the stream cannot be read any more, or None.
    """

    def __init__(
        self,
        info: StreamInfo,
        consumer: str,
        consumer_arn: str,
        listed: ShardMap,
        positions: Mapping[str, Position],
        options: ReadOptions,
        *,
        own_consumer: bool = True,
        resumed: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.listed: ShardMap = {}
        self.failure: KinesisConnectorError | None = None
        self._info = info
        self._stream = StreamId(arn=info.arn)
        self._consumer = consumer
        self._consumer_arn = consumer_arn
        self._own_consumer = own_consumer
        self._options = options
        self._resumed = resumed
        self._clock = clock or SystemClock()
        self._positions = dict(positions)
        self._drained = {s for s, p in positions.items() if isinstance(p, ShardEnd)}
        # Those of them that the last complete listing knew nothing of.
        self._missing: set[str] = set()
        # Given to the agent, or about to be: True if it knows the shard to be closed.
        self._begun: dict[str, bool] = {}
        # Not begun, each with the parents that hold it back.
        self._waiting: dict[str, set[str]] = {}
        self._news = True
        self.learn(listed, everything=True)
        self._checks: set[asyncio.Task[None]] = set()
        self._checking = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._look_wanted = asyncio.Event()
        self._diagnosis = SharedDiagnosis()

    def look_soon(self) -> None:
        """Have the shards listed within a second: one broke or ended. On the network loop."""
        self._look_wanted.set()

    def end(self, agent: Agent, shard_ids: Collection[str]) -> None:
        """Note that Spark has committed the ends of shards. On the network loop.

        They hold their children back no longer, and the agent forgets them.
        """
        if not set(shard_ids).isdisjoint(self._awaited()):
            self.look_soon()
        self._drain(shard_ids)
        agent.forget(shard_ids)

    async def run(self, connection: Connection, agent: Agent) -> None:
        """Assign the shards that can be read, then keep looking until cancelled or failed."""
        try:
            await self._run(connection, agent)
        finally:
            for check in self._checks:
                check.cancel()

    async def _run(self, connection: Connection, agent: Agent) -> None:
        now = asyncio.get_running_loop().time
        interval_s = self._options.discovery_interval_s
        consumer_refresh_s = self._options.consumer_refresh_s if self._consumer_arn else math.inf
        look_due = now() + interval_s
        everything_due = now() + interval_s * _EVERYTHING_AFTER
        consumer_due = now() + consumer_refresh_s
        protocol_errors = 0
        while self.failure is None:
            try:
                self.reconcile(connection, agent)
                wanted = await self._pause(min(look_due, consumer_due) - now())
                if wanted or now() >= look_due:
                    look_due = now() + min(interval_s, _RETRY_S)
                    few = len(self.listed) < _CHEAP_LISTING
                    everything = now() >= everything_due or (wanted and few)
                    await self._look(connection, everything=everything)
                    look_due = now() + interval_s
                    if everything:
                        everything_due = now() + interval_s * _EVERYTHING_AFTER
                if now() >= consumer_due:
                    consumer_due = now() + min(consumer_refresh_s, _RETRY_S)
                    await self._check_consumer(connection)
                    consumer_due = now() + consumer_refresh_s
                protocol_errors = 0
            except KinesisConnectorError as exc:
                malformed = isinstance(exc, ProtocolError)
                protocol_errors += malformed
                passes = malformed and protocol_errors < _GIVE_UP_PROTOCOL_AFTER
                if not exc.retryable and not passes:
                    self.failure = exc
                    return
                logger.warning("discovery was held up stream=%s error=%s", self._info.name, exc)
            except Exception as exc:  # without discovery, children would wait for ever
                self.failure = unexpected(exc, f"Discovery of stream {self._info.name}")
                raise

    async def explain(self, connection: Connection, shard_id: str) -> KinesisConnectorError | None:
        """Return why a shard cannot be read, or None if consumer, stream and shard are all there.

        Raises:
            KinesisConnectorError: It cannot be found out.
        """
        error = await self._diagnosis.ask(lambda: self._diagnose(connection))
        if error is not None or shard_id in self.listed:
            return error
        return self._gone(shard_id).error

    async def _diagnose(self, connection: Connection) -> KinesisConnectorError | None:
        info = await describe_stream(connection, self._stream)
        if info.created_ms != self._info.created_ms:
            return stream_recreated(self._info.name).error
        try:
            await self._check_consumer(connection)
            await self._look(connection, everything=True)
        except ConsumerError as exc:
            return exc
        return None

    # --- looking --------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> bool:
        """Wait, a second at least; return True as soon as something happened meanwhile."""
        await asyncio.sleep(_MIN_INTERVAL_S)
        try:
            await asyncio.wait_for(self._look_wanted.wait(), max(0.0, seconds - _MIN_INTERVAL_S))
        except asyncio.TimeoutError:
            return False
        finally:
            self._look_wanted.clear()
        return True

    async def _look(self, connection: Connection, *, everything: bool) -> None:
        after = None if everything else max(self.listed, default=None)
        found = await list_shards(connection, self._stream, after)
        self.learn(found, everything=after is None)

    async def _check_consumer(self, connection: Connection) -> None:
        if not self._consumer_arn:
            return
        if await serving_consumer(connection, self._info, self._consumer_arn):
            return
        again = (
            "Restart the query: it registers the consumer again and goes on from its checkpoint."
            if self._own_consumer
            else "Register it again and restart the query: it goes on from its checkpoint."
        )
        raise ConsumerError(
            f"The consumer {self._consumer} of stream {self._info.name} was deregistered while the "
            "query was reading.",
            again,
        )

    # --- what follows from it -------------------------------------------------------------------

    def learn(self, found: ShardMap, *, everything: bool) -> None:
        """Take in a listing of all shards, or of the last ones."""
        listed = closing_parents(found) if everything else with_news(self.listed, found)
        if listed is not self.listed and listed != self.listed:
            self.listed = listed
            self._news = True
        if everything:
            self._forget_unlisted()

    def _forget_unlisted(self) -> None:
        """Forget the shards read to their ends that the stream has forgotten, and all their
        children. They have to be missing twice: one that came back would be read again.
        """
        listed = self.listed
        known = {*listed, *(parent for shard in listed.values() for parent in shard.parents)}
        missing = self._drained - known
        gone = missing & self._missing
        for shard_id in gone:
            self._drained.discard(shard_id)
            self._begun.pop(shard_id, None)
            self._positions.pop(shard_id, None)
        self._missing = missing - gone

    def reconcile(self, connection: Connection, agent: Agent) -> None:
        """Begin the shards whose turn has come. Costs next to nothing if there are none."""
        if self._news:
            self._news = False
            self._take_in_listing(agent)
        if awaited := self._awaited():
            available = agent.available()
            self._drain([s for s in awaited if isinstance(available.get(s), ShardEnd)])
        for shard_id in sorted(s for s, held in self._waiting.items() if not held):
            del self._waiting[shard_id]
            self._begin(connection, agent, self.listed[shard_id])

    def _awaited(self) -> set[str]:
        return set().union(*self._waiting.values())

    def _drain(self, shard_ids: Collection[str]) -> None:
        self._drained.update(shard_ids)
        for held_by in self._waiting.values():
            held_by.difference_update(shard_ids)

    def _take_in_listing(self, agent: Agent) -> None:
        # For a shard that is being read, its reader finds out.
        unread = self._positions.keys() - self._begun.keys()
        for shard_id in vanished(self.listed, unread, self._drained):
            self._accept(self._gone(shard_id))
            self._drained.add(shard_id)
        for shard_id, known_closed in self._begun.items():
            if not known_closed and shard_id in self.listed and self.listed[shard_id].closed:
                self._begun[shard_id] = True
                agent.mark_closed(shard_id)
        tracked = self._begun.keys() | self._drained
        parents_first = self._options.parents_first
        self._waiting = held_back(self.listed, tracked, self._drained, parents_first=parents_first)

    def _begin(self, connection: Connection, agent: Agent, shard: Shard) -> None:
        self._begun[shard.shard_id] = shard.closed
        position = self._positions.get(shard.shard_id, TRIM_HORIZON)
        now_ms = int(self._clock.wall() * 1000)
        if self._resumed and may_have_expired(position, now_ms, self._info.retention_hours):
            check = asyncio.ensure_future(self._begin_checked(connection, agent, shard, position))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)
        else:
            agent.assign(shard, position)

    async def _begin_checked(
        self, connection: Connection, agent: Agent, shard: Shard, position: Position
    ) -> None:
        """Begin a shard once it is known whether records expired unread. Others do not wait."""
        try:
            loss = await self._expired(connection, shard.shard_id, position)
            if loss is not None:
                self._accept(loss)
            # As it is listed now: it may have been closed meanwhile.
            agent.assign(self.listed.get(shard.shard_id, shard), position)
        except KinesisConnectorError as exc:
            self.failure = exc
        except Exception as exc:
            self.failure = unexpected(exc, f"Shard {shard.shard_id} of stream {self._info.name}")
            raise
        finally:
            self._look_wanted.set()

    async def _expired(
        self, connection: Connection, shard_id: str, position: Position
    ) -> Loss | None:
        while True:
            try:
                async with self._checking:
                    return await lost_before_start(
                        connection, self._info, shard_id, position, self._clock
                    )
            except StreamNotFoundError:
                return None  # its reader will meet the same, and look up what is missing
            except KinesisConnectorError as exc:
                unknown = age_unknown(f"shard {shard_id} of stream {self._info.name}", exc)
                if not exc.retryable:
                    return unknown
                logger.warning("%s", unknown.warning)

    def _accept(self, loss: Loss) -> None:
        logger.warning("%s", loss.accept(fail_on_data_loss=self._options.fail_on_data_loss))

    def _gone(self, shard_id: str) -> Loss:
        known = self._positions.get(shard_id, TRIM_HORIZON)
        return shard_gone(self._info.name, shard_id, known)
