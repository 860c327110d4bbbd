"""Which records a batch read has: those between two positions, decided when it is planned."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.sql.datasource import InputPartition

from kinesis_ds.errors import DataLossError, OptionError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.batch import batch_ranges
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, At, AtTimestamp, Position
from kinesis_ds.plan.start import Latest
from kinesis_ds.reader import batch
from kinesis_ds.reader.batch import KinesisBatchReader, plan_batch
from kinesis_ds.reader.task import read_all
from kinesis_ds.testing import KinesisServer
from tests.support.agents import FIRST, SECOND
from tests.support.builders import listing, shard
from tests.support.fast import FastClock, fast_network

if TYPE_CHECKING:
    from kinesis_ds.options.read import ReadOptions
    from kinesis_ds.plan.batch import End
    from kinesis_ds.plan.planned_range import PlannedRange
    from kinesis_ds.plan.ranges import Start
    from kinesis_ds.plan.shards import ShardMap

NOW_MS = 7_000
NOW, END, TRIM, LATEST = AtTimestamp(NOW_MS), SHARD_END, TRIM_HORIZON, Latest()

OPEN = listing(shard("a"), shard("b"))
SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"), shard("z"))
LINE = listing(shard("g0", closed=True), shard("g1", "g0", closed=True), shard("g2", "g1"))
MERGE = listing(shard("l", closed=True), shard("r", closed=True), shard("m", "l", "r"))

Ranges = dict[str, tuple[Position, Position]]


def ranges(start: Start, end: End, listed: ShardMap) -> Ranges:
    return {r.shard_id: (r.start, r.end) for r in batch_ranges(start, end, listed, NOW_MS)}


@pytest.mark.parametrize(
    ("start", "end", "listed", "expected"),
    [
        pytest.param(TRIM, LATEST, OPEN, {"a": (TRIM, NOW), "b": (TRIM, NOW)}, id="all there is"),
        pytest.param(
            TRIM,
            LATEST,
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, NOW), "b": (TRIM, NOW), "z": (TRIM, NOW)},
            id="closed shards to their end, which Kinesis proves",
        ),
        pytest.param(
            AtTimestamp(5),
            AtTimestamp(6),
            LINE,
            {s: (AtTimestamp(5), AtTimestamp(6)) for s in LINE},
            id="between two times, in closed shards as well",
        ),
        pytest.param(AtTimestamp(6), AtTimestamp(6), OPEN, {}, id="no time at all"),
        pytest.param(AtTimestamp(6), AtTimestamp(5), OPEN, {}, id="backwards"),
        pytest.param(LATEST, LATEST, OPEN, {}, id="from latest to latest"),
        pytest.param(TRIM, LATEST, {}, {}, id="no shards"),
        # --- starts by shard ---
        pytest.param(
            {"a": After("3"), "b": At("4")},
            LATEST,
            OPEN,
            {"a": (After("3"), NOW), "b": (At("4"), NOW)},
            id="from records",
        ),
        pytest.param(
            {"p": After("3"), "z": END},
            LATEST,
            SPLIT,
            {"p": (After("3"), END), "a": (TRIM, NOW), "b": (TRIM, NOW)},
            id="children of a named shard from their first record; an ended one is left out",
        ),
        pytest.param(
            {"p": END, "z": After("2")},
            LATEST,
            SPLIT,
            {"a": (TRIM, NOW), "b": (TRIM, NOW), "z": (After("2"), NOW)},
            id="an offset between the end of a parent and its children",
        ),
        pytest.param(
            {"g2": After("3")}, LATEST, LINE, {"g2": (After("3"), NOW)}, id="not what it came from"
        ),
        pytest.param(
            {"a": After("3")},
            LATEST,
            OPEN,
            {"a": (After("3"), NOW), "b": (TRIM, NOW)},
            id="one that is not named from its first record, as in a stream",
        ),
        # --- ends by shard ---
        pytest.param(
            TRIM,
            {"a": After("3"), "b": At("4")},
            OPEN,
            {"a": (TRIM, After("3")), "b": (TRIM, At("4"))},
            id="to records",
        ),
        pytest.param(
            TRIM,
            {"a": LATEST, "b": AtTimestamp(6), "p": LATEST, "z": TRIM},
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, NOW), "b": (TRIM, AtTimestamp(6))},
            id="to moments, and nothing of one",
        ),
        pytest.param(
            TRIM,
            {"p": After("9"), "z": LATEST},
            SPLIT,
            {"p": (TRIM, After("9")), "z": (TRIM, NOW)},
            id="nothing of what came from a named shard",
        ),
        pytest.param(
            TRIM,
            {"a": After("9"), "b": TRIM, "z": TRIM},
            SPLIT,
            {"p": (TRIM, END), "a": (TRIM, After("9"))},
            id="all of what a named shard came from",
        ),
        pytest.param(
            TRIM,
            {"m": After("9")},
            MERGE,
            {"l": (TRIM, END), "r": (TRIM, END), "m": (TRIM, After("9"))},
            id="both parents",
        ),
        pytest.param(
            {"g0": After("3")},
            {"g0": END, "g1": After("9")},
            LINE,
            {"g0": (After("3"), END), "g1": (TRIM, After("9"))},
            id="between two offsets",
        ),
        pytest.param(
            {"a": After("9"), "b": After("5")},
            {"a": After("3"), "b": After("5")},
            OPEN,
            {},
            id="backwards, or no way at all",
        ),
    ],
)
def test_ranges_of_a_batch(start: Start, end: End, listed: ShardMap, expected: Ranges) -> None:
    """Positions are a cut through the shards: before it what a shard came from, behind it what
    came from the shard.
    """
    assert ranges(start, end, listed) == expected


@pytest.mark.parametrize(
    ("end", "listed", "message"),
    [
        pytest.param({"a": After("3")}, OPEN, "says nothing of shard b", id="a stranger"),
        pytest.param(
            {"g0": After("3"), "g2": After("4")},
            LINE,
            "says nothing of shard g1",
            id="on both sides of the cut",
        ),
        pytest.param(
            {"a": END, "b": LATEST},
            OPEN,
            "SHARD_END for shard a, which Kinesis has not closed",
            id="the end of an open shard",
        ),
    ],
)
def test_an_end_that_is_not_clear_is_refused(
    end: Mapping[str, Position | Latest], listed: ShardMap, message: str
) -> None:
    """To leave a shard out without a word would be to lose its records."""
    with pytest.raises(OptionError, match=message):
        ranges(TRIM, end, listed)


def test_many_shards_are_not_all_listed_in_a_message() -> None:
    """The first ten will do."""
    listed = listing(*[shard(f"s{i:04}") for i in range(1000)])

    with pytest.raises(OptionError, match=r"s0001, .* s0010 and 989 more"):
        ranges(TRIM, {"s0000": LATEST}, listed)


@pytest.mark.parametrize("as_end", [False, True])
def test_a_sequence_number_of_another_shard_is_refused(*, as_end: bool) -> None:
    """One that is lower than any of the shard's own; the shard's first position is its own."""
    listed = listing(shard("a", first="100"), shard("b", first="200"))
    own: dict[str, Position | Latest] = {"a": After("100"), "b": At("200")}
    foreign: dict[str, Position | Latest] = {"a": After("150"), "b": After("150")}

    for good in (own, foreign):
        positions = (TRIM, good) if as_end else (good, LATEST)
        if good is own:
            ranges(*positions, listed)
        else:
            with pytest.raises(OptionError, match="for shard b is lower than any of its own"):
                ranges(*positions, listed)


# --- over the double ----------------------------------------------------------------------------

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
        for batch in read_all(planned, _options(kinesis).aws)
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
