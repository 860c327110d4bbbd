"""The shard agent: subscriptions, lanes, buffers and the Flight server of some shards, together."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.buffer import BufferPool, ShardBuffer
from kinesis_ds.agent.lanes import LaneExecutor
from kinesis_ds.agent.runner import ShardContext, SubscriptionRunner
from kinesis_ds.agent.server import AgentAddress, RangeServer
from kinesis_ds.agent.subscription import ShardClosed, Stop, Subscription
from kinesis_ds.errors import AgentError, KinesisConnectorError
from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kinesis_ds.agent.network import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.position import Position
    from kinesis_ds.shards import Shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """What an agent is told once: whose shards, through which consumer, within which bounds."""

    stream: str
    stream_arn: str
    consumer_arn: str
    buffer_bytes: int
    idle_timeout_s: float
    fail_on_data_loss: bool
    host: str
    silence_s: float = SUBSCRIPTION_SILENCE_S


class ShardAgent:
    """Reads the shards it is assigned and serves ranges of them until closed.

    ``assign``, ``mark_closed`` run on the network loop; everything else may be called from any
    thread.

    Args:
        diagnose: Coroutine function, shard id to the error that explains its refusals, or None.
        changed: Called on the loop when a shard broke or ended.
    """

    def __init__(
        self,
        options: AgentOptions,
        network: NetworkLoop,
        clock: Clock,
        diagnose: Callable[[str], Awaitable[KinesisConnectorError | None]],
        changed: Callable[[], None],
    ) -> None:
        self._options = options
        self._network = network
        self._clock = clock
        self._diagnose = diagnose
        self._changed = changed
        self._pool = BufferPool(options.buffer_bytes)
        self._lanes = LaneExecutor(threads=max(2, os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._runners: dict[str, SubscriptionRunner] = {}
        self._server = RangeServer(options.host, self._buffer)
        self._closed = False

    @property
    def address(self) -> AgentAddress:
        return self._server.address

    def assign(self, shard: Shard, position: Position) -> None:
        """Start reading a shard behind ``position``. On the network loop."""
        options = self._options
        context = ShardContext(
            stream=options.stream,
            stream_arn=options.stream_arn,
            shard_id=shard.shard_id,
            first_sequence_number=shard.first_sequence_number,
            consumer_arn=options.consumer_arn,
            idle_timeout_s=options.idle_timeout_s,
            diagnose=self._diagnose,
            changed=self._changed,
            silence_s=options.silence_s,
        )
        machine = Subscription(context.label, position, fail_on_data_loss=options.fail_on_data_loss)
        buffer = ShardBuffer(shard.shard_id, position, self._pool)
        runner = SubscriptionRunner(
            context, machine, buffer, self._pool, self._lanes.lane(), self._network, self._clock
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
            runner.tell(ShardClosed())

    def mark_closed(self, shard_id: str) -> None:
        """ListShards shows the shard closed. On the network loop."""
        runner = self._runner(shard_id)
        if runner is not None:
            runner.tell(ShardClosed())

    def available(self) -> dict[str, Position]:
        """Up to where each shard can be planned."""
        with self._lock:
            return {shard: runner.buffer.available for shard, runner in self._runners.items()}

    def count(self, shard_id: str, start: Position, end: Position) -> int | None:
        """Records held in ``(start, end]``; None when not all of the range is held."""
        runner = self._runner(shard_id)
        return runner.buffer.count(start, end) if runner is not None else None

    def free(self, positions: Mapping[str, Position]) -> None:
        """Spark has committed up to these positions."""
        for shard_id, position in positions.items():
            runner = self._runner(shard_id)
            if runner is not None:
                runner.buffer.free(position)

    def failure(self) -> KinesisConnectorError | None:
        """Why a shard will deliver nothing more, if one failed."""
        with self._lock:
            return next((r.failure for r in self._runners.values() if r.failure is not None), None)

    def statistics(self) -> dict[str, Any]:
        """Counters of the pool and of each shard, as plain values."""
        with self._lock:
            runners = dict(self._runners)
        return {
            "pool": asdict(self._pool.statistics()),
            "shards": {
                shard: {
                    **vars(runner.counters),
                    # A copy in one step: the loop adds to it meanwhile.
                    "errors": dict(runner.counters.errors),
                    "state": runner.machine.state.value,
                    "generation": runner.machine.generation,
                    "stale": runner.machine.stale,
                    "held_bytes": self._pool.used(shard),
                    "available": str(runner.buffer.available),
                    "committed": str(runner.buffer.start),
                }
                for shard, runner in runners.items()
            },
        }

    def close(self) -> None:
        """End subscriptions, lanes and server. Idempotent; the network loop stays its owner's."""
        if self._closed:
            return
        self._closed = True
        for runner in tuple(self._runners.values()):
            self._network.post(runner.tell, Stop())
        self._server.close()
        self._lanes.close()
        for runner in tuple(self._runners.values()):
            runner.buffer.close()

    def _runner(self, shard_id: str) -> SubscriptionRunner | None:
        with self._lock:
            return self._runners.get(shard_id)

    def _buffer(self, shard_id: str) -> ShardBuffer:
        runner = self._runner(shard_id)
        if runner is None:
            raise AgentError(f"This agent does not hold shard {shard_id}.")
        return runner.buffer
