"""GetShardIterator: every kind of position, and how long an iterator lasts."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from integration.contract.stream import INVALID, Stream, hash_range, refused
from integration.contract.targets import Target

DATA = [b"one", b"two", b"three", b"four"]


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream with three shards: one has the records of `records`, two are for tests to write."""
    with target.stream(3) as made:
        yield made


@pytest.fixture(scope="module")
def shards(stream: Stream) -> list[dict[str, Any]]:
    """Its shards, the one with records first."""
    return stream.open_shards()


@pytest.fixture(scope="module")
def shard(shards: list[dict[str, Any]]) -> str:
    """The id of the shard with records."""
    return shards[0]["ShardId"]


@pytest.fixture(scope="module")
def records(stream: Stream, shard: str) -> list[dict[str, Any]]:
    """The records of that shard, a second and more apart where a test looks between them."""
    for data in DATA:
        stream.put(data, hash_key=0)
        stream.target.pass_time(0.6)
    read = stream.read(stream.iterator(shard), at_least=len(DATA))
    assert [record["Data"] for record in read] == DATA
    return read


@pytest.fixture(scope="module", autouse=True)
def filled(records: list[dict[str, Any]]) -> None:
    """The records are there before the first test."""


def number(record: dict[str, Any]) -> dict[str, str]:
    """The parameter of GetShardIterator that names a record."""
    return {"StartingSequenceNumber": record["SequenceNumber"]}


def test_trim_horizon_is_the_oldest_record(stream: Stream, shard: str) -> None:
    """TRIM_HORIZON reads all that the shard still has, in the order it was written."""
    assert stream.read_from(shard, "TRIM_HORIZON", at_least=4) == DATA


def test_latest_is_behind_the_newest_record(stream: Stream, shards: list[dict[str, Any]]) -> None:
    """LATEST reads only what is written after the iterator was made."""
    shard = shards[1]
    stream.put(b"before", hash_key=hash_range(shard)[0])
    iterator = stream.iterator(shard["ShardId"], "LATEST")
    stream.put(b"after", hash_key=hash_range(shard)[0])
    assert [r["Data"] for r in stream.read(iterator, at_least=1)] == [b"after"]


def test_at_sequence_number_includes_the_record(
    stream: Stream, shard: str, records: list[dict[str, Any]]
) -> None:
    """AT_SEQUENCE_NUMBER reads exactly from the record with this number."""
    data = stream.read_from(shard, "AT_SEQUENCE_NUMBER", at_least=3, **number(records[1]))
    assert data == DATA[1:]


def test_after_sequence_number_excludes_the_record(
    stream: Stream, shard: str, records: list[dict[str, Any]]
) -> None:
    """AFTER_SEQUENCE_NUMBER reads right after the record with this number."""
    data = stream.read_from(shard, "AFTER_SEQUENCE_NUMBER", at_least=2, **number(records[1]))
    assert data == DATA[2:]


def test_after_the_newest_record_there_is_nothing(
    stream: Stream, shard: str, records: list[dict[str, Any]]
) -> None:
    """AFTER_SEQUENCE_NUMBER of the newest record reads no record, and is no error."""
    assert stream.read_from(shard, "AFTER_SEQUENCE_NUMBER", **number(records[-1])) == []


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_start_of_the_shard_is_a_position(
    stream: Stream, shards: list[dict[str, Any]], kind: str
) -> None:
    """The shard's own StartingSequenceNumber, as ListShards gives it, is before its records."""
    start = shards[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    data = stream.read_from(shards[0]["ShardId"], kind, at_least=4, StartingSequenceNumber=start)
    assert data == DATA


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_number_of_no_record_is_a_position(
    stream: Stream, shard: str, records: list[dict[str, Any]], kind: str
) -> None:
    """A number between two records denotes the position between them; no record need have it."""
    before, after = (int(record["SequenceNumber"]) for record in records[1:3])
    # The last 36 bits tell the shard and a version, so they stay as they are.
    between = before + ((after - before) // 2 >> 36 << 36)
    assert before < between < after
    data = stream.read_from(shard, kind, at_least=2, StartingSequenceNumber=str(between))
    assert data == DATA[2:]


def test_at_timestamp_includes_a_record_of_that_time(
    stream: Stream, shard: str, records: list[dict[str, Any]]
) -> None:
    """AT_TIMESTAMP with a record's own arrival time reads from that record."""
    when = records[2]["ApproximateArrivalTimestamp"]
    data = stream.read_from(shard, "AT_TIMESTAMP", at_least=2, Timestamp=when)
    assert data[-2:] == DATA[2:]


def test_at_timestamp_has_milliseconds(stream: Stream, shards: list[dict[str, Any]]) -> None:
    """AT_TIMESTAMP between two records of one second reads from the later one."""
    shard = shards[2]

    def two_in_one_second() -> list[dict[str, Any]]:
        puts = []
        for _ in range(2):
            puts.append(stream.put(hash_key=hash_range(shard)[0])["SequenceNumber"])
            stream.target.pass_time(0.05)
        found = stream.read(stream.iterator(shard["ShardId"]), at_least=2)
        pair = [record for record in found if record["SequenceNumber"] in puts]
        seconds = {int(record["ApproximateArrivalTimestamp"].timestamp()) for record in pair}
        return pair if len(seconds) == 1 else []

    _, later = stream.target.wait_until(two_in_one_second, what="two records in one second")
    when = later["ApproximateArrivalTimestamp"] - datetime.timedelta(milliseconds=5)
    records = stream.read(
        stream.iterator(shard["ShardId"], "AT_TIMESTAMP", Timestamp=when), at_least=1
    )
    assert [record["SequenceNumber"] for record in records] == [later["SequenceNumber"]]


def test_old_timestamp_is_the_trim_horizon(stream: Stream, shard: str) -> None:
    """AT_TIMESTAMP before the oldest record reads from the oldest record."""
    long_ago = datetime.datetime(2014, 1, 1, tzinfo=datetime.timezone.utc)
    assert stream.read_from(shard, "AT_TIMESTAMP", at_least=4, Timestamp=long_ago) == DATA


@pytest.mark.takes(301)
def test_iterator_expires_after_five_minutes(target: Target, stream: Stream, shard: str) -> None:
    """An iterator that is older than five minutes gets ExpiredIteratorException."""
    iterator = stream.iterator(shard)
    target.pass_time(301)
    with refused("ExpiredIteratorException"):
        target.client.get_records(ShardIterator=iterator)


@pytest.mark.takes(290)
def test_iterator_lasts_almost_five_minutes(target: Target, stream: Stream, shard: str) -> None:
    """An iterator can be used until it is five minutes old."""
    iterator = stream.iterator(shard)
    target.pass_time(290)
    assert target.client.get_records(ShardIterator=iterator)["Records"]


def test_iterator_that_is_none_is_refused(target: Target, stream: Stream) -> None:
    """What was never an iterator is an invalid argument, and the caller's fault."""
    del stream
    with refused(*INVALID, "ExpiredIteratorException") as caught:
        target.client.get_records(ShardIterator="AAAAAAAAAAF7/0mWD7IuHj1yGv/")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_sequence_number_is_required(stream: Stream, shard: str, kind: str) -> None:
    """The two kinds that are about a number are refused without one."""
    with refused(*INVALID):
        stream.iterator(shard, kind)


def test_timestamp_is_required(stream: Stream, shard: str) -> None:
    """AT_TIMESTAMP is refused without a time."""
    with refused(*INVALID):
        stream.iterator(shard, "AT_TIMESTAMP")


def test_sequence_number_of_another_shard_is_refused(
    stream: Stream, shards: list[dict[str, Any]], records: list[dict[str, Any]]
) -> None:
    """A sequence number belongs to its shard and is no position in another."""
    with refused("InvalidArgumentException"):
        stream.iterator(shards[1]["ShardId"], "AFTER_SEQUENCE_NUMBER", **number(records[1]))


def test_sequence_number_that_is_no_number_is_refused(stream: Stream, shard: str) -> None:
    """A sequence number consists of digits."""
    with refused(*INVALID):
        stream.iterator(shard, "AT_SEQUENCE_NUMBER", StartingSequenceNumber="abc")


def test_unknown_shard_is_not_found(stream: Stream) -> None:
    """An iterator of a shard that the stream does not have gets ResourceNotFoundException."""
    with refused("ResourceNotFoundException"):
        stream.iterator("shardId-000000009999")


def test_unknown_kind_is_refused(stream: Stream, shard: str) -> None:
    """There are five kinds of iterators and no others."""
    with refused(*INVALID):
        stream.iterator(shard, "YESTERDAY")
