"""Closed shards are listed while they may hold records, and longer than a reader needs (F31)."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import SHARD_END, Position
from kinesis_ds.testing import Call, Fault, KinesisServer, Refuse
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


class Numbers:
    """Puts records that tell their number, three into a shard."""

    def __init__(self, kinesis: KinesisServer) -> None:
        self._kinesis = kinesis
        self.count = 0

    def put(self, *shards: str) -> int:
        """Into these shards, by default all that are open; how many there are in all."""
        for shard in shards or self._kinesis.open_shards(STREAM):
            put_to(self._kinesis, shard, *numbered(self.count + 1, self.count + 3))
            self.count += 3
        return self.count


def assert_all_in_order(kinesis: KinesisServer, query: MicroBatches, count: int) -> None:
    """Every record once, in the order of its shard, and parents before their children."""
    rows = query.rows
    assert sorted(row.data for row in rows) == sorted(numbered(1, count))
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.shard, []).append(place)
    for shard in kinesis.shards(STREAM):
        of_shard = [row.number for row in rows if row.shard == shard["ShardId"]]
        assert of_shard == sorted(of_shard)
        for name in ("ParentShardId", "AdjacentParentShardId"):
            if shard.get(name) in places and shard["ShardId"] in places:
                assert max(places[shard[name]]) < min(places[shard["ShardId"]])


def positions(query: MicroBatches) -> dict[str, Position]:
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    return dict(next(iter(offset.streams.values())).shards)


def listings(kinesis: KinesisServer, *, everything: bool = False) -> list[Call]:
    found = kinesis.calls.calls("ListShards")
    return [c for c in found if not everything or "ExclusiveStartShardId" not in c.request]


def await_listings(kinesis: KinesisServer, count: int, *, everything: bool = False) -> None:
    before = len(listings(kinesis, everything=everything))
    kinesis.wait_for(
        lambda: len(listings(kinesis, everything=everything)) >= before + count, what="listings"
    )


def lopsided(kinesis: KinesisServer, numbers: Numbers) -> None:
    """Shards whose parents differ in age, and of which some are empty.

    An original shard is merged with a child of the other; of the result's grandchildren one is
    merged with the other child, which was there all the time.
    """
    numbers.put()
    lower, upper = kinesis.split(STREAM, FIRST)
    numbers.put(lower)
    (merged,) = kinesis.merge(STREAM, upper, SECOND)
    numbers.put()
    child, _ = kinesis.split(STREAM, merged)
    grandchild, _ = kinesis.split(STREAM, child)
    numbers.put()
    kinesis.merge(STREAM, lower, grandchild)
    numbers.put()


def test_parents_of_any_age_from_the_oldest_record_on(
    serve: Serve, start_query: StartQuery
) -> None:
    """F31: all of it has happened when the query begins."""
    kinesis = serve(shards=2)
    numbers = Numbers(kinesis)
    lopsided(kinesis, numbers)
    query = start_query(kinesis)

    query.read_until(numbers.count)
    assert_all_in_order(kinesis, query, numbers.count)


@pytest.mark.parametrize("read", [FIRST, SECOND, None])
def test_parents_of_any_age_while_the_query_is_down(
    serve: Serve, start_query: StartQuery, read: str | None
) -> None:
    """F31: one of the first shards was read before, or both, and neither further than there."""
    kinesis = serve(shards=2)
    numbers = Numbers(kinesis)
    numbers.put()
    unread = {FIRST: SECOND, SECOND: FIRST}.get(read or "")
    if unread is not None:
        kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), shard=unread, times=None))
    query = start_query(kinesis)
    query.read_until(3 if unread else 6)
    query.close()
    kinesis.clear_faults()
    lopsided(kinesis, numbers)

    query = start_query(kinesis)
    query.read_until(numbers.count)
    assert_all_in_order(kinesis, query, numbers.count)


def test_parents_of_any_age_while_the_query_runs(serve: Serve, start_query: StartQuery) -> None:
    """F31: faster than it is discovered."""
    kinesis = serve(shards=2)
    numbers = Numbers(kinesis)
    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(numbers.put())
    lopsided(kinesis, numbers)

    query.read_until(numbers.count)
    assert_all_in_order(kinesis, query, numbers.count)


def test_children_beside_their_parents_where_the_user_says_so(
    serve: Serve, start_query: StartQuery
) -> None:
    """F31, the other way round: parentsFirst=false does not wait for a parent that cannot be read;
    later it comes all the same.
    """
    kinesis = serve()
    numbers = Numbers(kinesis)
    numbers.put()
    kinesis.split(STREAM, FIRST)
    numbers.put()
    kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), shard=FIRST, times=None))
    query = start_query(kinesis, parentsFirst="false")
    assert sorted(query.read_until(6)) == numbered(4, 9)
    kinesis.clear_faults()

    assert sorted(query.read_until(9)) == numbered(1, 9)
    query.close()
    kinesis.split(STREAM, kinesis.open_shards(STREAM)[0])
    count = numbers.put()
    query = start_query(kinesis, parentsFirst="false")
    query.read_until(count)
    assert sorted(query.data, key=int) == numbered(1, count)


def test_no_batch_comes_of_closed_shards(serve: Serve, start_query: StartQuery) -> None:
    """Closed shards that were read to their end are listed for a day or more, and make no batch,
    neither while the query goes on nor when it comes back.
    """
    kinesis = serve(shards=2)
    numbers = Numbers(kinesis)
    for shards in (4, 2, 1):
        numbers.put()
        kinesis.scale(STREAM, shards)
    for _ in range(2):
        count = numbers.put()
        query = start_query(kinesis, shardFetchInterval="1s")
        query.read_until(count)
        query.run_until(lambda q=query: not q.step(), "everything is logged")  # type: ignore[misc]
        await_listings(kinesis, 5)
        assert not query.step()
        query.close()


def test_tombstones_stay_until_the_stream_forgets_the_shard(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F31: the checkpoint remembers a shard that was read to its end for as long as it, or a child
    of it, is listed, and not longer; what reads has forgotten it before. None is read twice.
    """
    numbers = Numbers(kinesis)
    numbers.put()
    query = start_query(kinesis, shardFetchInterval="1s")
    children = kinesis.split(STREAM, FIRST)
    query.read_until(numbers.put())
    for child in children:
        kinesis.split(STREAM, child)
    query.read_until(numbers.put())
    ended = {FIRST, *children}

    def tombstones() -> set[str]:
        return {shard for shard, at in positions(query).items() if at == SHARD_END}

    def look() -> set[str]:
        """The tombstones of the first offset after all shards were listed."""
        await_listings(kinesis, 1)  # one that is under way may hold what is gone by now
        await_listings(kinesis, 1, everything=True)
        await_listings(kinesis, 1)  # and this one has been taken in
        query.read_until(numbers.put())
        return tombstones()

    assert look() == ended, "they are listed"
    statistics = query.coordinator.statistics()
    assert statistics["ended_shards"] == len(ended)
    assert statistics["shards"].keys() == set(kinesis.open_shards(STREAM))
    kinesis.forget_shard(STREAM, FIRST)
    assert look() == ended, "its children are listed"
    for child in children:
        kinesis.forget_shard(STREAM, child)
    assert look() == set(children), "their children are listed"
    assert_all_in_order(kinesis, query, numbers.count)


def test_at_rest_a_look_asks_for_new_shards_only(serve: Serve, start_query: StartQuery) -> None:
    """A thousand shards, or ten: one call an interval, with an empty answer; all of them now and
    then.
    """
    kinesis = serve(shards=4)
    last = max(kinesis.open_shards(STREAM))
    query = start_query(kinesis, shardFetchInterval="2s")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    await_listings(kinesis, 1)
    begun = len(listings(kinesis))
    await_listings(kinesis, 1, everything=True)

    *rest, everything = listings(kinesis)[begun:]
    assert {call.request.get("ExclusiveStartShardId") for call in rest} == {last}
    assert len(rest) >= 30
    assert "NextToken" not in everything.request
