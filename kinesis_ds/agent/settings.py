"""What an agent is told once. Pure; it crosses to an agent in another process as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.limits import SUBSCRIPTION_SILENCE_S

if TYPE_CHECKING:
    from kinesis_ds.options.read import PollingOptions


@dataclass(frozen=True)
class AgentOptions:
    """What an agent is told once: whose shards, how they are read, and in what form.

    Attributes:
        consumer_arn: The enhanced fan-out consumer; empty when shards are polled.
        polling: How they are polled; None when they are subscribed to.
        retention_s: How long the stream keeps records; None where that is not known.
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
