"""Decide what one subscription sends next, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kinesis_ds.testing.consumers import Consumer
    from kinesis_ds.testing.settings import Settings
    from kinesis_ds.testing.shard import Shard
    from kinesis_ds.testing.stream import Stream

# As far as is known AWS bounds an event only in bytes. This keeps events of tiny records small.
_EVENT_RECORDS = 10_000


@dataclass(frozen=True)
class Send:
    """Send a SubscribeToShardEvent.

    Attributes:
        payload: The event as JSON.
        records: How many records it holds.
    """

    payload: bytes = field(repr=False)
    records: int


@dataclass(frozen=True)
class Wait:
    """Send nothing before a time, unless something changes.

    Attributes:
        until: The time, in seconds since the epoch.
    """

    until: float


@dataclass(frozen=True)
class Fail:
    """Send an exception in the stream, and end it.

    Attributes:
        code: The exception's name.
        message: Its text.
    """

    code: str
    message: str


@dataclass(frozen=True)
class End:
    """End the stream."""


Step = Send | Wait | Fail | End


class Subscription:
    """A consumer's subscription to a shard.

    Call :meth:`next` after each ``Send`` was written, when a ``Wait`` is over, and whenever
    something in the account has changed. After ``Fail`` and ``End`` every answer is ``End``.

    Attributes:
        opened: When it was opened, in seconds since the epoch.
        superseded: Whether another subscription of the same consumer has taken the shard over.
    """

    def __init__(
        self,
        stream: Stream,
        shard: Shard,
        consumer: Consumer,
        after: int,
        now: float,
        settings: Settings,
        on_over: Callable[[Subscription], None],
    ) -> None:
        self.stream_name = stream.name
        self.shard_id = shard.shard_id
        self.consumer_arn = consumer.arn
        self.opened = now
        self.superseded = False
        self._stream = stream
        self._shard = shard
        self._consumer = consumer
        self._after = after
        self._sent_at: float | None = None
        self._settings = settings
        self._on_over = on_over
        self._end_sent = False
        self._over = False

    def __repr__(self) -> str:
        state = "over" if self._over else "superseded" if self.superseded else "open"
        return f"<{self.stream_name} {self.shard_id} {self._consumer.name} {state}>"

    def close(self) -> None:
        """Note that the client has gone. Idempotent. The shard stays taken for ``resubscribe_s``
        seconds after the subscription was opened.
        """
        if not self._over:
            self._over = True
            self._on_over(self)

    def next(self, now: float) -> Step:
        """Return what to do now."""
        if self._over:
            return End()
        self._stream.settle(now)
        step = self._ending(now) or self._reading(now)
        if isinstance(step, (Fail, End)):
            self.close()
        return step

    def _ending(self, now: float) -> Step | None:
        """Return how the subscription ends now, whatever the shard holds; None if it goes on."""
        if self.superseded:
            return Fail(
                "ResourceInUseException",
                f"Another active subscription exists for this consumer: {self.consumer_arn}",
            )
        if self._stream.gone_at is not None:
            return Fail("ResourceNotFoundException", f"Stream {self.stream_name} not found.")
        if self._consumer.gone_at is not None:
            return Fail("ResourceNotFoundException", f"Consumer {self.consumer_arn} not found.")
        if self._stream.shards.get(self.shard_id) is not self._shard:
            return Fail("ResourceNotFoundException", f"Shard {self.shard_id} does not exist.")
        if self._stream.key_state is not None:
            return Fail(self._stream.key_state, f"The key of {self.stream_name} is not usable.")
        if now >= self.opened + self._settings.subscription_life_s:
            return End()
        return None

    def _reading(self, now: float) -> Step:
        shard, log = self._shard, self._shard.log
        log.expire(self._stream.horizon_ms(now))
        place = log.after(self._after)
        if place < log.stop:
            stop = log.fitting(place, _EVENT_RECORDS, self._settings.event_bytes)
            size = log.size(place, stop)
            ready_at = self._consumer.bytes_out[self.shard_id].ready_at(size, now)
            if self._settings.enforce_limits and ready_at > now:
                return self._wait(ready_at)
            return self._send(place, stop, now)
        if shard.ending is not None:
            # The end was sent with the last records, unless the shard was closed after them.
            return End() if self._end_sent else self._send(place, place, now)
        heartbeat_at = now if self._sent_at is None else self._sent_at + self._settings.heartbeat_s
        if heartbeat_at > now:
            return self._wait(heartbeat_at)
        return self._send(place, place, now)

    def _wait(self, until: float) -> Wait:
        ends_at = self.opened + self._settings.subscription_life_s
        changes_at = self._stream.changed_at
        return Wait(min(until, ends_at, until if changes_at is None else changes_at))

    def _send(self, place: int, stop: int, now: float) -> Send:
        shard, log = self._shard, self._shard.log
        now_ms = round(now * 1000)
        rest = b',"MillisBehindLatest":%d}' % shard.behind_ms(place, stop, now_ms)
        if stop == log.stop and shard.ending is not None:
            self._after = shard.ending
            self._end_sent = True
            rest = b',"ChildShards":%b%b' % (orjson.dumps(shard.child_descriptions()), rest)
        else:
            self._after = log.number(stop - 1) if stop > place else shard.here(now_ms)
            rest = b',"ContinuationSequenceNumber":"%d"%b' % (self._after, rest)
        self._sent_at = now
        self._consumer.bytes_out[self.shard_id].borrow(log.size(place, stop), now)
        return Send(b'{"Records":%b%b' % (log.json(place, stop), rest), stop - place)
