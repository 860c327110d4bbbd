"""Keeps the list of shards fresh and gives each shard to the agent when its turn has come."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesis_ds.aws.streams import StreamInfo, active_consumer, describe_stream, list_shards
from kinesis_ds.errors import (
    ConsumerError,
    DataLossError,
    InternalError,
    KinesisConnectorError,
    OffsetError,
    ProtocolError,
)
from kinesis_ds.options import StreamId
from kinesis_ds.position import TRIM_HORIZON, Position, ShardEnd
from kinesis_ds.shards import ShardMap, startable, vanished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.agent.agent import ShardAgent
    from kinesis_ds.aws.connection import Connection

logger = logging.getLogger(__name__)

# Looks caused by events (a shard broke or ended) are at least this far apart.
_MIN_INTERVAL_S = 1.0
# A proxy may answer senselessly for a moment; in a row, so many mean that this is no Kinesis.
_GIVE_UP_PROTOCOL_AFTER = 5


class Discovery:
    """Lists the shards now and then, and whenever something about them changed.

    Everything runs on the network loop; ``listed`` and ``failure`` may be read from other threads.

    Args:
        consumer, consumer_arn: What the shards are read with.
        positions: Where each shard of the checkpoint stands. Shards found later start at the oldest
            record, after all their parents.
    """

    def __init__(
        self,
        info: StreamInfo,
        consumer: str,
        consumer_arn: str,
        listed: ShardMap,
        positions: Mapping[str, Position],
        interval_s: float,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self.listed = listed
        self.failure: KinesisConnectorError | None = None
        self._info = info
        self._consumer = consumer
        self._consumer_arn = consumer_arn
        self._interval_s = interval_s
        self._fail_on_data_loss = fail_on_data_loss
        self._positions = dict(positions)
        self._tombstones = {s for s, p in positions.items() if isinstance(p, ShardEnd)}
        self._poke = asyncio.Event()

    def poke(self) -> None:
        """Look soon: a shard broke or ended. On the network loop."""
        self._poke.set()

    async def run(self, connection: Connection, agent: ShardAgent) -> None:
        """Assign what can be read, then keep looking until cancelled or failed."""
        stream = StreamId(arn=self._info.arn)
        senseless = 0
        while True:
            try:
                self._reconcile(agent)
                await self._pause()
                self.listed = await list_shards(connection, stream)
                senseless = 0
            except KinesisConnectorError as exc:
                senseless += isinstance(exc, ProtocolError)
                passes = isinstance(exc, ProtocolError) and senseless < _GIVE_UP_PROTOCOL_AFTER
                if not exc.retryable and not passes:
                    self.failure = exc
                    return
                logger.warning(
                    "shards could not be listed stream=%s error=%s", self._info.name, exc
                )
            except Exception as exc:  # without discovery, children would wait for ever
                self.failure = InternalError(
                    f"Discovery of stream {self._info.name}: {type(exc).__name__}: {exc}.",
                    "Please report this.",
                )
                raise

    async def explain(self, connection: Connection, shard_id: str) -> KinesisConnectorError | None:
        """Why a shard cannot be subscribed: consumer, stream or shard is gone. None when all are
        there.
        """
        info = self._info
        now = await describe_stream(connection, StreamId(arn=info.arn))
        if now.created_ms != info.created_ms:
            return recreated(info.name)
        # One of the same name that was registered since has another ARN: this one stays gone.
        if await active_consumer(connection, info, self._consumer) != self._consumer_arn:
            return ConsumerError(
                f"The consumer {self._consumer} of stream {info.name} was deregistered while the "
                "query was reading.",
                "Restart the query: it registers the consumer again and goes on from its "
                "checkpoint.",
            )
        self.listed = await list_shards(connection, StreamId(arn=info.arn))
        return self._gone(shard_id) if shard_id not in self.listed else None

    def lost(self, shard_id: str, start: Position) -> bool:
        """Whether the stream has forgotten a shard that is still to be read from ``start``.

        Raises:
            DataLossError: It has, and the query is to fail then.
        """
        if shard_id in self.listed:
            return False
        self._tell_loss(self._gone(shard_id, start))
        return True

    async def _pause(self) -> None:
        await asyncio.sleep(_MIN_INTERVAL_S)
        try:
            await asyncio.wait_for(self._poke.wait(), max(0.0, self._interval_s - _MIN_INTERVAL_S))
        except asyncio.TimeoutError:
            return
        finally:
            self._poke.clear()

    def _reconcile(self, agent: ShardAgent) -> None:
        available = agent.available()
        drained = self._tombstones | {s for s, p in available.items() if isinstance(p, ShardEnd)}
        # A shard that is being read tells by itself: by its end, or by what its subscription is
        # told.
        for shard_id in vanished(self.listed, self._positions.keys() - available.keys(), drained):
            self._on_vanished(shard_id)
        for shard_id in available:
            if shard_id in self.listed and self.listed[shard_id].closed:
                agent.mark_closed(shard_id)
        tracked = set(available) | self._tombstones
        for shard in startable(self.listed, tracked, drained):
            agent.assign(shard, self._positions.get(shard.shard_id, TRIM_HORIZON))

    def _on_vanished(self, shard_id: str) -> None:
        self._tell_loss(self._gone(shard_id))
        self._tombstones.add(shard_id)

    def _tell_loss(self, error: DataLossError) -> None:
        if self._fail_on_data_loss:
            raise error
        logger.warning("%s Going on without it (failOnDataLoss=false).", error.message)

    def _gone(self, shard_id: str, at: Position | None = None) -> DataLossError:
        return DataLossError(
            f"Shard {shard_id} of stream {self._info.name} is in the checkpoint "
            f"({at or self._positions.get(shard_id, TRIM_HORIZON)}) and no longer in the stream.",
            "Its unread records have expired. Set failOnDataLoss=false to go on without them, or "
            "start with a new checkpointLocation.",
        )


def recreated(name: str) -> OffsetError:
    """The error for a stream deleted and created again under the checkpoint's feet."""
    return OffsetError(
        f"The stream {name} was deleted and created again since the checkpoint was written.",
        "Its positions mean nothing in the new stream. Start with a new checkpointLocation.",
    )
