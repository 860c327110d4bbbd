"""Records of one key stay in order across splits and merges, whichever parent is slow (F31)."""

from __future__ import annotations

from collections import defaultdict

import orjson
import pytest

from kinesis_ds.testing import CloseStream, Fault, KinesisServer, Pause, Raise, Refuse, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import STREAM, starts, subscribe_calls
from tests.support.micro_batches import MicroBatches
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

KEYS = [str(k) for k in range(12)]


class Writer:
    """Puts a record for every key, again and again; each tells its key and its turn."""

    def __init__(self, kinesis: KinesisServer) -> None:
        self._kinesis = kinesis
        self.turns = 0

    def put(self, turns: int = 2) -> int:
        """Records of so many turns; returns how many there are in all."""
        for turn in range(self.turns, self.turns + turns):
            self._kinesis.put(
                STREAM,
                *[b"%s %d" % (key.encode(), turn) for key in KEYS],
                partition_key=lambda data: data.split()[0].decode(),
            )
        self.turns += turns
        return self.turns * len(KEYS)


def assert_in_order(kinesis: KinesisServer, query: MicroBatches, turns: int) -> None:
    """Every record once, the turns of a key in order, and no shard in a batch with a parent of it:
    the tasks of a batch run in any order.
    """
    by_key = defaultdict(list)
    for row in query.rows:
        by_key[row.key].append(int(row.data.split()[1]))
    assert dict(by_key) == {key: list(range(turns)) for key in KEYS}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for batch in sorted(int(p.name) for p in (query.folder / "out").iterdir()):
        for shard_id, *_ in orjson.loads((query.folder / "out" / str(batch)).read_bytes()):
            first.setdefault(shard_id, batch)
            last[shard_id] = batch
    for shard in kinesis.shards(STREAM):
        for name in ("ParentShardId", "AdjacentParentShardId"):
            parent = shard.get(name)
            if parent in last and shard["ShardId"] in first:
                assert last[parent] < first[shard["ShardId"]]


def generations(kinesis: KinesisServer, writer: Writer) -> int:
    """Four shards, merged to two and to one, split again, with records in between."""
    count = writer.put()
    for shards in (2, 1, 2):
        kinesis.scale(STREAM, shards)
        count = writer.put()
    return count


def test_generations_from_the_oldest_record_on(serve: Serve, start_query: StartQuery) -> None:
    """F31: everything happened before the query began; each child starts at its oldest record."""
    kinesis = serve(shards=4)
    writer = Writer(kinesis)
    count = generations(kinesis, writer)
    query = start_query(kinesis)

    query.read_until(count)
    assert_in_order(kinesis, query, writer.turns)
    for shard in kinesis.shards(STREAM):
        opened = [c for c in subscribe_calls(kinesis, shard["ShardId"]) if c.outcome == "ok"]
        assert starts(opened)[0] == "TRIM_HORIZON"


def test_generations_while_the_query_runs(serve: Serve, start_query: StartQuery) -> None:
    """F31: splits and merges under its feet, one after the other."""
    kinesis = serve(shards=2)
    writer = Writer(kinesis)
    query = start_query(kinesis, shardFetchInterval="2s")
    for shards in (4, 2, 1):
        query.read_until(writer.put())
        kinesis.scale(STREAM, shards)
        query.read_until(writer.put())

    assert_in_order(kinesis, query, writer.turns)


def test_generations_that_wait_for_a_long_batch_are_planned_one_by_one(
    serve: Serve, start_query: StartQuery
) -> None:
    """F31: while Spark is busy, parents end and their children are received as well."""
    kinesis = serve(shards=2)
    writer = Writer(kinesis)
    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(writer.put())
    kinesis.scale(STREAM, 4)
    writer.put()
    kinesis.scale(STREAM, 2)
    count = writer.put()

    def received() -> int:
        shards = query.coordinator.statistics()["shards"].values()
        return sum(int(shard["records"]) for shard in shards)

    eventually(lambda: received() == count, "all generations received")
    query.read_until(count)
    assert_in_order(kinesis, query, writer.turns)


@pytest.mark.parametrize(
    ("slow", "fault"),
    [
        pytest.param(0, Fault(Pause(20)), id="parent slow"),
        pytest.param(
            1, Fault(Refuse("InternalFailure", status=500), times=3), id="adjacent parent refused"
        ),
        pytest.param(0, Fault(Raise("InternalFailureException"), times=2), id="parent failing"),
        pytest.param(1, Fault(CloseStream(), times=2), id="adjacent parent closing"),
    ],
)
def test_a_merged_shard_waits_for_the_slower_parent(
    serve: Serve, start_query: StartQuery, fault: Fault, slow: int
) -> None:
    """F31: one parent is read at once, the other comes late; their child has records of both."""
    kinesis = serve(Settings(event_bytes=20), shards=2)
    writer = Writer(kinesis)
    writer.put()
    parents = kinesis.open_shards(STREAM)
    (child,) = kinesis.merge(STREAM, *parents)
    count = writer.put()
    kinesis.add_faults(
        Fault(fault.action, shard=parents[slow], event=fault.event, times=fault.times)
    )
    query = start_query(kinesis, shardFetchInterval="2s")
    quick = parents[1 - slow]

    def quick_one_is_read() -> bool:
        want = [r for r in kinesis.records(STREAM) if r.shard_id == quick]
        return len([row for row in query.rows if row.shard == quick]) == len(want)

    query.run_until(quick_one_is_read, "the quicker parent")
    query.read_until(count)
    assert kinesis.struck()
    assert_in_order(kinesis, query, writer.turns)
    begun = subscribe_calls(kinesis, child)[0].at
    assert all(call.at < begun for call in subscribe_calls(kinesis, parents[slow]))


def test_a_restart_between_the_parents_keeps_the_child_waiting(
    serve: Serve, start_query: StartQuery
) -> None:
    """F31: one parent ended before the restart, the other is still to be read after it."""
    kinesis = serve(shards=2)
    writer = Writer(kinesis)
    writer.put()
    slow, quick = kinesis.open_shards(STREAM)
    kinesis.merge(STREAM, slow, quick)
    count = writer.put()
    held = Fault(Refuse("InternalFailure", status=500), shard=slow, times=None)
    kinesis.add_faults(held)
    query = start_query(kinesis, shardFetchInterval="2s")
    quick_rows = len([r for r in kinesis.records(STREAM) if r.shard_id == quick])
    query.run_until(lambda: len(query.rows) == quick_rows, "the quicker parent")
    while query.step():
        pass
    query.close()
    kinesis.clear_faults()

    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(count)
    assert_in_order(kinesis, query, writer.turns)
