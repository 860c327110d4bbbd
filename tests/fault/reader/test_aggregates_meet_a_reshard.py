"""The KPL aggregates for the shards it believes in, and sends again what landed elsewhere (F59)."""

from __future__ import annotations

import base64
import logging
from collections import Counter
from typing import Any

import pytest

from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.aws.read_range import read_range
from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, AtTimestamp, Position
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartAgent, StartQuery
from tests.support.agents import FIRST, STREAM, Agent, listed
from tests.support.aggregates import User, aggregate, bytes_field, sealed, user_field
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

WHOLE = (0, MAX_HASH_KEY)


class Kpl:
    """Aggregates by the shards it knew last, as the KPL does. When an aggregate comes to rest in a
    shard that it did not expect, it sends user records of it again.

    Args:
        knows_children: Whether it has heard of that shard by then. The KPL from 0.15.11 on sends
            only those again that do not belong there; before, and where the shard is new to it, it
            sends all of them.
    """

    def __init__(self, kinesis: KinesisServer, *, knows_children: bool) -> None:
        self._kinesis = kinesis
        self._knows_children = knows_children
        self._ranges: dict[str, tuple[int, int]] = {}
        self._look()
        self.sent_again: list[bytes] = []

    def put(self, *users: User) -> None:
        """An aggregate for each shard that it believes in."""
        late: list[User] = []
        for shard_id, (low, high) in self._ranges.items():
            mine = [user for user in users if low <= user.hash <= high]
            if not mine:
                continue
            landed = self._send(mine)
            if landed == shard_id:
                continue
            there = listed(self._kinesis, landed).hash_range if self._knows_children else (1, 0)
            late += [user for user in mine if not there[0] <= user.hash <= there[1]]
        if late:
            self.sent_again += [user.data for user in late]
            self._look()
            self.put(*late)

    def _send(self, users: list[User]) -> str:
        answer = self._kinesis.call(
            "PutRecord",
            StreamName=STREAM,
            Data=base64.b64encode(aggregate(*users)).decode(),
            PartitionKey="a",
            ExplicitHashKey=str(users[0].hash),
        )
        return str(answer["ShardId"])

    def _look(self) -> None:
        opened = self._kinesis.open_shards(STREAM)
        self._ranges = {s: listed(self._kinesis, s).hash_range for s in opened}


def users(name: str, count: int, among: tuple[int, int] = WHOLE) -> list[User]:
    """User records with keys of their own that belong to a range of hash keys."""
    found: list[User] = []
    n = 0
    while len(found) < count:
        user = User(f"{name}-{n}", f"{name} {n}".encode())
        n += 1
        if among[0] <= user.hash <= among[1]:
            found.append(user)
    return found


def by_agent(agent: Agent, shard_id: str, start: Position = TRIM_HORIZON) -> list[dict[str, Any]]:
    """What an agent serves of a shard, from where it began."""
    end = agent.agent.available()[shard_id]
    if end == start:
        return []
    batches = stream_range(agent.agent.address, shard_id, start, end)
    return [row for batch in batches for row in batch.to_pylist()]


def by_get_records(agent: Agent, shard_id: str, start: Position, end: Position) -> Any:
    """The same range as a task reads it from Kinesis."""
    hash_range = listed(agent.kinesis, shard_id).hash_range

    async def collect() -> list[dict[str, Any]]:
        described = agent.kinesis.call("DescribeStreamSummary", StreamName=STREAM)
        batches = read_range(
            agent.network.connection,
            described["StreamDescriptionSummary"]["StreamARN"],
            shard_id,
            start,
            end,
            shard_id,
            agent.kinesis.clock,
            decoding=Decoding(hash_range, deaggregate=True, metadata=True),
        )
        return [row async for batch in batches for row in batch.to_pylist()]

    return agent.network.run(collect(), 60, "read")


def all_rows(agent: Agent, shard_ids: list[str], enough: int) -> list[dict[str, Any]]:
    """Everything that the agent has, once it is so much; GetRecords must give the same."""
    found = eventually(
        lambda: (
            rows
            if len(rows := [row for s in shard_ids for row in by_agent(agent, s)]) >= enough
            else None
        ),
        f"{enough} rows",
    )
    again = [
        row
        for s in shard_ids
        for row in by_get_records(agent, s, TRIM_HORIZON, agent.agent.available()[s])
    ]
    assert again == found
    return found


@pytest.mark.parametrize("knows_children", [True, False])
def test_nothing_is_lost_whatever_the_producer_knew(
    kinesis: KinesisServer, start_agent: StartAgent, knows_children: bool
) -> None:
    """F59: an aggregate of both children's records lands in one of them, late. What belongs to the
    other is left out there, since it comes again; twice comes at most what the KPL sent twice to
    where it belongs.
    """
    kpl = Kpl(kinesis, knows_children=knows_children)
    before, late, behind = users("before", 20), users("late", 20), users("behind", 20)
    kpl.put(*before)
    children = kinesis.split(STREAM, FIRST)
    kpl.put(*late)
    kpl.put(*behind)
    shards = [FIRST, *children]
    agent = start_agent(kinesis, deaggregate=True, metadata=True).assign(*shards)
    ranges = {s: listed(kinesis, s).hash_range for s in children}
    (landed,) = [r for r in ranges.values() if r[0] <= late[0].hash <= r[1]]
    at_home = [user.data for user in late if landed[0] <= user.hash <= landed[1]]
    twice = [] if knows_children else at_home

    rows = all_rows(agent, shards, 60 + len(twice))
    expected = Counter(user.data for user in before + late + behind) + Counter(twice)
    assert Counter(row["data"] for row in rows) == expected
    assert 0 < len(kpl.sent_again) <= 20
    # A number and the number inside name a record, also where its neighbours were left out.
    assert len({(row["sequenceNumber"], row["subSequenceNumber"]) for row in rows}) == len(rows)
    left_out = [agent.shard(s)["misplaced"] for s in shards]
    assert sum(left_out) == len(late) - len(at_home)


def test_what_is_left_out_is_counted_and_said(
    kinesis: KinesisServer, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a shard: where no KPL made the aggregates, nobody sends those records again."""
    children = kinesis.split(STREAM, FIRST)
    ranges = {s: listed(kinesis, s).hash_range for s in children}
    some, other = (users("some", 4, ranges[s]) for s in children)
    low = str(ranges[children[0]][0])
    with caplog.at_level(logging.WARNING):
        agent = start_agent(kinesis, deaggregate=True).assign(*children)
        for count in (4, 8, 12):
            put_aggregate(kinesis, aggregate(*some, *other[:3]), low)
            eventually(
                lambda count=count: len(by_agent(agent, children[0])) == count, "what belongs there"
            )

    assert agent.shard(children[0])["misplaced"] == 9
    assert agent.shard(children[0])["records"] == 12
    said = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert len(said) == 1
    assert children[0] in said[0]
    assert by_agent(agent, children[1]) == []
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        end = agent.agent.available()[children[0]]
        assert len(by_get_records(agent, children[0], TRIM_HORIZON, end)) == 12
    assert [children[0] in r.getMessage() for r in caplog.records] == [True]


def put_aggregate(kinesis: KinesisServer, data: bytes, hash_key: str) -> None:
    kinesis.call(
        "PutRecord",
        StreamName=STREAM,
        Data=base64.b64encode(data).decode(),
        PartitionKey="a",
        ExplicitHashKey=hash_key,
    )


@pytest.mark.parametrize("start", [TRIM_HORIZON, AtTimestamp(0)])
def test_a_shard_of_misplaced_records_only_is_read_to_its_end(
    kinesis: KinesisServer, start_agent: StartAgent, start: Position
) -> None:
    """Nothing in it is a row, and all of it moves the position: nothing waits for a row, nothing
    is read again, and the end is one (FLINK-29395 failed at the first such batch after a start by
    time).
    """
    low, high = kinesis.split(STREAM, FIRST)
    elsewhere = users("elsewhere", 5, listed(kinesis, high).hash_range)
    for _ in range(3):
        put_aggregate(kinesis, aggregate(*elsewhere), "0")
    agent = start_agent(kinesis, deaggregate=True).assign(low, position=start)
    eventually(lambda: agent.shard(low)["misplaced"] == 15, "all were seen")
    eventually(lambda: str(agent.agent.available()[low]).startswith("AFTER:"), "a position")
    kinesis.split(STREAM, low)
    agent.mark_closed(low)

    eventually(lambda: agent.ended(low), "its end")
    assert by_agent(agent, low, start) == []
    assert agent.shard(low)["misplaced"] == 15
    assert agent.pool()["used_records"] == 0
    assert by_get_records(agent, low, start, SHARD_END) == []


def test_a_malformed_aggregate_fails_the_query_with_its_place(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """It is not passed over, and what lies behind it is not read without it."""
    kinesis.put(STREAM, b"before")
    put_aggregate(kinesis, sealed(bytes_field(1, b"k") + user_field(7, b"d")), "0")
    kinesis.put(STREAM, b"behind")
    number = kinesis.records(STREAM)[1].sequence_number
    agent = start_agent(kinesis, deaggregate=True).assign()

    said = str(agent.failure())
    assert said.startswith("[KINESIS_PROTOCOL]")
    for part in (FIRST, STREAM, str(number), "malformed", "deaggregate=false"):
        assert part in said
    assert agent.held() in ([], [b"before"])
    with pytest.raises(ProtocolError, match=rf"{FIRST}: The aggregate with .* {number} is malf"):
        by_get_records(agent, FIRST, TRIM_HORIZON, SHARD_END)
    as_they_are = start_agent(kinesis, consumer="other", deaggregate=False).assign()
    eventually(lambda: len(as_they_are.held()) == 3, "all three, with the remedy")


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_a_query_reads_user_records_across_a_restart(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """Batches, offsets and counts are of user records and of whole aggregates."""
    kpl = Kpl(kinesis, knows_children=True)
    first, second, third = users("one", 30), users("two", 30), users("three", 30)
    kpl.put(*first)
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="7")
    query.read_until(30)
    query.close()
    kinesis.split(STREAM, FIRST)
    kpl.put(*second)
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="7")
    kpl.put(*third)
    query.read_until(90)

    expected = Counter(user.data for user in [*first, *second, *third])
    assert Counter(query.data) == expected
    assert {row.key for row in query.rows} == {user.key for user in [*first, *second, *third]}
    everywhere = Counter((row.shard, row.number) for row in query.rows)
    for batch in query.batches():
        whole = Counter((row.shard, row.number) for row in batch)
        assert all(everywhere[each] == count for each, count in whole.items())
