"""PutRecord and PutRecords: what is accepted, what is limited, and the numbers that come back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from integration.contract.stream import HASH_KEYS, INVALID, MIB, Stream, hash_range, refused
from integration.contract.targets import Target

KEY = "key"


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream with shards enough for each test that fills one, and two for the others."""
    with target.stream(10) as made:
        yield made


@pytest.fixture(scope="module")
def unused(stream: Stream) -> Iterator[int]:
    """Hash keys of shards that nobody has written to."""
    return (hash_range(shard)[0] for shard in stream.open_shards()[1:-1])


@pytest.fixture
def fresh(unused: Iterator[int]) -> int:
    """The hash key of a shard that has all of its capacity left."""
    return next(unused)


def entries(count: int, size: int = 1, *, hash_key: int = 0) -> list[dict[str, Any]]:
    """Records for one request, all for one shard, of so many bytes with their partition key."""
    return [
        {"PartitionKey": KEY, "Data": b"x" * (size - len(KEY)), "ExplicitHashKey": str(hash_key)}
        for _ in range(count)
    ]


def put_all(stream: Stream, requests: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Send the requests as fast as can be; the answers' entries, in the order of the records."""
    answers = []
    with stream.target.unpaced():
        for records in requests:
            answer = stream.client.put_records(StreamName=stream.name, Records=records)
            failed = [entry for entry in answer["Records"] if entry.get("ErrorCode")]
            assert answer["FailedRecordCount"] == len(failed)
            assert len(answer["Records"]) == len(records)
            answers += answer["Records"]
    return answers


def throttled(answers: list[dict[str, Any]]) -> list[int]:
    """Where the entries are that failed for want of throughput; no other failure is there."""
    codes = {entry["ErrorCode"] for entry in answers if entry.get("ErrorCode")}
    assert codes <= {"ProvisionedThroughputExceededException"}
    return [i for i, entry in enumerate(answers) if entry.get("ErrorCode")]


def test_put_record_is_read_back(stream: Stream) -> None:
    """A record is read byte for byte, under the shard and number that PutRecord returned."""
    data = bytes(range(256))
    put = stream.put(data, hash_key=0)
    records = stream.read(stream.iterator(put["ShardId"]), at_least=1)
    (record,) = [r for r in records if r["SequenceNumber"] == put["SequenceNumber"]]
    assert (record["Data"], record["PartitionKey"]) == (data, KEY)


def test_put_records_is_read_back(stream: Stream) -> None:
    """Each entry of the answer belongs to the record at its place in the request."""
    data = [b"one", b"two", b"three"]
    answer = stream.put_many(*data, hash_key=HASH_KEYS - 1)["Records"]
    records = stream.read(stream.iterator(answer[0]["ShardId"]), at_least=3)
    by_number = {record["SequenceNumber"]: record["Data"] for record in records}
    assert [by_number[entry["SequenceNumber"]] for entry in answer] == data


def test_empty_data_is_accepted(stream: Stream) -> None:
    """The data of a record may have no bytes."""
    put = stream.put(b"", hash_key=0)
    records = stream.read(stream.iterator(put["ShardId"]), at_least=1)
    assert b"" in {record["Data"] for record in records}


def test_sequence_number_is_canonical(stream: Stream) -> None:
    """A sequence number is a decimal number without leading zeros."""
    assert re.fullmatch(r"0|[1-9]\d{0,128}", stream.put(hash_key=0)["SequenceNumber"])


def test_sequence_number_has_56_digits(stream: Stream) -> None:
    """The examples in the documentation all have 56 digits, far beyond 64 bits."""
    assert len(stream.put(hash_key=0)["SequenceNumber"]) == 56


def test_sequence_numbers_rise_with_gaps(stream: Stream) -> None:
    """Serial puts into a shard get rising numbers, which do not follow each other closely."""
    numbers: list[int] = []
    for _ in range(5):
        ordering = {"SequenceNumberForOrdering": str(numbers[-1])} if numbers else {}
        put = stream.client.put_record(
            StreamName=stream.name, PartitionKey=KEY, Data=b"x", ExplicitHashKey="0", **ordering
        )
        numbers.append(int(put["SequenceNumber"]))
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert min(gaps) > 1


def test_sequence_numbers_are_unique_in_the_stream(stream: Stream) -> None:
    """No two records of a stream have the same number, be they in one shard or in two."""
    puts = [stream.put(hash_key=key) for key in (0, HASH_KEYS - 1) * 3]
    assert len({put["SequenceNumber"] for put in puts}) == len(puts)


def test_500_records_are_accepted(stream: Stream, fresh: int) -> None:
    """One PutRecords request may have 500 records."""
    assert throttled(put_all(stream, [entries(500, 10, hash_key=fresh)])) == []


def test_501_records_are_refused(stream: Stream) -> None:
    """One PutRecords request may have no more than 500 records; none of them is written."""
    with refused(*INVALID):
        stream.client.put_records(StreamName=stream.name, Records=entries(501, 10))


def test_partition_key_has_at_most_256_characters(stream: Stream) -> None:
    """Characters count, not bytes: 256 of them are accepted, 257 are not."""
    put = {"StreamName": stream.name, "Data": b"x", "ExplicitHashKey": "0"}
    stream.client.put_record(PartitionKey="é" * 256, **put)
    with refused(*INVALID):
        stream.client.put_record(PartitionKey="x" * 257, **put)


def test_record_of_1_mib_is_accepted(stream: Stream, fresh: int) -> None:
    """Data and partition key together may have 1 MiB."""
    (entry,) = entries(1, MIB, hash_key=fresh)
    stream.client.put_record(StreamName=stream.name, **entry)


def test_record_over_1_mib_is_refused(stream: Stream) -> None:
    """Data and partition key together may have no more than 1 MiB, be the data alone in it."""
    (entry,) = entries(1, MIB + 1)
    with refused(*INVALID):
        stream.client.put_record(StreamName=stream.name, **entry)


def test_data_over_1_mib_is_refused(stream: Stream) -> None:
    """Data alone may have no more than 1 MiB."""
    with refused(*INVALID):
        stream.put(b"x" * (MIB + 1))


def test_request_with_a_record_that_is_too_large_is_refused(stream: Stream) -> None:
    """One record that is too large makes a PutRecords request invalid, with all in it."""
    with refused(*INVALID):
        stream.put_many(b"small", b"x" * (MIB + 1))


def test_record_size_limit_can_be_raised(target: Target, stream: Stream) -> None:
    """After UpdateMaxRecordSize a stream takes records of up to 10 MiB."""
    target.client.update_max_record_size(StreamARN=stream.arn, MaxRecordSizeInKiB=2048)
    stream.wait_until_active()
    assert stream.summary()["MaxRecordSizeInKiB"] == 2048
    target.pass_time(2)
    stream.put(b"x" * (MIB + 1))
    target.client.update_max_record_size(StreamARN=stream.arn, MaxRecordSizeInKiB=1024)
    stream.wait_until_active()


@pytest.mark.takes(20)
def test_request_of_10_mib_is_accepted(stream: Stream, fresh: int) -> None:
    """A PutRecords request may have 10 MiB, though a shard may not take all of it at once."""
    records = entries(10, MIB, hash_key=fresh)
    answer = stream.client.put_records(StreamName=stream.name, Records=records)
    assert len(answer["Records"]) == 10


@pytest.mark.takes(20)
def test_request_over_10_mib_is_refused(stream: Stream) -> None:
    """A PutRecords request may have no more than 10 MiB, with the partition keys."""
    with refused(*INVALID):
        stream.client.put_records(
            StreamName=stream.name, Records=[*entries(10, MIB), *entries(1, 10)]
        )


def test_shard_takes_1000_records_a_second(stream: Stream, unused: Iterator[int]) -> None:
    """Beyond 1,000 records a second a shard's records fail, each by itself; other shards' do not.

    What failed is not stored, and a second later there is room again.
    """
    hot, cold = next(unused), next(unused)
    request = [*entries(450, 10, hash_key=hot), *entries(5, 10, hash_key=cold)]
    answers = put_all(stream, [request] * 3)
    failed = throttled(answers)
    assert failed
    assert {(request * 3)[i]["ExplicitHashKey"] for i in failed} == {str(hot)}
    assert not any("SequenceNumber" in answers[i] for i in failed)
    assert all(stream.name in answers[i]["ErrorMessage"] for i in failed)

    accepted = [entry for entry in answers if not entry.get("ErrorCode")]
    found = {
        record["SequenceNumber"]
        for shard in {entry["ShardId"] for entry in accepted}
        for record in stream.read(stream.iterator(shard), at_least=1)
    }
    assert found == {entry["SequenceNumber"] for entry in accepted}
    stream.target.pass_time(1.1)
    assert throttled(put_all(stream, [entries(1, 10, hash_key=hot)])) == []


def test_shard_takes_1_mib_a_second(stream: Stream, fresh: int) -> None:
    """Beyond 1 MiB a second a shard's records fail, each by itself."""
    assert throttled(put_all(stream, [entries(2, 600_000, hash_key=fresh)]))


def test_put_record_beyond_the_limit_is_throttled(stream: Stream, fresh: int) -> None:
    """PutRecord gets ProvisionedThroughputExceededException where a shard has no room."""
    (entry,) = entries(1, 600_000, hash_key=fresh)
    with stream.target.unpaced(), refused("ProvisionedThroughputExceededException"):
        for _ in range(2):
            stream.client.put_record(StreamName=stream.name, **entry)
