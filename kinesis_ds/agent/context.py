"""What every runner of a shard has: what it knows of its surroundings, and what it counts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.wire.deaggregate import MISPLACED_WARNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.errors import KinesisConnectorError

logger = logging.getLogger(__name__)


@dataclass
class ShardCounters:
    """What happened to one shard since the agent started. Written by its lane and its loop only.

    Attributes:
        calls: GetShardIterator and GetRecords, made to poll it.
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
        """An error, by the service's code or our class. On the loop."""
        kind = error.code or type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def leave_out(self, misplaced: int, label: str) -> None:
        """User records of aggregates were left out as another shard's. Said once a shard, since it
        is right only if the producer sends them again.
        """
        if misplaced and not self.misplaced:
            logger.warning(MISPLACED_WARNING, label)
        self.misplaced += misplaced


@dataclass(frozen=True)
class ShardContext:
    """What a runner needs to know about its shard and its surroundings."""

    stream: str
    stream_arn: str
    shard_id: str
    first_sequence_number: str
    consumer_arn: str
    idle_timeout_s: float
    diagnose: Callable[[str], Any]
    """Coroutine function: shard id to the error that explains why it cannot be read, or None."""
    changed: Callable[[], None]
    """Called on the loop when a shard broke or ended: the list of shards is worth a look."""
    silence_s: float = SUBSCRIPTION_SILENCE_S
    decoding: Decoding = field(default_factory=Decoding)

    @property
    def label(self) -> str:
        return f"shard {self.shard_id} of stream {self.stream}"
