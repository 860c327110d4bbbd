"""Several streams in one source: their shards have the same names, and nothing else in common."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from kinesis_ds.errors import OffsetError, StreamNotFoundError
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered
from tests.support.micro_batches import MicroBatches
from tests.support.polling import eventually

BOTH = f"{STREAM},returns"


def by_stream(query: MicroBatches) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for row in query.rows:
        found.setdefault(row.stream, []).append(row.data)
    return found


@pytest.fixture
def two(kinesis: KinesisServer) -> KinesisServer:
    """Streams ``orders`` and ``returns``, with three records each."""
    kinesis.create_stream("returns", 1)
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.put("returns", *numbered(101, 103))
    return kinesis


def test_each_record_says_which_stream_it_is_from(
    two: KinesisServer, start_query: StartQuery
) -> None:
    """By name, through restarts and in the order of each stream."""
    query = start_query(two, streamName=BOTH)
    query.read_until(6)
    query.close()
    two.put("returns", *numbered(104, 105))
    again = start_query(two, streamName=BOTH)
    again.read_until(8)

    assert by_stream(again) == {STREAM: numbered(1, 3), "returns": numbered(101, 105)}
    assert {name.partition("/")[0] for name in again.coordinator.statistics()["shards"]} == {
        STREAM,
        "returns",
    }


def test_streams_by_arn(two: KinesisServer, ending: contextlib.ExitStack, tmp_path: Path) -> None:
    """As by name."""
    arns = [
        two.call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
        for name in (STREAM, "returns")
    ]
    options = two.options(STREAM)
    del options["streamName"]
    query = MicroBatches({**options, "streamARN": ",".join(arns)}, tmp_path, two.clock)
    ending.callback(query.close)
    query.read_until(6)
    assert by_stream(query) == {STREAM: numbered(1, 3), "returns": numbered(101, 103)}


def test_one_buffer_holds_them_all(two: KinesisServer, start_query: StartQuery) -> None:
    """The bound is of the source, not of each stream."""
    big = [b"%d" % n + b"." * 100_000 for n in range(150)]
    for stream in (STREAM, "returns"):
        two.put(stream, *big)
    query = start_query(two, streamName=BOTH, fetchBufferSize="16mb")
    query.read_until(306)
    pool = query.coordinator.statistics()["pool"]
    assert pool["peak_bytes"] <= pool["limit_bytes"]


def test_limits_are_shared_by_all(two: KinesisServer, start_query: StartQuery) -> None:
    """A batch has so many records, whichever streams they are from."""
    for stream in (STREAM, "returns"):
        two.put(stream, *numbered(1000, 1050))
    query = start_query(two, streamName=BOTH, maxRecordsPerTrigger="10")
    query.read_until(108)
    assert max(len(rows) for rows in query.batches()) <= 10


def test_a_stream_that_is_added_starts_as_a_new_query_does(
    two: KinesisServer, start_query: StartQuery
) -> None:
    """The others go on from the checkpoint."""
    query = start_query(two)
    query.read_until(3)
    query.close()
    two.put(STREAM, *numbered(4, 5))
    again = start_query(two, streamName=BOTH)

    def held() -> bool:
        # Spark may ask late: what has come meanwhile must not be passed over.
        again.coordinator.latest(again.last_offset())
        return bool(again.coordinator.statistics()["pool"]["used_records"] >= 5)

    eventually(held, "records of both streams")
    again.read_until(8)
    again.close()
    assert by_stream(again) == {STREAM: numbered(1, 5), "returns": numbered(101, 103)}

    two.put("returns", *numbered(104, 104))
    third = start_query(two, streamName=BOTH)
    third.read_until(9)
    assert by_stream(third)["returns"] == numbered(101, 104)


def test_a_stream_that_is_left_out_is_told(two: KinesisServer, start_query: StartQuery) -> None:
    """Its unread records would be lost unseen."""
    query = start_query(two, streamName=BOTH)
    query.read_until(6)
    query.close()

    for run in (MicroBatches.step, MicroBatches.once):
        with pytest.raises(OffsetError, match=r"no longer reads .*stream/returns\.") as caught:
            run(start_query(two))
        assert "belongs to" not in str(caught.value)
        assert "positions of 2 streams" in str(caught.value)


def test_a_checkpoint_of_another_stream_is_told(
    two: KinesisServer, start_query: StartQuery
) -> None:
    """Nothing of it can be gone on from."""
    query = start_query(two)
    query.read_until(3)
    query.close()

    with pytest.raises(OffsetError, match=r"belongs to the stream .*/orders, .* reads .*/returns"):
        start_query(two, streamName="returns").step()


def test_a_stream_that_does_not_exist_is_named(two: KinesisServer, start_query: StartQuery) -> None:
    """By its name, not by that of a good one."""
    with pytest.raises(StreamNotFoundError, match="no stream missing"):
        start_query(two, streamName=f"{STREAM},missing").step()


def test_available_now_ends_at_the_tip_of_all(two: KinesisServer, start_query: StartQuery) -> None:
    """None is left out because another was quick."""
    query = start_query(two, streamName=BOTH)
    query.available_now()
    assert by_stream(query) == {STREAM: numbered(1, 3), "returns": numbered(101, 103)}


def test_everything_of_all_at_once(two: KinesisServer, start_query: StartQuery) -> None:
    """``Trigger.Once``."""
    query = start_query(two, streamName=BOTH)
    query.once()
    assert by_stream(query) == {STREAM: numbered(1, 3), "returns": numbered(101, 103)}


@pytest.mark.parametrize("trigger", ["available now", "once"])
def test_the_moment_at_which_a_run_ends_is_asked_for_once(
    kinesis: KinesisServer, start_query: StartQuery, trigger: str
) -> None:
    """It takes a second or two to pass; each stream shows the same clock while it is waited for."""
    names = [STREAM, *(f"more-{n}" for n in range(4))]
    for name in names[1:]:
        kinesis.create_stream(name, 1)
    query = start_query(kinesis, streamName=",".join(names), consumerMode="polling")
    if trigger == "once":
        query.coordinator.latest(None, everything=True)
    else:
        query.coordinator.prepare_available_now()  # type: ignore[attr-defined]

    # The first call for each stream is the one that looks it up.
    described = Counter(c.target.stream for c in kinesis.calls.calls("DescribeStreamSummary"))
    assert sum(calls > 1 for calls in described.values()) == 1
    assert described.keys() == set(names)


def test_each_stream_may_have_a_consumer_of_its_own_name(
    two: KinesisServer, start_query: StartQuery
) -> None:
    """Named in the order of the streams, and registered there."""
    query = start_query(two, streamName=BOTH, consumerName="of-orders,of-returns")
    query.read_until(6)
    for stream in (STREAM, "returns"):
        arn = two.call("DescribeStreamSummary", StreamName=stream)["StreamDescriptionSummary"]
        listed = two.call("ListStreamConsumers", StreamARN=arn["StreamARN"])["Consumers"]
        assert [c["ConsumerName"] for c in listed] == [f"of-{stream}"]
