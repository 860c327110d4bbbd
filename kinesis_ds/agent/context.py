"""The options of an agent, and the context and the counters of each of its shards. Pure."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kinesis_ds.agent.growth import StreamGrowth
from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.wire.deaggregate import MISPLACED_WARNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.agent.interface import Diagnose
    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.options.read import PollingOptions
    from kinesis_ds.plan.shards import Shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """The orders of an agent: which stream to read, how, and in what form records are wanted.

    It crosses to an agent in another process as it is.

    Attributes:
        stream: Name of the stream, for messages.
        stream_arn: ARN of the stream.
        consumer_arn: The enhanced fan-out consumer; empty when shards are polled.
        idle_timeout_s: A subscription whose buffer has been full for so many seconds is given back.
        fail_on_data_loss: Fail when records are gone before they were read; if False, warn.
        host: Address that the agent serves ranges on.
        advertised_host: Address at which tasks reach it; empty where that is ``host``.
        first_port: First port that it may serve on; 0 for any port.
        last_port: Last port that it may serve on; 0 for any port.
        silence_s: A subscription on which nothing came for so many seconds is broken off.
        polling: How shards are polled; None when they are subscribed to.
        retention_s: How long the stream keeps records, in seconds; None where that is not known.
        deaggregate: Take aggregates of the KPL apart into the user records they were made of.
        metadata: Add the columns of ``METADATA_SCHEMA``.
    """

    stream: str
    stream_arn: str
    consumer_arn: str
    idle_timeout_s: float
    fail_on_data_loss: bool
    host: str
    silence_s: float = SUBSCRIPTION_SILENCE_S
    polling: PollingOptions | None = None
    retention_s: float | None = None
    deaggregate: bool = True
    metadata: bool = False
    advertised_host: str = ""
    first_port: int = 0
    last_port: int = 0

    def part(self, number: int, count: int) -> AgentOptions:
        """Return the options for one of ``count`` processes: each has ports of its own."""
        if not self.first_port:
            return self
        ports = self.last_port - self.first_port + 1
        first = self.first_port + number * ports // count
        end = self.first_port + (number + 1) * ports // count
        return replace(self, first_port=first, last_port=end - 1)


@dataclass(frozen=True)
class ShardContext:
    """The surroundings of one shard, for its runner.

    Attributes:
        options: Those of the agent.
        shard: As it was listed when it was assigned.
        diagnose: Finds out why the service refuses the shard.
        changed: Called on the loop when the shard broke or ended: time to list the shards again.
        growth: How much records of the stream grow when they are decoded.
    """

    options: AgentOptions
    shard: Shard
    diagnose: Diagnose
    changed: Callable[[], None]
    growth: StreamGrowth = field(default_factory=StreamGrowth)

    @cached_property
    def label(self) -> str:
        """The shard's name in messages."""
        return f"shard {self.shard.shard_id} of stream {self.options.stream}"

    @cached_property
    def pool_key(self) -> str:
        """The shard's name in the pool, where shards of other streams have the same id."""
        return f"{self.options.stream_arn}/{self.shard.shard_id}"

    @cached_property
    def decoding(self) -> Decoding:
        """The form in which the shard's records are decoded."""
        options = self.options
        return Decoding(self.shard.hash_range, options.deaggregate, options.metadata)


@dataclass
class ShardCounters:
    """Counts what happened to one shard since the agent started.

    Written by the shard's executor and on the network loop only.

    Attributes:
        records: Records that came into the buffer.
        bytes: Bytes of the messages or answers that they came in.
        events: Events of the subscription, or answers to GetRecords.
        millis_behind: How far the last of them was behind the tip, in milliseconds, as it said.
        errors: How often each error occurred, by the service's code or our class.
        back_pressure_s: Seconds spent waiting for room in the buffer.
        misplaced: User records of aggregates that were left out as another shard's.
        calls: GetShardIterator and GetRecords calls made to poll the shard.
        empty: Answers to them that held no record.
    """

    records: int = 0
    bytes: int = 0
    events: int = 0
    millis_behind: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    back_pressure_s: float = 0.0
    misplaced: int = 0
    calls: int = 0
    empty: int = 0

    def count(self, error: KinesisConnectorError) -> None:
        """Count an error. On the loop."""
        kind = error.code or type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def leave_out(self, misplaced: int, label: str) -> None:
        """Count user records that were left out as another shard's.

        Warns once a shard: leaving them out is right only if the producer sends them again.
        """
        if misplaced and not self.misplaced:
            logger.warning(MISPLACED_WARNING, label)
        self.misplaced += misplaced
