"""The batch reader over the double: what it plans, and what its tasks read."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.sql.datasource import InputPartition

from kinesis_ds.errors import DataLossError, OptionError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.position import SHARD_END, After, AtTimestamp
from kinesis_ds.reader import batch
from kinesis_ds.reader.batch import KinesisBatchReader, plan_batch
from kinesis_ds.reader.task import read_all
from kinesis_ds.testing import KinesisServer
from tests.support.agents import FIRST, SECOND
from tests.support.fast import FastClock, FastLoop, fast_network

if TYPE_CHECKING:
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.planned_range import PlannedRange

STREAM = "orders"


@pytest.fixture
def kinesis() -> Iterator[KinesisServer]:
    """Two shards, in time that passes faster."""
    with KinesisServer(clock=FastClock()) as server:
        server.create_stream(STREAM, 2)
        yield server


def plan(kinesis: KinesisServer, **options: str) -> list[PlannedRange]:
    return plan_batch(_options(kinesis, **options), kinesis.clock, fast_network)


def read(kinesis: KinesisServer, planned: list[PlannedRange]) -> list[tuple[str, bytes]]:
    return [
        (row["shardId"], row["data"])
        for batch in read_all(planned, _options(kinesis).aws, FastLoop)
        for row in batch.to_pylist()
    ]


def _options(kinesis: KinesisServer, **options: str) -> ReadOptions:
    return parse_read_options({**kinesis.options(STREAM), **options}, "batch")


def put(kinesis: KinesisServer, first: int, last: int) -> list[bytes]:
    data = [b"%d" % i for i in range(first, last + 1)]
    kinesis.put(STREAM, *data, partition_key=lambda item: item.decode())
    return data


def test_a_plan_holds_what_was_there_and_nothing_later(kinesis: KinesisServer) -> None:
    """However often it is read, and whatever is written, split and merged meanwhile."""
    before = put(kinesis, 1, 100)
    planned = plan(kinesis)
    put(kinesis, 101, 150)
    first = read(kinesis, planned)
    kinesis.split(STREAM, kinesis.open_shards(STREAM)[0])
    put(kinesis, 151, 200)

    assert sorted(data for _, data in first) == sorted(before)
    assert read(kinesis, planned) == first


def test_a_reshard_while_the_read_is_planned_loses_nothing(
    kinesis: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a new shard holds from before the end is in; its listing is newer than that moment."""
    before = put(kinesis, 1, 50)
    passed_second = batch.passed_second

    async def reshard_meanwhile(*args: Any) -> int:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, kinesis.split, STREAM, kinesis.open_shards(STREAM)[0])
        before.extend(await loop.run_in_executor(None, put, kinesis, 51, 100))
        return await passed_second(*args)

    monkeypatch.setattr(batch, "passed_second", reshard_meanwhile)
    planned = plan(kinesis)

    assert sorted(data for _, data in read(kinesis, planned)) == sorted(before)


def test_a_shard_and_what_it_became_are_read_by_one_task(kinesis: KinesisServer) -> None:
    """Parents first, so that a key's records keep their order; a task each where the user does not
    mind.
    """
    children = kinesis.split(STREAM, FIRST)

    reader = KinesisBatchReader(_options(kinesis))
    tied = [[r.shard_id for r in task.ranges] for task in reader.partitions()]
    loose = KinesisBatchReader(_options(kinesis, parentsFirst="false")).partitions()

    assert sorted(tied) == [[FIRST, *children], [SECOND]]
    assert [len(task.ranges) for task in loose] == [1, 1, 1, 1]


def test_a_time_that_has_just_begun_is_waited_for(kinesis: KinesisServer) -> None:
    """An end a few seconds ahead is a moment that passes; records until then are in."""
    end_ms = int(kinesis.clock.wall() * 1000) + 5_000

    planned = plan(kinesis, endingPosition=f"at_timestamp {end_ms}")

    assert kinesis.clock.wall() * 1000 > end_ms
    assert {r.end for r in planned} == {AtTimestamp(end_ms)}


@pytest.mark.parametrize("failing", [True, False])
def test_a_start_that_is_gone_is_data_loss_where_it_is_to_be(
    kinesis: KinesisServer, *, failing: bool
) -> None:
    """As in a stream: an error that says what to do, or what is left."""
    put(kinesis, 1, 10)
    gone, *left = (r for r in kinesis.records(STREAM) if r.shard_id == FIRST)
    kinesis.trim(STREAM, FIRST, left[0].sequence_number)
    start = f'{{"{FIRST}": "AFTER:{gone.sequence_number}", "{SECOND}": "SHARD_END"}}'
    planned = plan(kinesis, initialPosition=start, failOnDataLoss=str(failing))

    if failing:
        with pytest.raises(DataLossError, match=f"shard {FIRST}"):
            read(kinesis, planned)
    else:
        assert [data for _, data in read(kinesis, planned)] == [r.data for r in left[1:]]


@pytest.mark.parametrize("failing", [True, False])
def test_an_offset_older_than_the_retention_is_data_loss(
    kinesis: KinesisServer, caplog: pytest.LogCaptureFixture, *, failing: bool
) -> None:
    """Where Kinesis starts at the oldest record without a word, the offset's age tells (F21). A
    time that a user names may be as old as he likes.
    """
    put(kinesis, 1, 10)
    gone, *left = (r for r in kinesis.records(STREAM) if r.shard_id == FIRST)
    kinesis.trim(STREAM, FIRST, gone.sequence_number)
    long_ago = int((kinesis.clock.wall() - 25 * 3600) * 1000)
    arn = kinesis.call("DescribeStreamSummary", StreamName=STREAM)["StreamDescriptionSummary"]
    offset = SourceOffset(
        {
            arn["StreamARN"]: StreamOffset(
                STREAM,
                arn["StreamARN"],
                round(arn["StreamCreationTimestamp"] * 1000),
                "consumer",
                {FIRST: After(str(gone.sequence_number - 1), long_ago), SECOND: SHARD_END},
            )
        }
    )
    start = orjson.dumps(encode_offset(offset)).decode()

    if failing:
        with pytest.raises(DataLossError, match=f"Shard {FIRST}.* longer ago than the 24 hours"):
            plan(kinesis, initialPosition=start)
    else:
        planned = plan(kinesis, initialPosition=start, failOnDataLoss="false")
        assert "may have expired unread" in caplog.text
        assert [data for _, data in read(kinesis, planned)] == [r.data for r in left]
    assert len(plan(kinesis, initialPosition=f"at_timestamp {long_ago}")) == 2


def test_planning_ends_its_network(kinesis: KinesisServer) -> None:
    """Whether it comes to an end or not: Spark's planning process is short-lived, ours is not."""
    plan(kinesis)
    with pytest.raises(OptionError):
        plan(kinesis, endingPosition="at_timestamp 2200-01-01")

    assert "kinesis-network" not in [thread.name for thread in threading.enumerate()]
    kinesis.wait_for(lambda: kinesis.connections() == 0)


def test_a_reader_travels_with_its_options_and_nothing_else() -> None:
    """Spark pickles it before it asks for the partitions; the tasks need no more."""
    options = parse_read_options({"streamName": "orders"})
    reader = KinesisBatchReader(options)

    assert vars(pickle.loads(pickle.dumps(reader))) == {"_options": options}  # noqa: S301


def test_the_partition_that_spark_makes_for_an_empty_batch_holds_nothing() -> None:
    """Spark runs a task even where there is nothing to read."""
    reader = KinesisBatchReader(parse_read_options({"streamName": "orders"}))

    assert list(reader.read(InputPartition(None))) == []
