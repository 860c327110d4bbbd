"""Shards that come and go while they are being listed, on any page, are all read (F34)."""

from __future__ import annotations

import threading

import orjson
import pytest

from kinesis_ds.testing import AnswerWith, Delay, Fault, KinesisServer, Refuse
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, STREAM, numbered, put_to

pytestmark = pytest.mark.fault


def aged(serve: Serve) -> KinesisServer:
    """A stream scaled down from 512 shards to 16: 1,008 are listed, 1,000 of them on page one."""
    kinesis = serve(shards=512)
    for shards in (256, 128, 64, 32, 16):
        kinesis.scale(STREAM, shards)
    assert len(kinesis.open_shards(STREAM)) == 16
    return kinesis


def test_a_reshard_between_two_pages_loses_no_shard(serve: Serve, start_query: StartQuery) -> None:
    """F34: while the second page is awaited, a shard of the first page and one of the second are
    split; records of before, between and behind all come.
    """
    kinesis = aged(serve)
    query = start_query(kinesis, initialPosition="latest", shardFetchInterval="2s")
    assert query.step()
    shards = kinesis.open_shards(STREAM)
    ids = sorted(shards)
    assert "shardId-000000000999" in ids
    assert "shardId-000000001000" in ids
    for shard in shards:
        put_to(kinesis, shard, b"before %s" % shard.encode())
    query.read_until(16)

    kinesis.add_faults(Fault(Delay(20), "ListShards", call=2))
    kinesis.wait_for(kinesis.struck, what="a second page that takes its time")
    children = kinesis.split(STREAM, ids[0]) + kinesis.split(STREAM, ids[-1])
    for shard in kinesis.open_shards(STREAM):
        put_to(kinesis, shard, b"behind %s" % shard.encode())

    query.read_until(16 + 18)
    assert sorted(query.data[16:]) == sorted(
        b"behind %s" % shard.encode() for shard in kinesis.open_shards(STREAM)
    )
    assert set(children) <= {row.shard for row in query.rows}


def test_reshards_while_the_query_is_down(serve: Serve, start_query: StartQuery) -> None:
    """F34: three generations, and all that was written to each of them."""
    kinesis = serve(shards=2)
    written = 0

    def put() -> None:
        nonlocal written
        for shard in kinesis.open_shards(STREAM):
            put_to(kinesis, shard, *numbered(written + 1, written + 2))
            written += 2

    put()
    query = start_query(kinesis)
    query.read_until(written)
    query.close()
    for shards in (4, 2, 3):
        put()
        kinesis.scale(STREAM, shards)
    put()

    query = start_query(kinesis)
    assert sorted(query.read_until(written)) == sorted(numbered(1, written))


def test_a_reshard_while_the_first_listing_is_awaited(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F34: the stream is not the one any more that the query began to look up."""
    kinesis.add_faults(
        Fault(Delay(10), "ListShards", call=1),
        Fault(Delay(10, performed=True), "ListShards", call=2),
    )
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, shardFetchInterval="2s")
    reshards: list[list[str]] = []

    def reshard(n: int) -> None:
        kinesis.wait_for(lambda: len(kinesis.struck()) == n, what="a listing that takes its time")
        reshards.append(kinesis.split(STREAM, kinesis.open_shards(STREAM)[0]))

    meanwhile = threading.Thread(target=lambda: [reshard(n) for n in (1, 2)])
    meanwhile.start()
    try:
        query.read_until(3)
    finally:
        meanwhile.join()
    for n, shard in enumerate(kinesis.open_shards(STREAM), 4):
        put_to(kinesis, shard, *numbered(n, n))

    assert sorted(query.read_until(6)) == numbered(1, 6)
    assert len(reshards) == 2


def test_listings_that_fail_delay_and_lose_nothing(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F34: throttled and failing, the list of shards is asked for again."""
    query = start_query(kinesis, shardFetchInterval="2s")
    kinesis.put(STREAM, *numbered(1, 2))
    query.read_until(2)
    kinesis.add_faults(
        Fault(Refuse("LimitExceededException"), "ListShards", times=8),
        Fault(Refuse("InternalFailure", status=500), "ListShards", times=8),
    )
    kinesis.split(STREAM, FIRST)
    for shard in kinesis.open_shards(STREAM):
        put_to(kinesis, shard, b"child")

    assert query.read_until(4) == [*numbered(1, 2), b"child", b"child"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_shard_missing_from_one_listing_is_not_read_twice(
    kinesis: KinesisServer, start_query: StartQuery, restart: bool
) -> None:
    """F34: a shard that was read to its end, left out for once, and back in the next listing."""
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.split(STREAM, FIRST)
    children = kinesis.open_shards(STREAM)
    for shard in children:
        put_to(kinesis, shard, b"child")
    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(5)
    without = [s for s in kinesis.shards(STREAM) if s["ShardId"] != FIRST]
    answer = AnswerWith(orjson.dumps({"Shards": without}))
    kinesis.add_faults(Fault(answer, "ListShards", times=2))
    kinesis.wait_for(lambda: len(kinesis.struck()) == 2, what="two listings without the shard")
    put_to(kinesis, children[0], b"meanwhile")
    query.read_until(6)
    if restart:
        query.close()
        query = start_query(kinesis, shardFetchInterval="2s")
        query.step()
    listings = len(kinesis.calls.calls("ListShards"))
    kinesis.wait_for(
        lambda: len(kinesis.calls.calls("ListShards")) >= listings + 2, what="the shard is back"
    )
    put_to(kinesis, children[1], b"later")

    expected = [*numbered(1, 3), b"child", b"child", b"meanwhile", b"later"]
    assert query.read_until(7) == expected
    while query.step():
        pass
    assert query.data == expected
