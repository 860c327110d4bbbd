"""What can be chosen about the double."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinesis_ds.limits import MIB


@dataclass(frozen=True)
class Settings:
    """How the double behaves. The defaults are what AWS documents.

    Attributes:
        region, account_id: Parts of every ARN.
        enforce_limits: Whether rates and sizes are limited as on AWS: a shard's 1,000 records and
            1 MiB a second in, 5 reads and 2 MiB a second out, and the rates of the control calls.
            The rules of subscriptions hold in any case.
        stream_ready_s: How long a new stream is CREATING, and a changed one UPDATING.
        consumer_ready_s: How long a new consumer is CREATING, and a removed one DELETING.
        heartbeat_s: After this long without records a subscription is sent an empty event.
        subscription_life_s: A subscription is ended after this long.
        resubscribe_s: Within this long of a successful SubscribeToShard the next one for the same
            consumer and shard is refused.
        iterator_life_s: Age at which a shard iterator or a page token expires.
        stretch_s: How much of a shard's time GetRecords looks through for one answer. Where no
            record lies in it, the answer is empty and its MillisBehindLatest above 0, as AWS
            documents. None: it goes to the next record, however far away.
        event_bytes: Records of one event, before base64; a larger record travels alone.
        expired_position: What a read from a position older than the oldest record gets: ``refuse``
            (InvalidArgumentException) or ``oldest`` (a silent start at the oldest record). Reports
            about AWS disagree, so both can be had.
        seed: Of the random gaps between sequence numbers.
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
    event_bytes: int = 1 * MIB
    expired_position: Literal["refuse", "oldest"] = "refuse"
    seed: int = 0
