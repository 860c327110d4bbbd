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


def pages(kinesis: KinesisServer, *, first: bool) -> int:
    """How many first, or further, pages of listings of all shards were asked for."""
    return sum(
        "NextToken" not in call.request if first else "NextToken" in call.request
        for call in kinesis.calls.calls("ListShards")
        if "ExclusiveStartShardId" not in call.request
    )


def test_a_reshard_between_two_pages_loses_no_shard(serve: Serve, start_query: StartQuery) -> None:
    """F34: while the second page is awaited, a shard of the first page and one of the second are
    split; records of before, between and behind all come. When the query looks the stream up, and
    when it lists all shards while it runs.
    """
    kinesis = aged(serve)
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    query.close()
    written = 0

    def put(word: bytes) -> None:
        nonlocal written
        for shard in kinesis.open_shards(STREAM):
            put_to(kinesis, shard, b"%s %s" % (word, shard.encode()))
            written += 1

    def reshard_between_pages() -> None:
        """As soon as a second page is asked for, which then takes its time."""
        before = pages(kinesis, first=False)
        kinesis.add_faults(Fault(Delay(10), "ListShards", times=None))
        kinesis.wait_for(lambda: pages(kinesis, first=False) > before, what="a second page")
        ids = sorted(kinesis.open_shards(STREAM))
        kinesis.split(STREAM, ids[0])
        kinesis.split(STREAM, ids[-1])
        put(b"behind")
        kinesis.clear_faults()

    ids = sorted(kinesis.open_shards(STREAM))
    assert "shardId-000000000999" in ids
    assert "shardId-000000001000" in ids
    put(b"before")
    query = start_query(kinesis, shardFetchInterval="1s")
    meanwhile = threading.Thread(target=reshard_between_pages)
    meanwhile.start()
    try:
        query.run_until(lambda: not meanwhile.is_alive(), "a reshard while it looks the stream up")
    finally:
        meanwhile.join()
    query.read_until(written)
    reshard_between_pages()

    query.read_until(written)
    assert sorted(query.data) == sorted(record.data for record in kinesis.records(STREAM))
    assert {row.shard for row in query.rows} >= set(kinesis.open_shards(STREAM))


def test_a_token_that_is_too_old_begins_the_listing_again(
    serve: Serve, start_query: StartQuery
) -> None:
    """F34: half a list is no list."""
    kinesis = aged(serve)
    kinesis.add_faults(
        *[Fault(Refuse("ExpiredNextTokenException"), "ListShards", call=n) for n in (2, 4)]
    )
    query = start_query(kinesis, initialPosition="latest")
    assert query.step()
    assert len(kinesis.struck()) == 2
    assert pages(kinesis, first=True) == 3

    for shard in kinesis.open_shards(STREAM):
        put_to(kinesis, shard, b"one")
    assert query.read_until(16) == [b"one"] * 16


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
    """F34: a shard that was read to its end, left out of a listing of all shards, and back in the
    next one.
    """
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.split(STREAM, FIRST)
    children = kinesis.open_shards(STREAM)
    for shard in children:
        put_to(kinesis, shard, b"child")
    query = start_query(kinesis, shardFetchInterval="1s")
    query.read_until(5)
    without = [s for s in kinesis.shards(STREAM) if s["ShardId"] != FIRST]
    answer = AnswerWith(orjson.dumps({"Shards": without}))
    kinesis.add_faults(Fault(answer, "ListShards", times=None))

    def listed_in_full(times: int) -> None:
        before = pages(kinesis, first=True)
        kinesis.wait_for(
            lambda: pages(kinesis, first=True) >= before + times, what="listings of all shards"
        )

    listed_in_full(1)
    listings = len(kinesis.calls.calls("ListShards"))
    kinesis.wait_for(
        lambda: len(kinesis.calls.calls("ListShards")) > listings, what="it is taken in"
    )
    put_to(kinesis, children[0], b"meanwhile")
    query.read_until(6)
    if restart:
        query.close()
        query = start_query(kinesis, shardFetchInterval="1s")
        query.step()
    kinesis.clear_faults()
    listed_in_full(2)
    put_to(kinesis, children[1], b"later")

    expected = [*numbered(1, 3), b"child", b"child", b"meanwhile", b"later"]
    assert query.read_until(7) == expected
    while query.step():
        pass
    assert query.data == expected
