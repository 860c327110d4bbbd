"""What a refused call looks like, and which error answers which mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration.contract.stream import INVALID, Stream, refused
from integration.contract.targets import Target

SHARD = "shardId-000000000000"
ON_A_STREAM: dict[str, dict[str, Any]] = {
    "decrease_stream_retention_period": {"RetentionPeriodHours": 24},
    "delete_stream": {},
    "describe_stream": {},
    "describe_stream_summary": {},
    "get_shard_iterator": {"ShardId": SHARD, "ShardIteratorType": "LATEST"},
    "increase_stream_retention_period": {"RetentionPeriodHours": 48},
    "list_shards": {},
    "merge_shards": {"ShardToMerge": SHARD, "AdjacentShardToMerge": "shardId-000000000001"},
    "put_record": {"PartitionKey": "key", "Data": b"x"},
    "put_records": {"Records": [{"PartitionKey": "key", "Data": b"x"}]},
    "split_shard": {"ShardToSplit": SHARD, "NewStartingHashKey": "1"},
    "update_shard_count": {"TargetShardCount": 1, "ScalingType": "UNIFORM_SCALING"},
}


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream, for the mistakes that need one."""
    with target.stream() as made:
        yield made


@pytest.mark.parametrize("call", ON_A_STREAM)
def test_unknown_stream_is_not_found(target: Target, call: str) -> None:
    """Whatever is asked of a stream that is not there gets ResourceNotFoundException."""
    with refused("ResourceNotFoundException"):
        getattr(target.client, call)(StreamName="contract-unknown", **ON_A_STREAM[call])


def test_unknown_stream_by_arn_is_not_found(target: Target, stream: Stream) -> None:
    """An ARN that names no stream gets ResourceNotFoundException."""
    with refused("ResourceNotFoundException"):
        target.client.describe_stream_summary(StreamARN=f"{stream.arn}-unknown")


@pytest.mark.parametrize("call", ["describe_stream_summary", "list_shards", "put_record"])
def test_no_stream_at_all_is_refused(target: Target, call: str) -> None:
    """Either StreamName or StreamARN has to be given."""
    with refused(*INVALID):
        getattr(target.client, call)(**ON_A_STREAM[call])


@pytest.mark.parametrize("name", ["with space", "ä", "x" * 129], ids=["space", "letter", "long"])
def test_name_that_is_no_stream_name_is_refused(target: Target, name: str) -> None:
    """A stream's name has 1 to 128 of the characters a-z A-Z 0-9 _ . -"""
    with refused(*INVALID):
        target.client.create_stream(StreamName=name, ShardCount=1)


def test_consumer_name_with_other_characters_is_refused(target: Target, stream: Stream) -> None:
    """A consumer's name has the characters of a stream's."""
    with refused(*INVALID):
        target.client.register_stream_consumer(StreamARN=stream.arn, ConsumerName="with space")


def test_unknown_shard_is_not_found(target: Target, stream: Stream) -> None:
    """A split of a shard that the stream does not have gets ResourceNotFoundException."""
    with refused("ResourceNotFoundException"):
        target.client.split_shard(
            StreamName=stream.name, ShardToSplit="shardId-000000009999", NewStartingHashKey="1"
        )


def test_error_says_what_is_wrong(target: Target) -> None:
    """A mistake of the caller has HTTP status 400, a code and a message that names the stream."""
    with refused("ResourceNotFoundException") as caught:
        target.client.describe_stream_summary(StreamName="contract-unknown")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "contract-unknown" in caught.value.response["Error"]["Message"]


def test_every_answer_has_a_request_id(target: Target, stream: Stream) -> None:
    """Each answer, of success or not, has the header x-amzn-RequestId with another id."""
    headers = [
        stream.client.describe_stream_summary(StreamName=stream.name)["ResponseMetadata"][
            "HTTPHeaders"
        ]
        for _ in range(2)
    ]
    with refused("ResourceNotFoundException") as caught:
        target.client.describe_stream_summary(StreamName="contract-unknown")
    headers.append(caught.value.response["ResponseMetadata"]["HTTPHeaders"])
    assert len({header["x-amzn-requestid"] for header in headers}) == 3
