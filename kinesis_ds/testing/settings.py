"""The settings of the double."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinesis_ds.limits import MIB


@dataclass(frozen=True)
class Settings:
    """How the double behaves. The defaults are what AWS documents.

    Attributes:
        region, account_id: Parts of every ARN.
        enforce_limits: Whether rates are limited as on AWS: 1,000 records and 1 MiB a second into a
            shard, 5 reads and 2 MiB a second out of it, and the rates of the control calls. The
            rules of subscriptions hold in any case.
        stream_ready_s: How many seconds a new stream is CREATING, and a changed one UPDATING.
        consumer_ready_s: How many seconds a new consumer is CREATING, and a removed one DELETING.
        heartbeat_s: After so many seconds without records a subscription is sent an empty event.
        subscription_life_s: A subscription ends after so many seconds.
        resubscribe_s: For so many seconds after a successful SubscribeToShard the next one for the
            same consumer and shard is refused.
        iterator_life_s: After so many seconds a shard iterator or a page token expires.
        stretch_s: How many seconds of a shard's time GetRecords looks through for one answer. If
            they hold no record, the answer is empty and its MillisBehindLatest is above 0, as AWS
            documents. None: it finds the next record, however far away.
        get_records_lag_s: GetRecords shows a record, and the end of a shard, only after so many
            seconds; a subscription shows them at once.
        event_bytes: The most bytes of records in one event, before base64; a larger record is sent
            alone.
        expired_position: How a read from a position older than the oldest record is answered:
            ``refuse`` (InvalidArgumentException) or ``oldest`` (it starts at the oldest record and
            says nothing). Reports about AWS disagree.
        seed: Seed of the random gaps between sequence numbers.
    """

    region: str = "us-east-1"
    account_id: str = "000000000000"
    enforce_limits: bool = True
    stream_ready_s: float = 0.2
    consumer_ready_s: float = 0.2
    heartbeat_s: float = 5.0
    subscription_life_s: float = 300.0
    resubscribe_s: float = 5.0
    iterator_life_s: float = 300.0
    stretch_s: float | None = None
    get_records_lag_s: float = 0.0
    event_bytes: int = 1 * MIB
    expired_position: Literal["refuse", "oldest"] = "refuse"
    seed: int = 0
