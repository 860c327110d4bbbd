"""Windows in which another connector loses records or stalls when shards are split or merged, and
this one does not (W1, W7, W8, W11).

Their numbers are those of docs/reference/comparison.md, which says what happens elsewhere.
"""

from __future__ import annotations

import pytest

from kinesis_ds.errors import DataLossError
from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.plan.position import ShardEnd
from kinesis_ds.testing import Alter, Delay, Fault, KinesisServer
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, STREAM, numbered, put_to
from tests.support.micro_batches import MicroBatches

# So often, in seconds of a clock that runs faster, are the shards listed here.
OFTEN = {"shardFetchInterval": "1s"}
LARGE = 100_000
# A position that moved over silence is logged this often, and costs an empty batch then.
SILENCE_S = 600


@pytest.fixture(params=["efo", "polling"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def listed_again(kinesis: KinesisServer, times: int = 2) -> None:
    """Wait until the query has asked so often again which shards there are."""
    before = len(kinesis.calls.calls("ListShards"))
    kinesis.wait_for(
        lambda: len(kinesis.calls.calls("ListShards")) >= before + times, what="the shards listed"
    )


def ended(query: MicroBatches) -> set[str]:
    """The shards that the checkpoint says were read to their end."""
    offset = query.last_offset()
    assert isinstance(offset, SourceOffset)
    (stream,) = offset.streams.values()
    return {shard for shard, position in stream.shards.items() if isinstance(position, ShardEnd)}


# --- W1: a closed shard counts as read ----------------------------------------------------------


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_w1_the_unread_tail_of_a_closed_shard_is_read(
    kinesis: KinesisServer, start_query: StartQuery, mode: str, down: bool
) -> None:
    """W1: the shard is split, and listed as closed, while the query has most of it before it."""
    kinesis.put(STREAM, *numbered(1, 30, LARGE))
    options = {"consumerMode": mode, "fetchBufferSize": "1mb", "maxRecordsPerTrigger": "2"} | OFTEN
    query = start_query(kinesis, **options)
    query.read_until(4)
    if down:
        query.close()
    children = kinesis.split(STREAM, FIRST)
    for n, child in enumerate(children):
        put_to(kinesis, child, *numbered(31 + 5 * n, 35 + 5 * n))
    if down:
        query = start_query(kinesis, **options)
        query.step()
    else:
        listed_again(kinesis)
    assert len(query.data) < 20

    data = query.read_until(40)
    assert data[:30] == numbered(1, 30, LARGE)
    assert sorted(data[30:]) == numbered(31, 40)
    assert FIRST in ended(query)


@pytest.mark.parametrize("start", ["trim_horizon", "at_timestamp"])
def test_w1_a_new_query_reads_shards_that_are_closed_already(
    kinesis: KinesisServer, start_query: StartQuery, mode: str, start: str
) -> None:
    """W1: two generations are closed when the query begins; it begins before all of them."""
    began = f"at_timestamp {kinesis.clock.wall() - 1:.3f}" if start == "at_timestamp" else start
    kinesis.put(STREAM, *numbered(1, 5))
    children = kinesis.split(STREAM, FIRST)
    for n, child in enumerate(children):
        put_to(kinesis, child, *numbered(6 + 5 * n, 10 + 5 * n))
    kinesis.merge(STREAM, *children)
    kinesis.put(STREAM, *numbered(16, 20))
    query = start_query(kinesis, consumerMode=mode, initialPosition=began)

    data = query.read_until(20)
    assert data[:5] == numbered(1, 5)
    assert sorted(data[5:15], key=int) == numbered(6, 15)
    assert data[15:] == numbered(16, 20)


# --- W7: closed shards are listed for as long as records are kept -------------------------------


def test_w7_closed_shards_that_stay_listed_make_no_batches(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """W7: three generations are listed again and again. When they are read, no batch is made until
    there are records, also after a restart and by a trigger that ends.
    """
    kinesis = serve(shards=2)
    count = 0
    for shards in (4, 2, 1):
        for shard in kinesis.open_shards(STREAM):
            put_to(kinesis, shard, b"record")
            count += 1
        kinesis.scale(STREAM, shards)
    closed = {s["ShardId"] for s in kinesis.shards(STREAM)} - set(kinesis.open_shards(STREAM))
    query = start_query(kinesis, consumerMode=mode, **OFTEN)
    query.run_until(lambda: len(query.data) == count and ended(query) == closed, "all is read")
    batches, since = len(query.batches()), kinesis.clock.monotonic()

    def made() -> int:
        """Batches made since, but for those that long silence costs."""
        silent = int((kinesis.clock.monotonic() - since) // SILENCE_S)
        return max(0, len(query.batches()) - batches - silent)

    def look(times: int) -> None:
        listings = len(kinesis.calls.calls("ListShards"))
        query.run_until(
            lambda: len(kinesis.calls.calls("ListShards")) >= listings + times, "listings"
        )

    look(5)
    assert made() == 0
    query.close()
    query = start_query(kinesis, consumerMode=mode, **OFTEN)
    query.step()
    look(5)
    assert made() == 0
    query.close()
    query = start_query(kinesis, consumerMode=mode, **OFTEN)
    query.available_now()
    assert made() == 0
    assert {s["ShardId"] for s in kinesis.shards(STREAM)} > closed

    put_to(kinesis, kinesis.open_shards(STREAM)[0], b"record")
    assert query.available_now() == 1


# --- W8: a shard that is gone when it is opened -------------------------------------------------


@pytest.mark.parametrize("leave", ["true", "false"])
def test_w8_a_shard_gone_between_listing_and_opening_follows_fail_on_data_loss(
    kinesis: KinesisServer,
    start_query: StartQuery,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    leave: str,
) -> None:
    """W8: it is in the list, and Kinesis knows it no more when it is subscribed to, or when an
    iterator is asked for. The query fails and says so, or it goes on with the children.
    """
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, consumerMode=mode)
    query.read_until(3)
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(6, 9))
    opening = "SubscribeToShard" if mode == "efo" else "GetShardIterator"
    kinesis.add_faults(Fault(Delay(10), opening, shard=FIRST))
    query = start_query(kinesis, consumerMode=mode, failOnDataLoss=leave)
    query.run_until(kinesis.struck, "the shard is being opened")
    kinesis.forget_shard(STREAM, FIRST)

    if leave == "true":
        with pytest.raises(DataLossError, match=f"{FIRST}.*no longer in the stream"):
            query.read_until(4)
        assert query.data == numbered(1, 3)
    else:
        assert query.read_until(7) == [*numbered(1, 3), *numbered(6, 9)]
        assert FIRST in caplog.text
    outcomes = [c.outcome for c in kinesis.calls.calls(opening, FIRST)]
    assert outcomes.count("ResourceNotFoundException") == 1


# --- W11: shards that appear while the query is down start at "now" -----------------------------


@pytest.mark.parametrize("read", [0, 3], ids=["only pinned", "read before"])
@pytest.mark.parametrize("trigger", ["processing time", "available now", "once"])
def test_w11_shards_that_appeared_while_it_was_down_are_read_from_their_first_record(
    kinesis: KinesisServer, start_query: StartQuery, mode: str, trigger: str, read: int
) -> None:
    """W11: started at latest, stopped, and started with the same options when the stream has other
    shards, some of them closed again, with records from before the restart.
    """
    kinesis.put(STREAM, b"too early")
    query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
    query.step()
    kinesis.put(STREAM, *numbered(1, read))
    query.read_until(read)
    query.close()
    kinesis.put(STREAM, *numbered(read + 1, 5))
    children = kinesis.split(STREAM, FIRST)
    for n, child in enumerate(children):
        put_to(kinesis, child, *numbered(6 + 5 * n, 10 + 5 * n))
    kinesis.merge(STREAM, *children)
    kinesis.put(STREAM, *numbered(16, 20))

    query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
    if trigger == "once":
        query.once()
    elif trigger == "available now":
        query.available_now()
    else:
        query.read_until(20)
    assert query.data[:5] == numbered(1, 5)
    assert sorted(query.data[5:15], key=int) == numbered(6, 15)
    assert query.data[15:] == numbered(16, 20)


def test_w11_a_query_that_ends_at_the_tip_waits_for_the_end_of_a_closed_shard(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """W11: all records of the shard are there, and its end is told seconds later. Its children hold
    records from before the start, too.
    """
    kinesis.put(STREAM, *numbered(1, 5))
    last = str(kinesis.records(STREAM)[-1].sequence_number)
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(6, 10))
    # The double tells the end with the last records; Kinesis may do so in an event of its own. Here
    # there is none, and the answer that proves the end takes its time.
    without_end = Alter(put={"ContinuationSequenceNumber": last}, drop=("ChildShards",))
    late = Fault(Delay(20), "GetRecords", shard=FIRST)
    kinesis.add_faults(Fault(without_end, shard=FIRST), late)
    query = start_query(kinesis)
    query.available_now()
    assert query.data == numbered(1, 10)
    assert late in [fault for fault, _ in kinesis.struck()]
