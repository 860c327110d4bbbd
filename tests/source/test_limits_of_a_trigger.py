"""``maxRecordsPerTrigger``, ``maxBytesPerTrigger``: kept in every batch, fair, never stuck."""

from __future__ import annotations

from collections import Counter

from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.micro_batches import MicroBatches
from tests.support.polling import eventually

# Much more than the query takes in a batch.
LOAD = 100


def load(kinesis: KinesisServer, *counts: int) -> None:
    for i, count in enumerate(counts):
        put_to(kinesis, f"shardId-{i:012}", *numbered(1, count))


def buffered(query: MicroBatches, count: int) -> None:
    """Wait until so much is held, so that limits and nothing else make the batches small."""
    query.step()  # pins the start

    def held() -> bool:
        query.coordinator.latest(query.last_offset())  # the first call begins to read
        return bool(query.coordinator.statistics()["pool"]["used_records"] >= count)

    eventually(held, f"{count} records held")


def test_no_batch_has_more_records_than_the_limit(serve: Serve, start_query: StartQuery) -> None:
    """And together they have all, each once, in order."""
    kinesis = serve(shards=2)
    load(kinesis, LOAD, LOAD)
    query = start_query(kinesis, maxRecordsPerTrigger="30")

    query.read_until(2 * LOAD)
    assert max(len(rows) for rows in query.batches()) <= 30
    for shard in (FIRST, SECOND):
        assert [row.data for row in query.rows if row.shard == shard] == numbered(1, LOAD)


def test_no_batch_has_more_bytes_than_the_limit(serve: Serve, start_query: StartQuery) -> None:
    """Data and partition keys count."""
    kinesis = serve(shards=2)
    load(kinesis, LOAD, LOAD)
    query = start_query(kinesis, maxBytesPerTrigger="100b")

    query.read_until(2 * LOAD)
    for rows in query.batches():
        assert sum(len(row.data) + len(row.key or "") for row in rows) <= 100


def test_shards_have_equal_parts(serve: Serve, start_query: StartQuery) -> None:
    """A hot shard leaves the others their part, and takes what they do not need."""
    kinesis = serve(shards=3)
    load(kinesis, LOAD, LOAD, 5)
    query = start_query(kinesis, maxRecordsPerTrigger="35")
    buffered(query, 2 * LOAD + 5)

    query.step()
    taken = Counter(row.shard for row in query.batches()[-1])
    assert taken == {FIRST: 15, SECOND: 15, "shardId-000000000002": 5}


def test_where_not_all_can_have_some_the_oldest_come_first(
    serve: Serve, start_query: StartQuery
) -> None:
    """With one record a batch, records come in the order in which they arrived."""
    kinesis = serve(shards=3)
    for n in range(9):
        put_to(kinesis, f"shardId-{n % 3:012}", b"%d" % n)
    query = start_query(kinesis, maxRecordsPerTrigger="1")
    buffered(query, 9)

    assert query.read_until(9) == [b"%d" % n for n in range(9)]
    assert {len(rows) for rows in query.batches()} == {0, 1}


def test_a_record_larger_than_the_limit_has_its_turn(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """Alone, and reading goes on behind it."""
    kinesis.put(STREAM, b"a", b"b" * 5000, b"c")
    query = start_query(kinesis, maxBytesPerTrigger="100b")

    assert query.read_until(3) == [b"a", b"b" * 5000, b"c"]
    assert [b"b" * 5000] in [[row.data for row in rows] for rows in query.batches()]


def test_a_batch_that_was_cut_short_is_the_same_when_run_again(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """The end of a batch is in its offset, wherever the limit put it."""
    load(kinesis, LOAD)
    query = start_query(kinesis, maxRecordsPerTrigger="7")
    query.read_until(21)
    last = max(int(p.name) for p in (query.folder / "offsets").iterdir())
    (query.folder / "commits" / str(last)).unlink()
    query.close()

    again = start_query(kinesis, maxRecordsPerTrigger="50")
    assert again.read_until(LOAD) == numbered(1, LOAD)
    assert again.replayed == 1
