"""Polled shards that end, and those that go on for them (F17, F29, F30, F31, F34)."""

from __future__ import annotations

from collections import Counter

import pytest

from kinesis_ds.testing import Fault, KinesisServer, Refuse
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, iterator_starts, numbered, put_to

pytestmark = pytest.mark.fault

POLLING = {"consumerMode": "polling", "shardFetchInterval": "1s"}


def spread(kinesis: KinesisServer, first: int, last: int) -> list[bytes]:
    """Records over all open shards."""
    records = numbered(first, last)
    kinesis.put(STREAM, *records, partition_key=lambda data: data.decode())
    return records


def test_the_end_comes_behind_the_last_records(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F17, F30: the records of the last answers are there when the end is."""
    records = numbered(1, 400, 20_000)
    kinesis.put(STREAM, *records)
    kinesis.split(STREAM, FIRST)
    agent = start_agent(kinesis, mode="polling").assign()

    agent.take_to_the_end(records)
    assert agent.state() == "ended"
    assert agent.changes >= 1


@pytest.mark.parametrize("known", [True, False])
def test_an_idle_shard_that_is_closed_ends(
    kinesis: KinesisServer, start_agent: StartAgent, *, known: bool
) -> None:
    """Whether or not discovery has seen it: the answer says so itself (F29)."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    if known:
        agent.mark_closed()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.split(STREAM, FIRST)

    agent.take_to_the_end(numbered(1, 5))


def test_being_listed_as_closed_ends_nothing(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """A listing may be early; the records that are left come all the same."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.mark_closed()
    agent.take_until(numbered(1, 3))
    kinesis.put(STREAM, *numbered(4, 6))

    agent.take_until(numbered(1, 6))
    assert not agent.ended()


def test_generations_while_the_query_runs(serve: Serve, start_query: StartQuery) -> None:
    """F31, F34: a split, a merge and a scaling; every record once, no parent behind its child."""
    kinesis = serve(shards=2)
    query = start_query(kinesis, **POLLING)
    expected = spread(kinesis, 1, 50)
    query.read_until(50)
    kinesis.split(STREAM, FIRST)
    expected += spread(kinesis, 51, 100)
    query.read_until(75)
    kinesis.merge(STREAM, *sorted(kinesis.open_shards(STREAM))[-2:])
    expected += spread(kinesis, 101, 150)
    kinesis.scale(STREAM, 3)
    expected += spread(kinesis, 151, 200)

    assert Counter(query.read_until(200)) == Counter(expected)
    first_batch: dict[str, int] = {}
    last_batch: dict[str, int] = {}
    for number, batch in enumerate(query.batches()):
        for row in batch:
            first_batch.setdefault(row.shard, number)
            last_batch[row.shard] = number
    for shard in kinesis.shards(STREAM):
        for member in ("ParentShardId", "AdjacentParentShardId"):
            parent, child = shard.get(member), shard["ShardId"]
            if parent in last_batch and child in first_batch:
                assert last_batch[parent] < first_batch[child]


def test_reshards_while_the_query_is_down(serve: Serve, start_query: StartQuery) -> None:
    """F34: closed shards that still hold records are read before those that came of them."""
    kinesis = serve(shards=2)
    query = start_query(kinesis, **POLLING)
    expected = spread(kinesis, 1, 40)
    query.read_until(40)
    query.close()
    expected += spread(kinesis, 41, 80)
    kinesis.split(STREAM, FIRST)
    kinesis.split(STREAM, SECOND)
    expected += spread(kinesis, 81, 120)

    query = start_query(kinesis, **POLLING)
    assert Counter(query.read_until(120)) == Counter(expected)


def test_what_fails_at_the_end_of_a_shard_is_asked_for_again(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F16, F30: throttled, expired or torn, the end comes once, behind everything."""
    kinesis = serve(
        None,
        Fault(Refuse("ProvisionedThroughputExceededException"), "GetRecords", call=1),
        Fault(Refuse("ExpiredIteratorException"), "GetRecords", call=3),
        Fault(Refuse("InternalFailure", status=500), "GetRecords", call=4),
    )
    records = numbered(1, 600, 20_000)
    put_to(kinesis, FIRST, *records)
    kinesis.split(STREAM, FIRST)
    agent = start_agent(kinesis, mode="polling").assign()

    agent.take_to_the_end(records)
    assert len(kinesis.struck()) == 3
    assert len(iterator_starts(kinesis)) == 2
