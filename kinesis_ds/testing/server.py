"""The double as a server on this machine, on its own thread: what a test starts and talks to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from kinesis_ds.testing.clock import ScaledClock, ServerClock
from kinesis_ds.testing.host import LOOPBACK, checked_host, in_url
from kinesis_ds.testing.server_thread import ServerThread
from kinesis_ds.testing.settings import Settings
from kinesis_ds.testing.swallowing import Swallow

if TYPE_CHECKING:
    from kinesis_ds.testing.endpoint import Endpoint
    from kinesis_ds.testing.faults import Fault, Target
    from kinesis_ds.testing.journal import Journal
    from kinesis_ds.testing.log import StoredRecord
    from kinesis_ds.testing.replay import Replay
    from kinesis_ds.testing.subscription import Subscription

_LOOK_AGAIN_S = 0.2
# Sums of times are not exact: what is to be over by now has to begin a little earlier.
_ROUNDING_S = 0.001


class KinesisServer:
    """A Kinesis on this machine that keeps the service's rules. Use as a context manager.

        with KinesisServer() as kinesis:
            kinesis.create_stream("orders", shards=4)
            query = spark.readStream.format("kinesis").options(**kinesis.options("orders"))...

    Any credentials are accepted. Methods may be called from any thread, and wait until the server
    has done what they ask.

    Args:
        settings: How it behaves.
        clock: The time it lives in: :class:`~kinesis_ds.testing.ScaledClock` (by default, at the
            machine's own speed) or :class:`~kinesis_ds.testing.ManualClock`.
        faults: What is to go wrong.
        port: The port of HTTP/1.1; 0 for a free one.
        tls: Also listen with TLS, where a client may choose HTTP/2 or HTTP/1.1 by ALPN.
        host: The IP address to listen on: one of loopback, or one of this process's own network
            namespace.
        exposed: Listen on any other address too, although other machines may then reach it.

    Raises:
        ValueError: ``host`` is no IP address, or may be reached from elsewhere and is not
            ``exposed``.

    Attributes:
        settings: The settings that were given.
        clock: The clock that it lives by.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: ServerClock | None = None,
        faults: Sequence[Fault] = (),
        port: int = 0,
        tls: bool = False,
        host: str = LOOPBACK,
        exposed: bool = False,
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock or ScaledClock()
        self._host = checked_host(host, exposed=exposed)
        self._thread = ServerThread(self.settings, self.clock, faults, host, port, tls)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> KinesisServer:
        """Start the thread and listen; return the server itself.

        Raises:
            OSError: The port is taken.
            RuntimeError: It was started before.
        """
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all connections and the thread. Idempotent.

        Raises:
            RuntimeError: The double itself failed during a call, so what was tested proves nothing.
        """
        if not self._thread.started:
            return
        self._thread.stop()
        if crashes := self._thread.endpoint.crashes:
            raise RuntimeError("the double failed; please report this") from crashes.pop()

    def __enter__(self) -> KinesisServer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # --- where it is ----------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """The URL without TLS: HTTP/1.1."""
        return f"http://{in_url(self._host)}:{self._thread.port}"

    @property
    def tls_endpoint(self) -> str:
        """The URL with TLS: HTTP/2 or HTTP/1.1, as the client prefers."""
        if not self._thread.tls:
            raise RuntimeError("start it with tls=True")
        return f"https://{in_url(self._host)}:{self._thread.tls_port}"

    @property
    def ca_file(self) -> Path:
        """The certificate to trust for :attr:`tls_endpoint` (``AWS_CA_BUNDLE``)."""
        if self._thread.certificate is None:
            raise RuntimeError("start it with tls=True")
        return self._thread.certificate.ca_file

    def options(self, stream: str) -> dict[str, str]:
        """Return the options with which source and sink find a stream on this server."""
        return {
            "streamName": stream,
            "endpoint": self.endpoint,
            "region": self.settings.region,
            "awsAccessKey": "test",
            "awsSecretKey": "test",
        }

    # --- streams --------------------------------------------------------------------------------

    def call(self, operation: str, **members: Any) -> dict[str, Any]:
        """Make any call of the API but SubscribeToShard, and return its answer.

        It does not go over the network, and no fault strikes it. Rates are limited as for others.

        Raises:
            ServiceError: The service would refuse the call.
        """
        answer = self._thread.change(
            lambda e: e.account.call(operation, members, self.clock.wall())
        )
        return cast("dict[str, Any]", orjson.loads(orjson.dumps(answer)))

    def create_stream(self, name: str, shards: int = 1) -> None:
        """Create a stream that is ACTIVE at once."""

        def create(endpoint: Endpoint) -> None:
            # Twice as long ago, so that it can have been resharded since.
            long_ago = self.clock.wall() - 2 * self.settings.stream_ready_s - _ROUNDING_S
            members = {"StreamName": name, "ShardCount": shards}
            endpoint.account.call_unlimited("CreateStream", members, long_ago)

        self._thread.change(create)

    def put(
        self, stream: str, *data: bytes, partition_key: str | Callable[[bytes], str] = "key"
    ) -> None:
        """Put records without any limit of a shard's rate, so that a test has its input at once.

        Args:
            partition_key: The key of all records, or what returns the key for a record's data.
        """

        def put(endpoint: Endpoint) -> None:
            now = self.clock.wall()
            for item in data:
                key = partition_key if isinstance(partition_key, str) else partition_key(item)
                endpoint.account.store(stream, item, key, now)

        self._thread.change(put)

    def records(self, stream: str) -> list[StoredRecord]:
        """Return every record that is still kept, shard by shard, each shard in its order."""
        return self._thread.look(lambda e: e.account.records(stream))

    def wait_for_records(
        self, stream: str, count: int, within_s: float = 120.0
    ) -> list[StoredRecord]:
        """Wait until a stream holds ``count`` records, and return all that it holds.

        Raises:
            AssertionError: It does not within ``within_s`` seconds of the machine's time.
        """
        self.wait_for(
            lambda: len(self.records(stream)) >= count, within_s, f"{count} records in {stream}"
        )
        return self.records(stream)

    def wait_for(
        self, condition: Callable[[], object], within_s: float = 120.0, what: str = ""
    ) -> None:
        """Wait until a condition holds; it is looked at after every call that the server answers.

        Args:
            condition: Returns something true when it holds.
            within_s: How long to wait, in seconds of the machine's time.
            what: The condition in words, for the error.

        Raises:
            AssertionError: It does not hold within that time.
        """
        deadline = time.monotonic() + within_s
        while True:
            ticket = self._thread.look(lambda e: e.called)
            if condition():
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {within_s:g}s: {what or 'the condition'}")
            # A condition may look at other things than the double.
            endpoint = self._thread.endpoint
            self._thread.wait_for(endpoint.next_call(ticket, min(left, _LOOK_AGAIN_S)))

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """Return all shards as ListShards shows them."""
        return self._thread.look(
            lambda e: [s.description() for s in e.account.streams[stream].shards.values()]
        )

    def open_shards(self, stream: str) -> list[str]:
        """Return the ids of the shards that take records."""
        return [
            shard["ShardId"]
            for shard in self.shards(stream)
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]

    def split(self, stream: str, shard_id: str) -> list[str]:
        """Split a shard in its middle at once, and return the ids of its children."""
        hashes = next(s for s in self.shards(stream) if s["ShardId"] == shard_id)["HashKeyRange"]
        low, high = int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])
        return self._reshard(
            "SplitShard",
            stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((low + high) // 2 + 1),
        )

    def merge(self, stream: str, one: str, other: str) -> list[str]:
        """Merge two neighbours at once, and return a list with the id of the child."""
        return self._reshard("MergeShards", stream, ShardToMerge=one, AdjacentShardToMerge=other)

    def scale(self, stream: str, shards: int) -> list[str]:
        """Call UpdateShardCount, with effect at once, and return the ids of the new shards."""
        return self._reshard(
            "UpdateShardCount", stream, TargetShardCount=shards, ScalingType="UNIFORM_SCALING"
        )

    def _reshard(self, operation: str, stream: str, **members: Any) -> list[str]:
        before = set(self.open_shards(stream))

        def reshard(endpoint: Endpoint) -> None:
            long_ago = self.clock.wall() - self.settings.stream_ready_s - _ROUNDING_S
            request = {"StreamName": stream, **members}
            endpoint.account.call_unlimited(operation, request, long_ago)

        self._thread.change(reshard)
        return [shard for shard in self.open_shards(stream) if shard not in before]

    def trim(self, stream: str, shard_id: str, up_to: int | None = None) -> None:
        """Forget a shard's oldest records, as retention does.

        Args:
            up_to: The last sequence number that is forgotten; None for all records.
        """
        self._thread.change(lambda e: e.account.trim(stream, shard_id, up_to))

    def forget_shard(self, stream: str, shard_id: str) -> None:
        """Forget a closed shard and its records, as happens when its retention is over."""
        self._thread.change(lambda e: e.account.forget_shard(stream, shard_id))

    def set_key_state(self, stream: str, code: str | None) -> None:
        """Make reads, writes and open subscriptions of a stream fail as if its KMS key had failed.

        Args:
            code: Their error, for example ``KMSDisabledException``; None: the key works again.
        """
        self._thread.change(lambda e: e.account.set_key_state(stream, code))

    def deny(self, operation: str, stream: str | None = None) -> None:
        """Refuse an operation with AccessDeniedException, on one stream or on all."""
        self._thread.change(lambda e: e.account.deny(operation, stream))

    def allow(self, operation: str, stream: str | None = None) -> None:
        """Undo a :meth:`deny` that was called with the same arguments."""
        self._thread.change(lambda e: e.account.allow(operation, stream))

    def end_session(self, access_key: str, at: float | None = None) -> None:
        """Refuse calls that are signed with an access key as expired.

        Args:
            access_key: The key's id.
            at: From when on, in seconds since the epoch by :attr:`clock`; None: from now on.
        """
        when = self.clock.wall() if at is None else at
        self._thread.change(lambda e: e.session_ends.update({access_key: when}))

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that are open, oldest first."""
        return self._thread.look(lambda e: e.account.subscriptions())

    def connections(self) -> int:
        """Count the clients' connections that are open, or closed with a call still under way."""
        return self._thread.look(lambda _: self._thread.listener.connections())

    def replay(self, stream: str, replay: Replay) -> None:
        """Let each open shard of a stream send these events, encoded beforehand, to its readers.

        For benchmarks: the double's own work is then one write for each event.
        """
        replays = {(stream, shard): replay for shard in self.open_shards(stream)}
        self._thread.change(lambda e: e.replays.update(replays))

    def swallow(self, stream: str) -> None:
        """Let PutRecords into a stream succeed as fast as it comes, and keep nothing.

        For benchmarks: the double's own work is then a search through the request.
        """

        def swallow(endpoint: Endpoint) -> None:
            shards = endpoint.account.streams[stream].shards.values()
            endpoint.swallows[stream] = Swallow(sorted((s.first_hash, s.shard_id) for s in shards))

        self._thread.change(swallow)

    # --- faults ---------------------------------------------------------------------------------

    def add_faults(self, *faults: Fault) -> None:
        """Add faults. Their calls and seconds are counted from now."""
        self._thread.change(lambda e: e.script.add(faults, self.clock.wall()))

    def clear_faults(self) -> None:
        """Forget all faults that are still to come."""
        self._thread.change(lambda e: e.script.clear())

    def pending_faults(self) -> list[Fault]:
        """Return the faults that may still strike."""
        return self._thread.look(lambda e: e.script.pending())

    def struck(self) -> list[tuple[Fault, Target]]:
        """Return the faults that struck, in order, each with the call that it struck."""
        return self._thread.look(lambda e: list(e.script.struck))

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Be gone inside the block: connections are torn and new ones refused."""
        self._thread.wait_for(self._thread.listener.close())
        try:
            yield
        finally:
            self._thread.wait_for(self._thread.listener.open())

    def go_away(self, *, at_next_call: bool = False) -> None:
        """Send GOAWAY on every HTTP/2 connection, so that new calls need another one. Calls under
        way are still answered.

        Args:
            at_next_call: Send it only when another call comes, and do not answer that call.
        """
        self._thread.wait_for(self._thread.listener.go_away(at_next_call=at_next_call))

    def freeze_connections(self) -> None:
        """Carry nothing more on the HTTP/2 connections that are open, in either direction, and keep
        them open, as if the network behind them were dead. New connections work.
        """
        self._thread.wait_for(self._thread.listener.freeze())

    @property
    def calls(self) -> Journal:
        """The calls that came over the network."""
        return self._thread.endpoint.journal
