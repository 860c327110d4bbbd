"""``Trigger.Once``: everything in one batch, however much it is."""

from __future__ import annotations

import logging

import pytest

from kinesis_ds.errors import DataLossError
from kinesis_ds.testing import KinesisServer, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, STREAM, numbered, put_to


def test_one_batch_has_everything(serve: Serve, start_query: StartQuery) -> None:
    """A new query needs no batch before it, and limits do not hold."""
    kinesis = serve(shards=2)
    for shard in ("shardId-000000000000", "shardId-000000000001"):
        put_to(kinesis, shard, *numbered(1, 40))
    query = start_query(kinesis, maxRecordsPerTrigger="3")

    assert query.once()
    assert [len(rows) for rows in query.batches()] == [80]


def test_more_than_the_buffer_holds_is_no_matter(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """The tasks read it from Kinesis, none of it goes through the driver."""
    data = [b"%d" % n + b"." * 100_000 for n in range(30)]
    kinesis.put(STREAM, *data)
    query = start_query(kinesis, fetchBufferSize="1mb")

    query.once()
    assert query.data == data
    assert "pool" not in query.coordinator.statistics()
    assert not kinesis.calls.calls("RegisterStreamConsumer")


def test_run_after_run(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """Each takes what came since the one before; other triggers go on from there."""
    for run in range(3):
        kinesis.put(STREAM, *numbered(run * 5 + 1, run * 5 + 5))
        query = start_query(kinesis)
        query.once()
        query.close()
        assert query.data == numbered(1, run * 5 + 5)
    kinesis.put(STREAM, *numbered(16, 20))
    assert start_query(kinesis).read_until(20) == numbered(1, 20)


def test_a_batch_run_again_is_the_same(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """Killed before its commit: the new run does that batch and no other."""
    kinesis.put(STREAM, *numbered(1, 10))
    query = start_query(kinesis)
    query.once()
    (query.folder / "commits" / "0").unlink()
    query.close()
    kinesis.put(STREAM, *numbered(11, 15))

    again = start_query(kinesis)
    again.once()
    assert again.data == numbered(1, 10)
    assert again.replayed == 1


def test_parents_come_before_their_children(serve: Serve, start_query: StartQuery) -> None:
    """In one batch, so in one task: the order of a key holds over a reshard."""
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 10))
    kinesis.split(STREAM, FIRST)
    children = [s["ShardId"] for s in kinesis.shards(STREAM)][1:]
    for child in children:
        put_to(kinesis, child, *numbered(11, 20))
    kinesis.merge(STREAM, *children)
    kinesis.put(STREAM, *numbered(21, 30))
    query = start_query(kinesis)

    query.once()
    shards = [row.shard for row in query.rows]
    assert len(shards) == 40
    assert shards[:10] == [FIRST] * 10
    assert set(shards[10:30]) == set(children)
    assert len(set(shards[30:])) == 1


def test_an_agent_goes_on_where_it_ended(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """The records of the second at which a batch ended are neither lost nor repeated."""
    for n in range(1, 31):
        kinesis.put(STREAM, b"%d" % n)
    query = start_query(kinesis)
    query.once()
    for n in range(31, 61):
        kinesis.put(STREAM, b"%d" % n)
    query.read_until(60)
    assert query.data == numbered(1, 60)


def run_then_lose_a_shard(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """A run has read records 1 to 3; 4 and 5 are gone with their shard, 6 and 7 in its children."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.once()
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(6, 7))
    kinesis.forget_shard(STREAM, FIRST)


def test_a_shard_that_is_gone_is_told(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """F21: as with every other trigger."""
    run_then_lose_a_shard(kinesis, start_query)
    with pytest.raises(DataLossError, match=FIRST):
        start_query(kinesis).once()


def test_with_the_users_leave_the_rest_is_read(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: with a warning."""
    run_then_lose_a_shard(kinesis, start_query)
    with caplog.at_level(logging.WARNING):
        query = start_query(kinesis, failOnDataLoss="false")
        query.once()
    assert sorted(query.data, key=int) == [*numbered(1, 3), *numbered(6, 7)]
    assert FIRST in caplog.text


def test_records_that_expired_between_two_runs_are_told(
    serve: Serve, start_query: StartQuery
) -> None:
    """F21: also where Kinesis starts at the oldest record without a word."""
    kinesis = serve(Settings(expired_position="oldest"))
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.clock.advance(25 * 3600)  # type: ignore[attr-defined]
    kinesis.put(STREAM, *numbered(6, 7))

    with pytest.raises(DataLossError, match="may have expired"):
        start_query(kinesis).once()
