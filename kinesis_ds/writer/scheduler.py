"""What is sent next, of all that one task has for one stream. Pure.

Records wait in a lane for each shard that they are predicted for. A lane with enough for a request
fills one alone, so that what one shard refuses concerns no other; what other lanes have is combined
when the oldest of it has waited long enough. Each lane keeps its shard's pace, and pauses alone
when something of it failed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kinesis_ds.writer.aggregating import users_of
from kinesis_ds.writer.pacing import Pace
from kinesis_ds.writer.prediction import hash_key_of
from kinesis_ds.writer.queues import Gate
from kinesis_ds.writer.ready import Filing, Lane
from kinesis_ds.writer.records import Block, Request, records_of
from kinesis_ds.writer.results import THROTTLED_CODES, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesis_ds.writer.aggregating import Aggregator
    from kinesis_ds.writer.prediction import Prediction
    from kinesis_ds.writer.records import Load, PackingLimits, Record
    from kinesis_ds.writer.results import Answers

_BACKOFF_BASE_S: Final = 0.1
_BACKOFF_CAP_S: Final = 5.0


class RetriesExhausted(Exception):  # noqa: N818  # what happened, for the sender to put into words
    """Records would have to be sent again, and the time for that is over.

    Attributes:
        records: How many.
        tries: How often the one tried most was sent.
        why: The last reason.
    """

    def __init__(self, records: int, tries: int, why: str) -> None:
        super().__init__(records, tries, why)
        self.records = records
        self.tries = tries
        self.why = why


class Stray(NamedTuple):
    """Rows of an aggregate in a shard where readers leave them out; ``size`` as they were held."""

    shard_id: str
    rows: int
    size: int


@dataclass
class Settled:
    """What an answer comes to.

    Attributes:
        rows: Rows that are delivered, to be released.
        bytes: What those hold of the window.
        retried: Rows to be sent again because they were not stored.
        throttled: Those of them that a service limit was the reason for.
        strays: Rows to be sent again because their aggregate landed in a shard where readers do
            not look for them.
        surprised: Whether a record landed where the prediction did not expect it, or in a shard
            that it does not know: time to look at the shards.
    """

    rows: int = 0
    bytes: int = 0
    retried: int = 0
    throttled: int = 0
    strays: list[Stray] = field(default_factory=list)
    surprised: bool = False

    @property
    def misplaced(self) -> int:
        """How many rows have strayed."""
        return sum(stray.rows for stray in self.strays)


class _Part(NamedTuple):
    """What is of one lane in a request."""

    lane: Lane
    loads: list[Load]
    cost: float


class _Flight(NamedTuple):
    """A request under way."""

    request: Request
    parts: list[_Part]
    sent_at: float
    dealing: int


class Lanes:
    """What one task has for one stream. Every record is in one place: waiting, under way, settled.

    Runs on the network loop. Times are in monotonic seconds.

    Args:
        limits: What a request may hold.
        prediction: Where records will land.
        ordered: Whether rows of one partition key are stored in row order, whatever fails. At most
            one record of a key is then under way.
        linger_s: How long a record may wait for others.
        retry_timeout_s: How long a record is tried, from when it was first sent.
        paces: The shards' paces, which outlive this object; added to here.
        aggregator: Makes the aggregator of one shard, told whether each row is to go alone: where
            the shard is not known, rows that are put together may not belong together. None where
            rows travel one by one.
        uniform: Draws the pauses.
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
        aggregator: Callable[[bool], Aggregator] | None,
        uniform: Callable[[float, float], float],
    ) -> None:
        self._limits = limits
        self._prediction = prediction
        self._linger_s = linger_s
        self._retry_timeout_s = retry_timeout_s
        self._paces = paces
        self._aggregator = aggregator
        self._uniform = uniform
        self._gate = Gate() if ordered else None
        self._lanes: dict[str, Lane] = {}
        self._filing = Filing(limits, linger_s)
        self._flights: dict[int, _Flight] = {}
        self._unsettled: list[tuple[Record, str]] = []
        self._dealing = 0
        self._flushing = False
        self._hurrying = False
        self._waiting = 0
        self.why = ""

    @property
    def waiting(self) -> int:
        """How many rows wait to be sent, in open aggregates, too."""
        return self._waiting

    @property
    def unsettled(self) -> int:
        """How many rows are stored, but in a shard of which it is not known what belongs there."""
        return sum(record.rows for record, _ in self._unsettled)

    @property
    def empty(self) -> bool:
        """Whether everything that was added is delivered."""
        return not (self._waiting or self._flights or self._unsettled)

    def add(self, block: Block, now: float) -> None:
        """Take fresh rows, in row order."""
        self._waiting += len(block)
        touched: dict[Lane, None] = {}
        if self._aggregator is None and self._gate is not None:
            # Of each key the rows are to queue up in their order, whatever their shards are.
            for record in block.records:
                self._enqueue(record, self._lane_of(record), now, touched)
        else:
            for shard, rows in self._prediction.split(block).items():
                self._add_to(self._lane(shard), rows, now, touched)
        self._filing.file_all(touched, now)

    def _add_to(self, lane: Lane, rows: Block, now: float, touched: dict[Lane, None]) -> None:
        aggregator = lane.aggregator
        if aggregator is None:
            lane.queue.add(rows, now)
            touched[lane] = None
            return
        opened = aggregator.opened_at
        for closed in aggregator.add(rows, now):
            self._enqueue(closed, lane, now if opened is None else opened, touched)
            opened = None
        if aggregator.opened_at is not None and aggregator.opened_at != opened:
            self._filing.opened(lane, aggregator.opened_at)

    def flush(self, on: bool = True) -> None:
        """No more rows come, so nothing waits for company."""
        self._flushing = on
        self._filing.eager = self._flushing or self._hurrying

    def hurry(self, on: bool) -> None:
        """The task waits for room: nothing that can be sent waits. Aggregates are not cut short."""
        self._hurrying = on
        self._filing.eager = self._flushing or self._hurrying

    def next_request(self, now: float) -> Request | None:
        """What is to be sent now, at most one request. It counts as sent with this call.

        Raises:
            RetriesExhausted: A record would be sent again after its time.
        """
        self._check_unsettled(now)
        self._close_aggregates(now)
        self._filing.refile_due(now)
        parts: list[_Part] = []
        records, size = 0, 0
        room_ended = False
        while not room_ended and (lane := self._filing.next(now, alone=not parts)) is not None:
            if lane.pace.ready_at(lane.queue.cost, now) > now:
                self._filing.file(lane, now)  # another task has used its shard's pace up
                continue
            taken = lane.queue.take(
                self._limits.request_records - records,
                self._limits.request_bytes - size,
                lane.pace.allowance(now),
                alone=not records,
            )
            room_ended = taken.room_ended
            if taken.loads:
                records += sum(map(len, taken.loads))
                size += taken.size
                parts.append(_Part(lane, taken.loads, taken.cost))
                lane.pace.sent(taken.cost, now)
                self._filing.file(lane, now)
            room_ended |= records >= self._limits.request_records
            room_ended |= size >= self._limits.request_bytes
        if not records:
            return None
        request = self._depart([load for part in parts for load in part.loads], size, now)
        self._flights[id(request)] = _Flight(request, parts, now, self._dealing)
        return request

    def _depart(self, loads: list[Load], size: int, now: float) -> Request:
        """Count loads as sent now.

        Raises:
            RetriesExhausted: One of them would be sent again after its time.
        """
        first = now
        late: list[Load] = []
        for load in loads:
            self._waiting -= load.rows
            load.tries += 1
            if load.first_try is None:
                load.first_try = now
            elif self._deadline(load) <= now:
                late.append(load)
            first = min(first, load.first_try)
        if late:
            raise RetriesExhausted(sum(map(len, late)), max(r.tries for r in late) - 1, self.why)
        return Request(loads, size, first)

    def wake_at(self, now: float) -> float | None:
        """When :meth:`next_request` may give something although nothing else happens."""
        times = [self._deadline(record) for record, _ in self._unsettled]
        if (lane_at := self._filing.wake_at(now)) is not None:
            times.append(lane_at)
        if (oldest := self._filing.oldest_open()) is not None:
            times.append(now if self._flushing else oldest[0] + self._linger_s)
        return max(now, min(times)) if times else None

    def settle(self, request: Request, answers: Answers, now: float) -> Settled:
        """Take the answer to a request, none of whose records was refused.

        Raises:
            RetriesExhausted: A record would be sent again, and its time is over.
        """
        flight = self._flights.pop(id(request))
        settled = Settled()
        again: list[tuple[Record, float]] = []
        end = 0
        for part in flight.parts:
            at, end = end, end + sum(map(len, part.loads))
            # What usually happens: all is stored, and where it was thought to be.
            if answers.all_stored(at, end, part.lane.shard if self._prediction.known else None):
                self._settle_whole(part, settled, now)
            else:
                again += self._settle_each(part, answers, at, flight, settled, now)
        self._check_deadline(again)
        return settled

    def _settle_whole(self, part: _Part, settled: Settled, now: float) -> None:
        """Settle what is all stored as expected, without looking at each record."""
        lane = part.lane
        lane.pace.delivered(part.cost, now)
        lane.failures = 0
        settled.rows += sum(load.rows for load in part.loads)
        settled.bytes += sum(load.held for load in part.loads)
        if self._gate is not None:
            done = records_of(part.loads)
            passing = [r for record in done for r in self._gate.done(record)]
            if passing:
                self._admit(passing, now)
        self._filing.file(lane, now)

    def _settle_each(
        self,
        part: _Part,
        answers: Answers,
        first: int,
        flight: _Flight,
        settled: Settled,
        now: float,
    ) -> list[tuple[Record, float]]:
        """Settle record by record, from the ``first`` answer on; returns those to be sent again,
        and when they may go.
        """
        failed: list[Record] = []
        stored: list[tuple[Record, str]] = []
        costs = [0.0, 0.0, 0.0]  # delivered, throttled, neither
        for at, record in enumerate(records_of(part.loads), first):
            shard = answers.shards[at]
            if shard is not None:
                stored.append((record, shard))
                costs[0] += record.cost
                continue
            failure = answers.failures[at]
            assert not isinstance(failure, Rejected)
            failed.append(record)
            settled.retried += record.rows
            self.why = f"{failure.code}: {failure.message}"
            if failure.code in THROTTLED_CODES:
                settled.throttled += record.rows
                costs[1] += record.cost
            else:
                costs[2] += record.cost
        self._report(part, costs, now)
        again: list[tuple[Record, float]] = []
        if stored:
            part.lane.failures = 0
        if failed:
            self._pause(part.lane, flight.sent_at, now)
            again = self._back(part, failed, flight.dealing, now)
        self._judge(stored, part.lane.shard, flight.dealing, settled, now)
        self._filing.file(part.lane, now)
        return again

    def failed(self, request: Request, why: str, throttled: bool, now: float) -> Settled:
        """Take it that a request failed as a whole, or got no answer, and may pass later.

        Raises:
            RetriesExhausted: A record would be sent again, and its time is over.
        """
        flight = self._flights.pop(id(request))
        self.why = why
        again: list[tuple[Record, float]] = []
        for part in flight.parts:
            self._report(part, [0.0, part.cost, 0.0] if throttled else [0.0, 0.0, part.cost], now)
            self._pause(part.lane, flight.sent_at, now)
            again += self._back(part, records_of(part.loads), flight.dealing, now)
            self._filing.file(part.lane, now)
        self._check_deadline(again)
        rows = request.rows
        return Settled(retried=rows, throttled=rows if throttled else 0)

    def reshard(self, prediction: Prediction, now: float) -> Settled:
        """Deal out anew what waits, in row order, by the shards as they are now.

        Aggregates are taken apart and made anew. What is under way stays as it is.
        """
        waiting = self._drain_all()
        self._prediction = prediction
        self._dealing += 1
        self._waiting = 0
        if prediction.known:
            self._lanes = {s: lane for s, lane in self._lanes.items() if s in prediction.open}
            for shard in [s for s in self._paces if s not in prediction.open]:
                del self._paces[shard]
        waiting.sort(key=lambda record: record.row)
        tried = [record for record in waiting if record.tries]
        touched: dict[Lane, None] = {}
        # Of each key the rows that were tried come before those that were not.
        for lane, record in self._packed(tried, now):
            self._waiting += record.rows
            self._enqueue(record, lane, now - self._linger_s, touched)
        self._filing.file_all(touched, now)
        if fresh := [record for record in waiting if not record.tries]:
            self.add(Block.of(fresh), now)
        settled = Settled()
        unsettled, self._unsettled = self._unsettled, []
        for record, shard in unsettled:
            self._judge([(record, shard)], "", -1, settled, now)
        settled.surprised = bool(self._unsettled)
        return settled

    def close(self) -> None:
        """Give up what is under way, so that the paces do not count it any longer."""
        for flight in self._flights.values():
            for part in flight.parts:
                part.lane.pace.gave_up(part.cost, flight.sent_at)
        self._flights.clear()

    def _lane_of(self, record: Record) -> Lane:
        return self._lane(self._prediction.shard_of(record))

    def _lane(self, shard: str) -> Lane:
        lane = self._lanes.get(shard)
        if lane is None:
            pace = self._paces.setdefault(shard, Pace())
            aggregator = None if self._aggregator is None else self._aggregator(not shard)
            lane = self._lanes[shard] = Lane(shard, pace, aggregator)
        return lane

    # Aggregates.

    def _close_aggregates(self, now: float) -> None:
        """Close those that have been open for long enough; all of them when no more rows come."""
        touched: dict[Lane, None] = {}
        while (oldest := self._filing.oldest_open()) is not None:
            at, lane = oldest
            if not self._flushing and at + self._linger_s > now:
                break
            assert lane.aggregator is not None
            if (closed := lane.aggregator.close()) is not None:
                self._enqueue(closed, lane, at, touched)
        self._filing.file_all(touched, now)

    def _enqueue(self, record: Record, lane: Lane, since: float, touched: dict[Lane, None]) -> None:
        if self._gate is None or self._gate.add(record):
            lane.queue.add(record, since)
            touched[lane] = None

    def _packed(self, rows: Iterable[Record], now: float) -> list[tuple[Lane, Record]]:
        """Plain records as they will travel by the present prediction; nothing stays open."""
        if self._aggregator is None:
            return [(self._lane_of(record), record) for record in rows]
        by_lane: dict[Lane, list[Record]] = defaultdict(list)
        for record in rows:
            by_lane[self._lane_of(record)].append(record)
        packed = []
        for lane, records in by_lane.items():
            aggregator = self._aggregator(not lane.shard)
            for record in records:
                packed += [(lane, closed) for closed in aggregator.add(Block.of([record]), now)]
            if (last := aggregator.close()) is not None:
                packed.append((lane, last))
        return packed

    # Answers.

    def _report(self, part: _Part, costs: list[float], now: float) -> None:
        delivered, throttled, neither = costs
        pace = part.lane.pace
        if delivered:
            pace.delivered(delivered, now)
        if throttled:
            pace.throttled(throttled, now)
        if neither:
            pace.gave_up(neither, now)

    def _pause(self, lane: Lane, sent_at: float, now: float) -> None:
        # What was sent before the last failure was known is part of that failure.
        if lane.failures and sent_at < lane.failed_at:
            return
        lane.failed_at = now
        lane.failures += 1
        longest = min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * 2 ** min(lane.failures - 1, 10))
        lane.paused_until = now + self._uniform(0.0, longest)

    def _back(
        self, part: _Part, records: list[Record], dealing: int, now: float
    ) -> list[tuple[Record, float]]:
        """Put failed records back to where they go now; returns them, and when they may go."""
        self._waiting += sum(record.rows for record in records)
        if dealing == self._dealing:
            part.lane.queue.put_back(records, now)
        else:
            for record in reversed(records):
                self._replace(record, users_of(record), now)
        return [(record, max(now, part.lane.paused_until)) for record in records]

    def _replace(self, old: Record, rows: list[Record], now: float) -> None:
        """Put rows of a record to the front, as they travel now; the others of it are done."""
        packed = self._packed(rows, now) if rows != [old] else [(self._lane_of(old), old)]
        front = [record for _, record in packed]
        if self._gate is not None and front != [old]:
            passing = self._gate.replace(old, front)
            mine = set(front)
            front = [record for record in passing if record in mine]
            self._admit((record for record in passing if record not in mine), now)
        going = set(front)
        lanes: dict[Lane, list[Record]] = defaultdict(list)
        for lane, record in packed:
            if record in going:
                lanes[lane].append(record)
        for lane, records in lanes.items():
            lane.queue.put_back(records, now)
        self._filing.file_all(lanes, now)

    def _admit(self, records: Iterable[Record], now: float) -> None:
        """Queue records that have waited for others of their keys: they wait for nothing else."""
        touched: dict[Lane, None] = {}
        for record in records:
            lane = self._lane_of(record)
            lane.queue.add(record, now - self._linger_s)
            touched[lane] = None
        self._filing.file_all(touched, now)

    def _judge(
        self,
        stored: list[tuple[Record, str]],
        expected: str,
        dealing: int,
        settled: Settled,
        now: float,
    ) -> None:
        """Release what was stored where readers look for it; the rest goes again, or waits."""
        prediction = self._prediction
        passing: list[Record] = []
        for record, shard in stored:
            gone: list[Record] = []
            if shard != expected and prediction.known:
                # Since a reshard it may be expected where it landed, although it was not before.
                dealt_anew = dealing != self._dealing
                settled.surprised |= not (dealt_anew and shard == prediction.shard_of(record))
                if record.keys:
                    bounds = prediction.hash_range(shard)
                    if bounds is None:
                        settled.surprised = True
                        self._unsettled.append((record, shard))
                        continue
                    first, last = bounds
                    gone = [u for u in users_of(record) if not first <= hash_key_of(u) <= last]
            size = sum(user.held for user in gone)
            settled.rows += record.rows - len(gone)
            settled.bytes += record.held - size
            if gone:
                settled.strays.append(Stray(shard, len(gone), size))
                self.why = f"an aggregate landed on shard {shard}, where its rows do not belong"
                self._waiting += len(gone)
                self._replace(record, gone, now)
            elif self._gate is not None:
                passing += self._gate.done(record)
        if passing:
            self._admit(passing, now)

    def _drain_all(self) -> list[Record]:
        """Take out everything that waits, as plain records; those of one key in their order."""
        waiting = []
        for lane in self._lanes.values():
            waiting += lane.queue.drain()
        if self._gate is not None:
            passed = [r for flight in self._flights.values() for r in flight.request.records]
            passed += [record for record, _ in self._unsettled]
            waiting += self._gate.drain(passed)
        for lane in self._lanes.values():
            if lane.aggregator is not None and (last := lane.aggregator.close()) is not None:
                waiting.append(last)
        self._filing.clear()
        return [user for record in waiting for user in users_of(record)]

    def _check_deadline(self, again: list[tuple[Record, float]]) -> None:
        """Whether each record may still be sent when its pause is over."""
        late = [record for record, at in again if self._deadline(record) <= at]
        if late:
            raise RetriesExhausted(len(late), max(r.tries for r in late), self.why)

    def _check_unsettled(self, now: float) -> None:
        late = [(one, shard) for one, shard in self._unsettled if self._deadline(one) <= now]
        if late:
            why = f"shard {late[0][1]} took them, and it is not listed"
            raise RetriesExhausted(len(late), max(one.tries for one, _ in late), why)

    def _deadline(self, sent: Load) -> float:
        """Until when what was sent may be sent again."""
        assert sent.first_try is not None
        return sent.first_try + self._retry_timeout_s
