"""``Trigger.AvailableNow``: all that was there at its start, and then it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kinesis_ds.reader.open_stream import OpenStream
from kinesis_ds.testing import KinesisServer, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.micro_batches import MicroBatches
from tests.support.polling import eventually

MODES = ["efo", "polling"]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_reads_what_is_there_and_ends(serve: Serve, start_query: StartQuery, mode: str) -> None:
    """In as many batches as it takes; shards without a record do not hold it up."""
    kinesis = serve(shards=3)
    put_to(kinesis, FIRST, *numbered(1, 50))
    put_to(kinesis, SECOND, *numbered(51, 60))
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="20")

    query.available_now()
    assert sorted(query.data, key=int) == numbered(1, 60)
    assert max(len(rows) for rows in query.batches()) <= 20


def test_an_empty_stream_ends_it_at_once(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """One batch, which pins the start; the next run has none."""
    query = start_query(kinesis, consumerMode=mode)
    assert query.available_now() == 1
    query.close()
    assert start_query(kinesis, consumerMode=mode).available_now() == 0


def test_it_ends_while_producers_go_on(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """What is written before its start is in; it does not run after what is written later."""
    kinesis.put(STREAM, *numbered(1, 20))
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="5")
    stop = threading.Event()
    written = 20

    def produce() -> None:
        nonlocal written
        while not stop.wait(0.002):
            kinesis.put(STREAM, b"%d" % (written + 1))
            written += 1

    producer = threading.Thread(target=produce)
    query.coordinator.prepare_available_now()  # type: ignore[attr-defined]
    at_start = written
    producer.start()
    try:
        eventually(lambda: written > at_start + 20, "records written after the start")
        while query.step():
            pass
        assert not stop.is_set()
    finally:
        stop.set()
        producer.join()
    assert query.data == numbered(1, at_start)


def test_a_run_goes_on_where_the_one_before_ended(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """Run after run, as a scheduler does: nothing twice, nothing left out."""
    for run in range(3):
        kinesis.put(STREAM, *numbered(run * 10 + 1, run * 10 + 10))
        query = start_query(kinesis, consumerMode=mode)
        query.available_now()
        query.close()
        assert query.data == numbered(1, run * 10 + 10)


def test_a_run_that_was_killed_is_finished_by_the_next(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """The batch that was under way is run again alike; the new run has a target of its own."""
    kinesis.put(STREAM, *numbered(1, 30))
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="7")
    query.coordinator.prepare_available_now()  # type: ignore[attr-defined]
    for _ in range(3):
        query.step()
    last = max(int(p.name) for p in (query.folder / "offsets").iterdir())
    (query.folder / "commits" / str(last)).unlink()
    query.close()
    kinesis.put(STREAM, *numbered(31, 35))

    again = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="7")
    again.available_now()
    assert again.data == numbered(1, 35)
    assert again.replayed == 1


def test_generations_of_shards_are_read_to_the_tip(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """Through closed parents and grandparents to the shards of now, parents first."""
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 10))
    kinesis.split(STREAM, FIRST)
    children = [s["ShardId"] for s in kinesis.shards(STREAM)][1:]
    for i, child in enumerate(children):
        put_to(kinesis, child, *numbered(11 + 10 * i, 20 + 10 * i))
    kinesis.merge(STREAM, *children)
    kinesis.put(STREAM, *numbered(31, 40))
    query = start_query(kinesis, consumerMode=mode)

    query.available_now()
    assert sorted(query.data, key=int) == numbered(1, 40)
    order = [row.shard for row in query.rows]
    assert order[:10] == [FIRST] * 10
    assert len(set(order[-10:])) == 1
    assert set(order[10:30]) == set(children)


def test_a_reshard_while_it_runs_does_not_keep_it(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """The children of a shard that closed after the start hold nothing that it wants."""
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 10))
    query = start_query(kinesis, consumerMode=mode)
    query.coordinator.prepare_available_now()  # type: ignore[attr-defined]
    kinesis.put(STREAM, *numbered(11, 12))
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(13, 20))

    while query.step():
        pass
    assert query.data == numbered(1, 10)
    query.close()
    again = start_query(kinesis, consumerMode=mode)
    again.available_now()
    assert sorted(again.data, key=int) == numbered(1, 20)


def test_limits_hold(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """Also where a batch is not filled up."""
    kinesis.put(STREAM, *numbered(1, 10))
    query = start_query(kinesis, maxRecordsPerTrigger="4")
    query.available_now()
    assert [len(rows) for rows in query.batches() if rows] == [4, 4, 2]


def test_a_clock_that_differs_changes_nothing(serve: Serve, start_query: StartQuery) -> None:
    """F20: the service's clock decides what is in, not the host's."""
    kinesis = serve(Settings())
    kinesis.put(STREAM, *numbered(1, 5))
    query = start_query(kinesis)
    query.coordinator._source._clock = _Ahead(kinesis.clock, 3600)  # type: ignore[attr-defined]
    query.available_now()
    assert query.data == numbered(1, 5)


class _Ahead:
    """A host whose clock is wrong."""

    def __init__(self, clock: object, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def monotonic(self) -> float:
        return float(self._clock.monotonic())  # type: ignore[attr-defined]

    def wall(self) -> float:
        return float(self._clock.wall()) + self._seconds  # type: ignore[attr-defined]


def split_unseen(kinesis: KinesisServer, start_query: StartQuery, mode: str) -> MicroBatches:
    """A query that knows one shard, which has been split since: 15 records in all three."""
    kinesis.put(STREAM, *numbered(1, 5))
    query = start_query(kinesis, consumerMode=mode, shardFetchInterval="1h")
    query.coordinator._source.streams()  # type: ignore[attr-defined]
    kinesis.split(STREAM, FIRST)
    for i, child in enumerate([s["ShardId"] for s in kinesis.shards(STREAM)][1:]):
        put_to(kinesis, child, *numbered(6 + 5 * i, 10 + 5 * i))
    return query


def test_a_split_just_before_the_start_is_not_missed(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """The shards were listed before it; they are listed again before the query ends."""
    query = split_unseen(kinesis, start_query, mode)

    query.available_now()
    assert sorted(query.data, key=int) == numbered(1, 15)


def test_shards_that_become_known_while_the_end_is_checked_are_read(
    kinesis: KinesisServer,
    start_query: StartQuery,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that was known was read; the children are known a moment before the stream is asked."""
    query = split_unseen(kinesis, start_query, mode)

    ask = OpenStream.knows_all_shards

    async def learn_and_ask(stream: OpenStream) -> bool:
        discovery = stream._discovery
        while len(discovery.listed) < 3:
            discovery.look_soon()
            await asyncio.sleep(0.01)
        return await ask(stream)

    monkeypatch.setattr(OpenStream, "knows_all_shards", learn_and_ask)
    query.available_now()
    assert sorted(query.data, key=int) == numbered(1, 15)
