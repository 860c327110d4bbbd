"""Chooses the next request for one stream, and settles what Kinesis answers. Pure.

A shard's queue with enough for a request fills one alone, so that what one shard refuses concerns
no other shard; what other queues have is combined when the oldest of it has waited long enough.
Each queue keeps its shard's pace, and pauses alone when something of it failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kinesis_ds.writer.aggregating import user_records
from kinesis_ds.writer.prediction import hash_key_of
from kinesis_ds.writer.records import Request, records_of
from kinesis_ds.writer.results import THROTTLED_CODES, Rejected
from kinesis_ds.writer.waiting import WaitingRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.writer.aggregating import Aggregator
    from kinesis_ds.writer.pacing import Pace
    from kinesis_ds.writer.prediction import Prediction
    from kinesis_ds.writer.records import Block, Item, PackingLimits, Record
    from kinesis_ds.writer.results import Answers
    from kinesis_ds.writer.shard_queue import ShardQueue


class RetriesExhausted(Exception):  # noqa: N818  # what happened, for the sender to put into words
    """Records would have to be sent again, and the time for that is over.

    Attributes:
        records: How many records.
        tries: How often the one that was tried most was sent.
        why: The last reason.
    """

    def __init__(self, records: int, tries: int, why: str) -> None:
        super().__init__(records, tries, why)
        self.records = records
        self.tries = tries
        self.why = why


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


class _Share(NamedTuple):
    """The part of a request that was taken from one queue; ``cost`` in shard-seconds."""

    queue: ShardQueue
    items: list[Item]
    cost: float


class _SentRequest(NamedTuple):
    """A request under way; ``generation`` counts the predictions that were used before."""

    request: Request
    shares: list[_Share]
    sent_at: float
    generation: int


class Scheduler:
    """All that one task has for one stream. Each record either waits, or is under way, or settled.

    Runs on the network loop. All times are in monotonic seconds.

    Args:
        limits: What a request may hold.
        prediction: Predicts the shard of a record.
        ordered: Whether rows of one partition key are stored in row order, whatever fails. At most
            one record of a key is then under way.
        linger_s: How long a record may wait for others.
        retry_timeout_s: How long a record is tried, from when it was first sent.
        paces: The shards' paces, which outlive this object; new ones are added to it.
        new_aggregator: Makes the aggregator of one shard; None where each row is a record. Its
            argument says that each row must go alone: where the shard is not known, rows that are
            put together may not belong together.
        uniform: Draws the pauses, as :func:`random.uniform` does.

    Attributes:
        why: Why something was last sent again; empty before that.
    """

    def __init__(
        self,
        limits: PackingLimits,
        prediction: Prediction,
        *,
        ordered: bool,
        linger_s: float,
        retry_timeout_s: float,
        paces: dict[str, Pace],
        new_aggregator: Callable[[bool], Aggregator] | None,
        uniform: Callable[[float, float], float],
    ) -> None:
        self._limits = limits
        self._retry_timeout_s = retry_timeout_s
        self._uniform = uniform
        self._waiting = WaitingRows(
            limits,
            prediction,
            ordered=ordered,
            linger_s=linger_s,
            paces=paces,
            new_aggregator=new_aggregator,
        )
        self._sent: dict[int, _SentRequest] = {}
        # Aggregates that are stored in a shard of which it is not known what belongs there.
        self._in_unknown_shards: list[tuple[Record, str]] = []
        self._generation = 0
        self.why = ""

    @property
    def waiting(self) -> int:
        """How many rows wait to be sent, those in open aggregates included."""
        return self._waiting.rows

    @property
    def in_unknown_shards(self) -> int:
        """How many rows are stored, but in a shard of which it is not known what belongs there."""
        return sum(record.rows for record, _ in self._in_unknown_shards)

    @property
    def empty(self) -> bool:
        """True when everything that was added is delivered."""
        return not (self.waiting or self._sent or self._in_unknown_shards)

    def add(self, block: Block, now: float) -> None:
        """Take rows that were never sent, in row order."""
        self._waiting.add(block, now)

    def flush(self, on: bool = True) -> None:
        """Let nothing wait for others, because no more rows come."""
        self._waiting.flush(on)

    def hurry(self, on: bool) -> None:
        """Send all that can be sent while the task waits for room. Aggregates stay open."""
        self._waiting.hurry(on)

    # Requests.

    def next_request(self, now: float) -> Request | None:
        """Return the request to send now; None when nothing is ready. It counts as sent.

        Raises:
            RetriesExhausted: A record would be sent again after its time.
        """
        self._check_in_unknown_shards(now)
        self._waiting.update_due(now)
        limits = self._limits
        shares: list[_Share] = []
        records, size = 0, 0
        full = False
        while not full and (queue := self._waiting.next(now, alone=not shares)) is not None:
            room = limits.request_bytes - size
            taken = self._waiting.take(
                queue, limits.request_records - records, room, now, alone=not shares
            )
            if taken.items:
                records += sum(map(len, taken.items))
                size += taken.size
                shares.append(_Share(queue, taken.items, taken.cost))
            full = (
                taken.request_full
                or records >= limits.request_records
                or size >= limits.request_bytes
            )
        if not shares:
            return None
        request = self._request([item for share in shares for item in share.items], size, now)
        self._sent[id(request)] = _SentRequest(request, shares, now, self._generation)
        return request

    def _request(self, items: list[Item], size: int, now: float) -> Request:
        """Make a request of items that count as sent now.

        Raises:
            RetriesExhausted: One of them would be sent again after its time.
        """
        first = now
        late: list[Item] = []
        for item in items:
            item.tries += 1
            if item.first_try is None:
                item.first_try = now
            elif self._deadline(item) <= now:
                late.append(item)
            first = min(first, item.first_try)
        if late:
            raise RetriesExhausted(sum(map(len, late)), max(r.tries for r in late) - 1, self.why)
        return Request(items, size, first)

    def wake_at(self, now: float) -> float | None:
        """Return when :meth:`next_request` may give something although nothing else happens."""
        times = [self._deadline(record) for record, _ in self._in_unknown_shards]
        if (ready_at := self._waiting.wake_at(now)) is not None:
            times.append(ready_at)
        return max(now, min(times)) if times else None

    # Answers.

    def settle(self, request: Request, answers: Answers, now: float) -> Settled:
        """Settle the answer to a request, none of whose records was rejected.

        Raises:
            RetriesExhausted: A record would be sent again, and its time is over.
        """
        sent = self._sent.pop(id(request))
        settled = Settled()
        again: list[tuple[Record, float]] = []
        end = 0
        for share in sent.shares:
            at, end = end, end + sum(map(len, share.items))
            # The usual case: all is stored, and in the predicted shard.
            expected = share.queue.shard if self._waiting.prediction.known else None
            if answers.all_stored(at, end, expected):
                self._settle_whole(share, settled, now)
            else:
                again += self._settle_each(share, answers, at, sent, settled, now)
        self._check_deadline(again)
        return settled

    def _settle_whole(self, share: _Share, settled: Settled, now: float) -> None:
        """Settle what is all stored as predicted, without looking at each record."""
        queue = share.queue
        queue.pace.delivered(share.cost, now)
        queue.failures = 0
        settled.rows += sum(item.rows for item in share.items)
        settled.window_bytes += sum(item.window_bytes for item in share.items)
        self._waiting.done(share.items, now)
        self._waiting.update(queue, now)

    def _settle_each(
        self,
        share: _Share,
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
        self._waiting.update(queue, now)
        return again

    def failed(self, request: Request, why: str, throttled: bool, now: float) -> Settled:
        """Settle a request that failed as a whole, or got no answer, and may pass later.

        Raises:
            RetriesExhausted: A record would be sent again, and its time is over.
        """
        sent = self._sent.pop(id(request))
        self.why = why
        again: list[tuple[Record, float]] = []
        for share in sent.shares:
            pace = share.queue.pace
            (pace.throttled if throttled else pace.gave_up)(share.cost, now)
            again += self._send_again(share, records_of(share.items), sent, now)
            self._waiting.update(share.queue, now)
        self._check_deadline(again)
        rows = request.rows
        return Settled(retried=rows, throttled=rows if throttled else 0)

    def _send_again(
        self, share: _Share, records: list[Record], sent: _SentRequest, now: float
    ) -> list[tuple[Record, float]]:
        """Put failed records of a request back, after a pause.

        Returns them, each with the time from when it may be sent.
        """
        queue = share.queue
        queue.pause(sent.sent_at, now, self._uniform)
        if sent.generation == self._generation:
            self._waiting.put_back(queue, records, now)
        else:
            for record in reversed(records):
                self._waiting.replace(record, user_records(record), now)
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
        prediction = self._waiting.prediction
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
                        self._in_unknown_shards.append((record, shard))
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
                self._waiting.replace(record, gone, now)
            else:
                done.append(record)
        self._waiting.done(done, now)

    def reshard(self, prediction: Prediction, now: float) -> Settled:
        """Deal out anew what waits, by the shards as they are now. What is under way stays so."""
        sent = [record for sent in self._sent.values() for record in sent.request.records]
        sent += [record for record, _ in self._in_unknown_shards]
        self._waiting.deal_out_anew(prediction, sent, now)
        self._generation += 1
        settled = Settled()
        in_unknown_shards, self._in_unknown_shards = self._in_unknown_shards, []
        for stored in in_unknown_shards:
            self._settle_stored([stored], "", -1, settled, now)
        settled.surprised = bool(self._in_unknown_shards)
        return settled

    def close(self) -> None:
        """Give up what is under way, so that the paces do not count it any longer."""
        for sent in self._sent.values():
            for share in sent.shares:
                share.queue.pace.gave_up(share.cost, sent.sent_at)
        self._sent.clear()

    # Deadlines.

    def _check_deadline(self, again: list[tuple[Record, float]]) -> None:
        """Raise if a record may no longer be sent when its pause is over."""
        late = [record for record, at in again if self._deadline(record) <= at]
        if late:
            raise RetriesExhausted(len(late), max(r.tries for r in late), self.why)

    def _check_in_unknown_shards(self, now: float) -> None:
        stored = self._in_unknown_shards
        late = [(record, shard) for record, shard in stored if self._deadline(record) <= now]
        if late:
            why = f"shard {late[0][1]} took them, and it is not listed"
            raise RetriesExhausted(len(late), max(record.tries for record, _ in late), why)

    def _deadline(self, sent: Item) -> float:
        """Return until when an item that was sent may be sent again."""
        assert sent.first_try is not None
        return sent.first_try + self._retry_timeout_s
