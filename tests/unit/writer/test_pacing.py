"""Pace: as fast as a shard takes, with little sent in vain."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.writer.pacing import Pace
from kinesis_ds.writer.records import plain


def paced(rate: float, now: float = 0.0) -> Pace:
    """A pace that has just learned this rate; nothing is under way."""
    pace = Pace()
    pace.sent(rate / 0.9 + 0.1, now)
    pace.delivered(rate / 0.9, now)
    pace.throttled(0.1, now)
    assert pace.rate == pytest.approx(rate)
    return pace


@dataclass
class Server:
    """One shard behind a network: a second's allowance saved up, refilled steadily, partly used.

    Counts shard-seconds from ``settled_s`` on, which is when the writer should know its pace.
    """

    used_by_others: float = 0.0
    limit: float = 1.0
    round_trip_s: float = 0.03
    record_bytes: int = 100
    settled_s: float = 10.0
    sent: float = 0.0
    in_vain: float = 0.0
    delivered: float = 0.0
    longest_gap_s: float = 0.0
    random: Random = field(default_factory=lambda: Random(1))

    def serve(self, paces: list[Pace], seconds: float) -> None:
        """Writers with endless records, each with up to 20 requests of 500 under way."""
        cost = max(0.001, self.record_bytes / MIB)
        level, level_at, now, last = 1.0, 0.0, 0.0, 0.0
        slots = [20] * len(paces)
        events: list[tuple[float, float, str, int, int, int]] = []
        while now < seconds:
            while events and events[0][0] <= now:
                at, _, what, writer, sent, taken = heapq.heappop(events)
                half = self.round_trip_s / 2 * self.random.uniform(0.7, 1.3)
                if what == "request":
                    refill = (at - level_at) * (self.limit - self.used_by_others)
                    level, level_at = min(1.0, level + refill), at
                    taken = min(sent, int(level / cost + 1e-9))
                    level -= taken * cost
                    answer = (at + half, self.random.random(), "answer", writer, sent, taken)
                    heapq.heappush(events, answer)
                    continue
                slots[writer] += 1
                if taken:
                    paces[writer].delivered(taken * cost, at)
                if sent > taken:
                    paces[writer].throttled((sent - taken) * cost, at)
                if at > self.settled_s:
                    self.sent += sent * cost
                    self.in_vain += (sent - taken) * cost
                    self.delivered += taken * cost
                    self.longest_gap_s = (
                        max(self.longest_gap_s, at - last) if taken else (self.longest_gap_s)
                    )
                last = at if taken else last
            nexts = [events[0][0]] if events else []
            for writer, pace in enumerate(paces):
                if not slots[writer]:
                    continue
                ready = pace.ready_at(500 * cost, now)
                if ready <= now:
                    records = max(1, min(500, int(pace.allowance(now) / cost + 1e-9)))
                    pace.sent(records * cost, now)
                    slots[writer] -= 1
                    arrival = now + self.round_trip_s / 2 * self.random.uniform(0.7, 1.3)
                    what = (arrival, self.random.random(), "request", writer, records, 0)
                    heapq.heappush(events, what)
                    ready = now
                nexts.append(ready)
            now = max(now, min(nexts))


@pytest.mark.parametrize("round_trip_s", [0.005, 0.03, 0.3])
@pytest.mark.parametrize(
    ("used_by_others", "record_bytes"),
    [(0.0, 100), (0.5, 100), (0.9, 100), (0.5, 3_000), (0.0, 200_000), (0.5, 200_000)],
)
def test_a_shard_is_used_up_and_little_is_sent_in_vain(
    used_by_others: float, round_trip_s: float, record_bytes: int
) -> None:
    """At least 90% of what the shard has for us, under 15% in vain, no second without progress."""
    server = Server(used_by_others, round_trip_s=round_trip_s, record_bytes=record_bytes)

    server.serve([Pace()], seconds=60.0)

    assert server.delivered >= 0.9 * (1.0 - used_by_others) * 50.0
    assert server.in_vain < 0.15 * server.sent
    assert server.longest_gap_s < 1.0


def test_the_first_throttles_cost_little() -> None:
    """From the very first request on, the pace of a shard that is half taken is found."""
    server = Server(used_by_others=0.5, settled_s=-1.0)

    server.serve([Pace()], seconds=10.0)

    assert server.delivered >= 0.9 * 0.5 * 10.0
    assert server.in_vain < 2.5  # shard-seconds, once
    assert server.longest_gap_s < 1.0


def test_writers_with_paces_share_a_shard() -> None:
    """Four of them use it up together, and little is sent in vain."""
    server = Server()
    paces = [Pace() for _ in range(4)]

    server.serve(paces, seconds=90.0)

    assert server.delivered >= 0.9 * 80.0
    assert server.in_vain < 0.15 * server.sent
    assert server.longest_gap_s < 1.0


def test_what_others_leave_is_taken_up() -> None:
    """From a tenth of the shard to all of it within seconds, once it is there."""
    server = Server(settled_s=12.0)

    server.serve([paced(0.1)], seconds=32.0)

    assert server.delivered >= 0.9 * 20.0


def test_a_server_without_limits_holds_nobody_back() -> None:
    """The bound on what is under way doubles with each round that is delivered."""
    pace, rounds = Pace(), []
    for now in range(5):
        rounds.append(pace.allowance(now))
        pace.sent(rounds[-1], now)
        assert pace.ready_at(0.001, now) > now
        pace.delivered(rounds[-1], now)

    assert rounds == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert pace.rate is None


def test_throttles_of_one_round_are_one_decrease() -> None:
    """Ten requests that were under way together say one thing, not ten."""
    pace = paced(1.0)
    before = pace.rate
    for _ in range(10):
        pace.sent(0.01, 1.0)
    for n in range(10):
        pace.throttled(0.01, 1.05 + n / 100)

    assert before is not None
    assert pace.rate is not None
    assert 0.7 * before <= pace.rate < before


def test_what_was_sent_before_a_decrease_does_not_decrease_again() -> None:
    """Answers may take much longer than a decrease."""
    pace = paced(1.0)
    for _ in range(3):
        pace.sent(0.1, 1.0)
    pace.throttled(0.1, 2.0)
    after = pace.rate
    assert after is not None
    for now in (3.0, 4.0):
        pace.throttled(0.1, now)
        assert pace.rate is not None
        assert pace.rate >= after  # it has only grown since

    pace.sent(0.1, 4.0)
    grown = pace.rate
    pace.throttled(0.1, 5.0)  # sent after the decrease: this one counts
    assert pace.rate < grown


def test_a_shard_that_takes_nothing_is_still_tried() -> None:
    """There is a lowest rate, and it is enough for a try every few hundred milliseconds."""
    pace, now = paced(1.0), 1.0
    for _ in range(200):
        ready = pace.ready_at(0.001, now)
        assert ready - now < 0.5
        now = max(now + 0.3, ready)
        pace.sent(0.001, now)
        pace.throttled(0.001, now)

    assert pace.rate is not None
    assert 0.02 <= pace.rate < 0.1


@pytest.mark.parametrize("cost", [1.0, 10.0])
def test_a_record_that_costs_more_than_is_saved_up_goes_and_is_paid_back(cost: float) -> None:
    """10 MiB go to a shard of 1 MiB a second, and the next one 10 seconds later."""
    fresh = Pace()
    assert fresh.ready_at(cost, 0.0) == 0.0

    pace = paced(0.5)
    assert pace.ready_at(cost, 1.0) == 1.0
    pace.sent(cost, 1.0)
    pace.delivered(cost, 1.0)
    back = pace.ready_at(0.001, 1.0)
    assert pace.rate is not None
    assert cost - 0.5 < (back - 1.0) * pace.rate < cost


def test_a_large_record_that_was_refused_is_not_paid_back_for_long() -> None:
    """The shard did not take it, so it costs less than a second."""
    pace = paced(0.5)
    pace.sent(10.0, 5.0)
    pace.throttled(10.0, 5.0)

    assert pace.ready_at(10.0, 5.0) < 6.0


def test_a_call_without_an_answer_says_nothing() -> None:
    """It takes back what was under way; window and rate stay."""
    pace = Pace()
    pace.sent(1.0, 0.0)
    pace.gave_up(1.0, 1.0)
    assert pace.rate is None
    assert pace.allowance(1.0) == 1.0

    pace = paced(0.5)
    pace.sent(0.2, 0.0)
    pace.gave_up(0.2, 0.0)
    assert pace.rate == pytest.approx(0.5)


def test_time_that_goes_backwards_gives_nothing() -> None:
    """An older ``now`` is no time at all."""
    pace = paced(0.5)
    at_two = pace.allowance(2.0)

    assert pace.allowance(1.0) == at_two


def test_a_record_costs_the_limit_that_it_uses_up_more_of() -> None:
    """A thousandth of a second, or its share of 1 MiB."""
    assert plain(b"", "k", None, 100, 0).cost == 0.001
    assert plain(b"", "k", None, MIB // 2, 0).cost == 0.5
