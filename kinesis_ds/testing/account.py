"""The model of the service: the streams of one account, and the calls that it answers. Pure."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pybase64

from kinesis_ds.testing import subscribing, writing
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.fields import FIELDS
from kinesis_ds.testing.names import Names
from kinesis_ds.testing.operations import OPERATIONS
from kinesis_ds.testing.rates import Bucket
from kinesis_ds.testing.settings import Settings
from kinesis_ds.testing.tokens import unseal
from kinesis_ds.testing.validation import check

if TYPE_CHECKING:
    from kinesis_ds.testing.consumers import Consumer
    from kinesis_ds.testing.log import StoredRecord
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream
    from kinesis_ds.testing.subscription import Subscription

_DEFAULTS = Settings()


class Account:
    """A model of the service. Every call is given the time ``now``, in seconds since the epoch.

    Not thread-safe. Times must not step back.

    Attributes:
        settings: How it behaves.
        names: Makes and reads ARNs.
        rng: Source of the random gaps between sequence numbers.
        limited: Whether rates are enforced now.
        exempt: Whether the call under way is a test's own, which no limit holds up.
        streams: All streams by name, also those that are being created or deleted.
        open_subscriptions: The open subscriptions, oldest first.
        stream_created_s: By name, when its last stream was created, in whole seconds.
    """

    def __init__(self, settings: Settings = _DEFAULTS) -> None:
        self.settings = settings
        self.names = Names(settings.region, settings.account_id)
        self.rng = random.Random(settings.seed)
        self.limited = settings.enforce_limits
        self.exempt = False
        self.streams: dict[str, Stream] = {}
        self.stream_created_s: dict[str, int] = {}
        self.open_subscriptions: list[Subscription] = []
        self._calls: dict[tuple[str, ...], Bucket] = {}
        self._denied: set[tuple[str, str | None]] = set()

    def __repr__(self) -> str:
        return f"<Account {list(self.streams.values())} {self.subscriptions()}>"

    # --- the API ---------------------------------------------------------------------------------

    def call(self, operation: str, request: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Answer any operation but SubscribeToShard.

        Returns:
            The answer for ``orjson.dumps``; its records are fragments that are JSON already.

        Raises:
            ServiceError: The service would refuse the call.
        """
        run = OPERATIONS.get(operation)
        if run is None:
            raise ServiceError("UnknownOperationException", f"Unknown operation {operation}")
        self._admit(operation, request)
        return run(self, request, now)

    def call_unlimited(
        self, operation: str, request: Mapping[str, Any], now: float
    ) -> dict[str, Any]:
        """Do the same as :meth:`call`, without limits of rates and of how many streams are being
        created, and without counting the call.
        """
        self.limited, self.exempt = False, True
        try:
            return self.call(operation, request, now)
        finally:
            self.limited, self.exempt = self.settings.enforce_limits, False

    def subscribe(self, request: Mapping[str, Any], now: float) -> Subscription:
        """Answer SubscribeToShard.

        Raises:
            ServiceError: The service would refuse the call.
        """
        self._admit("SubscribeToShard", request)
        return subscribing.subscribe(self, request, now)

    def _admit(self, operation: str, request: Mapping[str, Any]) -> None:
        stream = self.names.stream_of(request)
        if (operation, None) in self._denied or (operation, stream) in self._denied:
            raise ServiceError(
                "AccessDeniedException",
                f"User: arn:aws:iam::{self.settings.account_id}:user/double is not authorized to "
                f"perform: kinesis:{operation} on resource: {self.names.stream_arn(stream or '*')}",
            )
        check(FIELDS[operation], request)

    def subscriptions(self) -> list[Subscription]:
        """Return the open subscriptions, oldest first."""
        return list(self.open_subscriptions)

    # --- for tests -------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Make the changes that are due in all streams. A call does so for the stream it names."""
        for name in list(self.streams):
            with contextlib.suppress(ServiceError):
                self.stream_named(name, now)

    def records(self, stream: str) -> list[StoredRecord]:
        """Return all records that are kept, shard by shard, each shard's in order."""
        return [
            record
            for shard in self.streams[stream].shards.values()
            for record in shard.log.records(shard.shard_id)
        ]

    def trim(self, stream: str, shard_id: str, up_to: int | None = None) -> None:
        """Forget a shard's oldest records, as retention does.

        Args:
            up_to: The last sequence number that is forgotten; None for all records.
        """
        log = self.streams[stream].shards[shard_id].log
        log.forget(log.stop if up_to is None else log.after(up_to))

    def forget_shard(self, stream: str, shard_id: str) -> None:
        """Forget a closed shard and its records, as if its retention were over.

        Raises:
            ValueError: The shard is open.
        """
        shard = self.streams[stream].shards[shard_id]
        if shard.ending is None:
            raise ValueError(f"{shard_id} of {stream} is open")
        self.streams[stream].forget(shard)

    def set_key_state(self, stream: str, code: str | None) -> None:
        """Make reads, writes and open subscriptions fail as if the stream's KMS key had failed.

        Args:
            code: Their error, for example ``KMSDisabledException``; None: the key works again.
        """
        self.streams[stream].key_state = code

    def deny(self, operation: str, stream: str | None = None) -> None:
        """Refuse an operation with AccessDeniedException, on one stream or on all."""
        self._denied.add((operation, stream))

    def allow(self, operation: str, stream: str | None = None) -> None:
        """Undo :meth:`deny`."""
        self._denied.discard((operation, stream))

    def store(
        self,
        stream: str,
        data: bytes,
        partition_key: str | None,
        now: float,
        explicit_hash_key: str | None = None,
    ) -> int:
        """Put a record without limits of a shard's rate, and return its sequence number."""
        encoded = pybase64.b64encode(data).decode()
        entry = writing.Entry(
            encoded,
            len(data) + len((partition_key or "").encode()),
            partition_key,
            explicit_hash_key,
        )
        return int(writing.store(self.stream_named(stream, now), entry, now))

    def read_by_iterator(self, token: object) -> tuple[str | None, str | None]:
        """Return the stream and shard that a shard iterator reads, even if it has expired; None for
        both if it is not a shard iterator.
        """
        fields = unseal("iterator", token) if isinstance(token, str) else None
        return (None, None) if fields is None else (fields["stream"], fields["shard"])

    # --- for the operations ----------------------------------------------------------------------

    def limit(self, what: tuple[str, ...], per_second: float, now: float) -> bool:
        """Count a call, and return whether it is one too many."""
        if not self.limited:
            return False
        calls = self._calls.setdefault(what, Bucket(per_second))
        return not calls.take(1, now)

    def too_fast(self, stream: Stream, shard: Shard) -> ServiceError:
        return ServiceError(
            "ProvisionedThroughputExceededException",
            f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} under account "
            f"{self.settings.account_id}.",
        )

    def throttle(self, operation: str, per_second: float, now: float, stream: str = "") -> None:
        """Count a call of the account, or on a stream, and refuse it if it is one too many.

        Raises:
            ServiceError: There were more than ``per_second`` calls.
        """
        if self.limit((operation, stream), per_second, now):
            where = f"stream {stream} under account" if stream else "account"
            raise ServiceError(
                "LimitExceededException",
                f"Rate exceeded for {operation} on {where} {self.settings.account_id}.",
            )

    def stream(self, request: Mapping[str, Any], now: float) -> Stream:
        """Return the stream that a request names, with all changes that are due by now.

        Raises:
            ServiceError: There is no such stream.
        """
        return self.stream_named(self.names.required_stream(request), now)

    def stream_named(self, name: str, now: float) -> Stream:
        stream = self.streams.get(name)
        if stream is not None and stream.gone_at is not None and now >= stream.gone_at:
            del self.streams[name]
            stream = None
        if stream is None:
            raise self.no_stream(name)
        stream.settle(now)
        return stream

    def usable(self, stream: Stream, now: float) -> Stream:
        """Return the stream if it can be read and written; else refuse the call.

        AWS may go on serving a stream that is being deleted, and says to use only ACTIVE ones. Here
        a stream that is being created or deleted is not found.
        """
        if stream.status(now) in ("CREATING", "DELETING"):
            raise self.no_stream(stream.name)
        return stream

    def check_key(self, stream: Stream) -> None:
        if stream.key_state is not None:
            raise ServiceError(stream.key_state, f"The key of stream {stream.name} is not usable.")

    def active(self, stream: Stream, now: float) -> Stream:
        """Return the stream if it can be changed; else refuse the call. AWS: "the resource must be
        in the ACTIVE state".
        """
        status = stream.status(now)
        if status != "ACTIVE":
            raise ServiceError(
                "ResourceInUseException",
                f"Stream {stream.name} under account {self.settings.account_id} not ACTIVE, "
                f"instead in state {status}",
            )
        return stream

    def no_stream(self, name: str) -> ServiceError:
        return ServiceError(
            "ResourceNotFoundException",
            f"Stream {name} under account {self.settings.account_id} not found.",
        )

    def consumer(self, arn: str, now: float) -> tuple[Stream, Consumer]:
        """Return the stream and the consumer of a consumer's ARN.

        Raises:
            ServiceError: There is no such consumer.
        """
        name = self.names.stream_in(arn)
        stream = self.stream_named(name, now) if name is not None else None
        for consumer in stream.registered(now) if stream is not None else ():
            if stream is not None and consumer.arn == arn:
                return stream, consumer
        raise ServiceError("ResourceNotFoundException", f"Consumer {arn} not found.")
