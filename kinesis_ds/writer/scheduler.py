"""Chooses the next request for one stream, and settles what Kinesis answers. Pure.

A shard's queue with enough for a request fills one alone, so that what one shard refuses concerns
no other shard; what other queues have is combined when the oldest of it has waited long enough.
Each queue keeps its shard's pace, and pauses alone when something of it failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kinesis_ds.errors import WriteError
from kinesis_ds.writer.aggregating import user_records
from kinesis_ds.writer.prediction import hash_key_of
from kinesis_ds.writer.records import Request, records_of
from kinesis_ds.writer.results import THROTTLED_CODES, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_ds.writer.prediction import Prediction
    from kinesis_ds.writer.records import Item, PackingLimits, Record
    from kinesis_ds.writer.results import Answers
    from kinesis_ds.writer.shard_queue import Taken
    from kinesis_ds.writer.waiting import WaitingRows


class Misplaced(NamedTuple):
    """Rows of an aggregate that was stored in a shard where readers leave them out.

    Attributes:
        shard_id: The shard.
        rows: How many rows.
        window_bytes: What they hold of the window, in bytes.
    """

    shard_id: str
    rows: int
    window_bytes: int


@dataclass
class Settled:
    """The consequences of the answer to a request.

    Attributes:
        rows: How many rows are delivered; they are to be released from the window.
        window_bytes: What those hold of the window, in bytes.
        retried: How many rows are to be sent again because they were not stored.
        throttled: How many of those were refused because of a service limit.
        misplaced: Rows to be sent again because their aggregate was stored in the wrong shard.
        surprised: Whether a record was stored in another shard than predicted, or in a shard that
            is not known. It is then time to list the shards again.
    """

    rows: int = 0
    window_bytes: int = 0
    retried: int = 0
    throttled: int = 0
    misplaced: list[Misplaced] = field(default_factory=list)
    surprised: bool = False


class _SentRequest(NamedTuple):
    """A request under way; ``generation`` counts the predictions that were used before."""

    request: Request
    shares: list[Taken]
    sent_at: float
    generation: int


class Scheduler:
    """All that one task has for one stream. Each record either waits, or is under way, or settled.

    Runs on the network loop. All times are in monotonic seconds.

    Args:
        waiting: The rows of the task that wait to be sent to the stream.
        limits: What a request may hold.
        label: Names the stream in messages.
        retry_timeout_s: How long a record is tried, from when it was first sent.
        uniform: Draws the pauses, as :func:`random.uniform` does.

    Attributes:
        waiting: See above. Rows are added there.
        sent: The requests under way, by their ``id``.
        in_unknown_shards: The aggregates that are stored, but in a shard of which it is not known
            what belongs there, each with the id of that shard.
        why: Why something was last sent again; empty before that.
    """

    def __init__(
        self,
        waiting: WaitingRows,
        limits: PackingLimits,
        *,
        label: str,
        retry_timeout_s: float,
        uniform: Callable[[float, float], float],
    ) -> None:
        self.waiting = waiting
        self._limits = limits
        self._label = label
        self._retry_timeout_s = retry_timeout_s
        self._uniform = uniform
        self.sent: dict[int, _SentRequest] = {}
        self.in_unknown_shards: list[tuple[Record, str]] = []
        self._generation = 0
        self.why = ""

    # Requests.

    def next_request(self, now: float) -> Request | None:
        """Return the request to send now; None when nothing is ready. It counts as sent.

        Raises:
            WriteError: A record would be sent again after its time.
        """
        self._check_in_unknown_shards(now)
        self.waiting.update_due(now)
        limits = self._limits
        shares: list[Taken] = []
        records, size = 0, 0
        full = False
        while not full and (queue := self.waiting.next(now, alone=not shares)) is not None:
            room = limits.request_bytes - size
            taken = self.waiting.take(
                queue, limits.request_records - records, room, now, alone=not shares
            )
            if taken.items:
                records += sum(map(len, taken.items))
                size += taken.size
                shares.append(taken)
            full = (
                taken.request_full
                or records >= limits.request_records
                or size >= limits.request_bytes
            )
        if not shares:
            return None
        request = self._request([item for share in shares for item in share.items], size, now)
        self.sent[id(request)] = _SentRequest(request, shares, now, self._generation)
        return request

    def _request(self, items: list[Item], size: int, now: float) -> Request:
        """Make a request of items that count as sent now.

        Raises:
            WriteError: One of them would be sent again after its time.
        """
        late = [i for i in items if i.first_try is not None and self._deadline(i) <= now]
        if late:
            self._give_up(late, self.why)
        first = now
        for item in items:
            item.tries += 1
            if item.first_try is None:
                item.first_try = now
            first = min(first, item.first_try)
        return Request(items, size, first)

    def wake_at(self, now: float) -> float | None:
        """Return when :meth:`next_request` may give something although nothing else happens."""
        times = [self._deadline(record) for record, _ in self.in_unknown_shards]
        if (ready_at := self.waiting.wake_at(now)) is not None:
            times.append(ready_at)
        return max(now, min(times)) if times else None

    # Answers.

    def settle(self, request: Request, answers: Answers, now: float) -> Settled:
        """Settle the answer to a request, none of whose records was rejected.

        Raises:
            WriteError: A record would be sent again, and its time is over.
        """
        sent = self.sent.pop(id(request))
        settled = Settled()
        again: list[tuple[Record, float]] = []
        end = 0
        for share in sent.shares:
            at, end = end, end + sum(map(len, share.items))
            # The usual case: all is stored, and in the predicted shard.
            expected = share.queue.shard if self.waiting.prediction.known else None
            if answers.all_stored(at, end, expected):
                self._settle_whole(share, settled, now)
            else:
                again += self._settle_each(share, answers, at, sent, settled, now)
        self._check_deadline(again)
        return settled

    def _settle_whole(self, share: Taken, settled: Settled, now: float) -> None:
        """Settle what is all stored as predicted, without looking at each record."""
        queue = share.queue
        queue.pace.delivered(share.cost, now)
        queue.failures = 0
        settled.rows += sum(item.rows for item in share.items)
        settled.window_bytes += sum(item.window_bytes for item in share.items)
        self.waiting.done(share.items, now)
        self.waiting.update(queue, now)

    def _settle_each(
        self,
        share: Taken,
        answers: Answers,
        first: int,
        sent: _SentRequest,
        settled: Settled,
        now: float,
    ) -> list[tuple[Record, float]]:
        """Settle record by record, from the ``first`` answer on.

        Returns the records to send again, each with the time from when it may be sent.
        """
        failed: list[Record] = []
        stored: list[tuple[Record, str]] = []
        delivered = throttled = unknown = 0.0
        for at, record in enumerate(records_of(share.items), first):
            shard = answers.shards[at]
            if shard is not None:
                stored.append((record, shard))
                delivered += record.cost
                continue
            failure = answers.failures[at]
            assert not isinstance(failure, Rejected)
            failed.append(record)
            settled.retried += record.rows
            self.why = f"{failure.code}: {failure.message}"
            if failure.code in THROTTLED_CODES:
                settled.throttled += record.rows
                throttled += record.cost
            else:
                unknown += record.cost
        queue = share.queue
        if delivered:
            queue.pace.delivered(delivered, now)
        if throttled:
            queue.pace.throttled(throttled, now)
        if unknown:
            queue.pace.gave_up(unknown, now)
        again: list[tuple[Record, float]] = []
        if stored:
            queue.failures = 0
        if failed:
            again = self._send_again(share, failed, sent, now)
        self._settle_stored(stored, queue.shard, sent.generation, settled, now)
        self.waiting.update(queue, now)
        return again

    def failed(self, request: Request, why: str, throttled: bool, now: float) -> Settled:
        """Settle a request that failed as a whole, or got no answer, and may pass later.

        Raises:
            WriteError: A record would be sent again, and its time is over.
        """
        sent = self.sent.pop(id(request))
        self.why = why
        again: list[tuple[Record, float]] = []
        for share in sent.shares:
            pace = share.queue.pace
            (pace.throttled if throttled else pace.gave_up)(share.cost, now)
            again += self._send_again(share, records_of(share.items), sent, now)
            self.waiting.update(share.queue, now)
        self._check_deadline(again)
        rows = request.rows
        return Settled(retried=rows, throttled=rows if throttled else 0)

    def _send_again(
        self, share: Taken, records: list[Record], sent: _SentRequest, now: float
    ) -> list[tuple[Record, float]]:
        """Put failed records of a request back, after a pause.

        Returns them, each with the time from when it may be sent.
        """
        queue = share.queue
        queue.pause(sent.sent_at, now, self._uniform)
        if sent.generation == self._generation:
            self.waiting.put_back(queue, records, now)
        else:
            for record in reversed(records):
                self.waiting.replace(record, user_records(record), now)
        return [(record, max(now, queue.paused_until)) for record in records]

    def _settle_stored(
        self,
        stored: list[tuple[Record, str]],
        expected: str,
        generation: int,
        settled: Settled,
        now: float,
    ) -> None:
        """Release the rows that are stored where readers look for them.

        The others are sent again, or wait until it is known what belongs in their shard.
        """
        prediction = self.waiting.prediction
        done: list[Record] = []
        for record, shard in stored:
            gone: list[Record] = []
            if shard != expected and prediction.known:
                # Since a reshard it may be predicted for this shard, although it was not before.
                reshard_between = generation != self._generation
                as_now_predicted = reshard_between and shard == prediction.shard_of(record)
                settled.surprised |= not as_now_predicted
                if record.keys:
                    bounds = prediction.hash_range(shard)
                    if bounds is None:
                        settled.surprised = True
                        self.in_unknown_shards.append((record, shard))
                        continue
                    first, last = bounds
                    rows = user_records(record)
                    gone = [row for row in rows if not first <= hash_key_of(row) <= last]
            size = sum(row.window_bytes for row in gone)
            settled.rows += record.rows - len(gone)
            settled.window_bytes += record.window_bytes - size
            if gone:
                settled.misplaced.append(Misplaced(shard, len(gone), size))
                self.why = f"an aggregate landed on shard {shard}, where its rows do not belong"
                self.waiting.replace(record, gone, now)
            else:
                done.append(record)
        self.waiting.done(done, now)

    def reshard(self, prediction: Prediction, now: float) -> Settled:
        """Deal out anew what waits, by the shards as they are now. What is under way stays so."""
        sent = [record for sent in self.sent.values() for record in sent.request.records]
        sent += [record for record, _ in self.in_unknown_shards]
        self.waiting.deal_out_anew(prediction, sent, now)
        self._generation += 1
        settled = Settled()
        in_unknown_shards, self.in_unknown_shards = self.in_unknown_shards, []
        for stored in in_unknown_shards:
            self._settle_stored([stored], "", -1, settled, now)
        settled.surprised = bool(self.in_unknown_shards)
        return settled

    def close(self) -> None:
        """Give up what is under way, so that the paces do not count it any longer."""
        for sent in self.sent.values():
            for share in sent.shares:
                share.queue.pace.gave_up(share.cost, sent.sent_at)
        self.sent.clear()

    # Deadlines.

    def _check_deadline(self, again: list[tuple[Record, float]]) -> None:
        """Raise if a record may no longer be sent when its pause is over."""
        late = [record for record, at in again if self._deadline(record) <= at]
        if late:
            self._give_up(late, self.why)

    def _check_in_unknown_shards(self, now: float) -> None:
        late = [(r, shard) for r, shard in self.in_unknown_shards if self._deadline(r) <= now]
        if late:
            why = f"shard {late[0][1]} took them, and it is not listed"
            self._give_up([record for record, _ in late], why)

    def _give_up(self, late: Sequence[Item], why: str) -> NoReturn:
        """Raise because these would have to be sent again, and the time for that is over."""
        raise WriteError(
            f"{sum(map(len, late))} records could not be written to stream {self._label} within "
            f"{self._retry_timeout_s:g}s ({max(item.tries for item in late)} tries). "
            f"The last reason: {why.rstrip('.')}.",
            "If it is throttling, add shards or slow the query down; else check the endpoint and "
            "the network. retryTimeout sets how long to try.",
        ) from None

    def _deadline(self, sent: Item) -> float:
        """Return until when an item that was sent may be sent again."""
        assert sent.first_try is not None
        return sent.first_try + self._retry_timeout_s
