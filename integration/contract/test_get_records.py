"""GetRecords: order, paging, the tip, the end of a shard, and the limits on reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration.contract.stream import INVALID, MIB, Stream, hash_range, refused
from integration.contract.targets import Target

COUNT = 10
LARGE = 12


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream with two shards: some records in the first, 12 MiB in the second."""
    with target.stream(2) as made:
        made.put(b"r0", hash_key=0)
        target.pass_time(0.1)
        made.put_many(*(f"r{i}".encode() for i in range(1, COUNT)), hash_key=0)
        yield made


@pytest.fixture(scope="module")
def shard(stream: Stream) -> str:
    """The shard with small records."""
    return stream.open_shards()[0]["ShardId"]


@pytest.fixture(scope="module")
def written(stream: Stream) -> str:
    """The shard with 12 MiB."""
    shard = stream.open_shards()[1]
    for _ in range(LARGE):
        stream.put(b"x" * (MIB - 10), hash_key=hash_range(shard)[0])
        if stream.target.limited:
            stream.target.pass_time(1.1)
    return shard["ShardId"]


@pytest.fixture
def large(target: Target, written: str) -> str:
    """The shard with 12 MiB, not read for so long that it may be read again."""
    if target.limited:
        target.pass_time(10)
    return written


def page(target: Target, iterator: str, **options: Any) -> dict[str, Any]:
    return target.client.get_records(ShardIterator=iterator, **options)


def test_records_are_in_the_order_of_their_numbers(stream: Stream, shard: str) -> None:
    """A shard is read in the order of its sequence numbers."""
    records = stream.read(stream.iterator(shard), at_least=COUNT)
    numbers = [int(record["SequenceNumber"]) for record in records]
    assert numbers == sorted(numbers)
    assert {record["Data"] for record in records} == {f"r{i}".encode() for i in range(COUNT)}


def test_record_has_its_arrival_time(stream: Stream, shard: str) -> None:
    """Each record tells when it arrived, by the server's clock, and that falls between others."""
    first, second = stream.read(stream.iterator(shard), at_least=COUNT)[:2]
    assert first["ApproximateArrivalTimestamp"].tzinfo is not None
    assert first["ApproximateArrivalTimestamp"] <= second["ApproximateArrivalTimestamp"]


def test_limit_bounds_a_page_and_the_next_goes_on(
    target: Target, stream: Stream, shard: str
) -> None:
    """At most Limit records come back, and NextShardIterator leaves out none and repeats none."""
    iterator = stream.iterator(shard)
    numbers: list[str] = []
    for _ in range(COUNT):
        answer = page(target, iterator, Limit=3)
        assert len(answer["Records"]) <= 3
        numbers += [record["SequenceNumber"] for record in answer["Records"]]
        iterator = answer["NextShardIterator"]
    every = [record["SequenceNumber"] for record in stream.read(stream.iterator(shard))]
    assert numbers == every


def test_limit_over_10000_is_refused(target: Target, stream: Stream, shard: str) -> None:
    """Limit may be up to 10,000."""
    with refused(*INVALID):
        page(target, stream.iterator(shard), Limit=10_001)


def test_millis_behind_latest_tells_of_unread_records(
    target: Target, stream: Stream, shard: str
) -> None:
    """It is more than zero while newer records wait, and zero at the tip."""
    target.pass_time(0.1)
    answer = page(target, stream.iterator(shard), Limit=1)
    assert answer["MillisBehindLatest"] > 0
    assert page(target, stream.iterator(shard, "LATEST"))["MillisBehindLatest"] == 0


def test_nothing_to_read_is_no_error(target: Target, stream: Stream, shard: str) -> None:
    """At the tip an empty list comes back, with an iterator to go on with, and no children."""
    answer = page(target, stream.iterator(shard, "LATEST"))
    assert answer["Records"] == []
    assert answer["NextShardIterator"]
    assert not answer.get("ChildShards")


@pytest.mark.takes(30)
def test_page_has_at_most_10_mib(target: Target, stream: Stream, large: str) -> None:
    """One call returns 10 MiB of data and no more."""
    records = page(target, stream.iterator(large))["Records"]
    assert 0 < sum(len(record["Data"]) for record in records) <= 10 * MIB


@pytest.mark.takes(30)
def test_read_after_10_mib_is_throttled_for_five_seconds(
    target: Target, stream: Stream, large: str
) -> None:
    """After a page of 10 MiB the shard is not to be read for the next five seconds."""
    iterator = stream.iterator(large)
    page(target, iterator)
    target.pass_time(1)
    with refused("ProvisionedThroughputExceededException"):
        page(target, iterator)
    target.pass_time(5)
    assert page(target, iterator)["Records"]


@pytest.mark.takes(30)
def test_shard_gives_2_mib_a_second(target: Target, stream: Stream, large: str) -> None:
    """After a page of more than 2 MiB the next call within a second is throttled."""
    iterator = stream.iterator(large)
    page(target, iterator, Limit=4)
    with refused("ProvisionedThroughputExceededException"):
        page(target, iterator, Limit=4)


def test_shard_is_read_five_times_a_second(target: Target, stream: Stream, shard: str) -> None:
    """The sixth GetRecords call on a shard in a second is throttled, whoever makes it."""
    iterator = stream.iterator(shard)
    target.pass_time(1.1)
    with target.unpaced(), refused("ProvisionedThroughputExceededException"):
        for _ in range(12):
            page(target, iterator)


@pytest.fixture(scope="module")
def resharded(target: Target) -> Iterator[tuple[Stream, list[dict[str, Any]]]]:
    """A stream with its first four shards: two with records, which were merged; two were split."""
    with target.stream(4) as made:
        shards = made.open_shards()
        for shard in shards[:3]:
            made.put(b"old", hash_key=hash_range(shard)[0])
        made.split(shards[2])
        made.split(shards[3])
        made.merge(shards[0], shards[1])
        yield made, shards


def last_page(stream: Stream, iterator: str) -> dict[str, Any]:
    """The page of a closed shard that has no next."""
    for _ in range(10):
        answer = page(stream.target, iterator)
        if not answer.get("NextShardIterator"):
            return answer
        iterator = answer["NextShardIterator"]
    pytest.fail("the shard has no end")


def test_end_of_a_split_shard_names_its_children(
    resharded: tuple[Stream, list[dict[str, Any]]],
) -> None:
    """At the end of a closed shard there is no next iterator, and ChildShards has its children."""
    stream, shards = resharded
    answer = last_page(stream, stream.iterator(shards[2]["ShardId"]))
    children = {child["ShardId"]: child for child in answer["ChildShards"]}
    listed = stream.children(shards[2])
    assert children.keys() == {child["ShardId"] for child in listed}
    for child in listed:
        told = children[child["ShardId"]]
        assert told["ParentShards"] == [shards[2]["ShardId"]]
        assert hash_range(told) == hash_range(child)


def test_end_of_a_merged_shard_names_its_child(
    resharded: tuple[Stream, list[dict[str, Any]]],
) -> None:
    """Both parents of a merge name the same child, and the child has both as its parents."""
    stream, shards = resharded
    answers = [last_page(stream, stream.iterator(s["ShardId"])) for s in shards[:2]]
    (one,), (other,) = (answer["ChildShards"] for answer in answers)
    assert one["ShardId"] == other["ShardId"]
    assert set(one["ParentShards"]) == {s["ShardId"] for s in shards[:2]}


def test_closed_shard_keeps_its_records(
    resharded: tuple[Stream, list[dict[str, Any]]],
) -> None:
    """What was written into a shard before it was closed is read from it afterwards."""
    stream, shards = resharded
    assert [stream.read_from(s["ShardId"]) for s in shards] == [[b"old"]] * 3 + [[]]


def test_empty_closed_shard_ends_at_once(
    resharded: tuple[Stream, list[dict[str, Any]]],
) -> None:
    """A closed shard without records has an end, too."""
    stream, shards = resharded
    answer = last_page(stream, stream.iterator(shards[3]["ShardId"]))
    assert answer["Records"] == []
    assert len(answer["ChildShards"]) == 2


def test_latest_of_a_closed_shard_is_its_end(
    resharded: tuple[Stream, list[dict[str, Any]]],
) -> None:
    """A closed shard still gives a valid LATEST iterator, behind its last record."""
    stream, shards = resharded
    answer = last_page(stream, stream.iterator(shards[2]["ShardId"], "LATEST"))
    assert answer["Records"] == []
    assert len(answer["ChildShards"]) == 2
