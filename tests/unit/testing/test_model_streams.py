"""Streams in the double: their life, their descriptions, and what changes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.model import ARN, STARTED_S, Model, data_of, entry, shard_id


def status(model: Model, stream: str = "s") -> str:
    summary = model.ask("DescribeStreamSummary", stream)["StreamDescriptionSummary"]
    return str(summary["StreamStatus"])


def test_a_stream_is_created_and_deleted_in_time() -> None:
    """It is CREATING, ACTIVE, DELETING and gone, and is told from its successor by its creation."""
    model = Model(stream_ready_s=2.0)
    model.ask("CreateStream", ShardCount=1)

    assert status(model) == "CREATING"
    assert model.code("PutRecord", **entry()) == "ResourceNotFoundException"
    assert model.code("ListShards") == "ResourceInUseException"
    assert model.ask("DescribeStream")["StreamDescription"]["Shards"] == []
    model.settle()
    assert status(model) == "ACTIVE"
    first = model.ask("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert first["StreamCreationTimestamp"] == STARTED_S

    model.ask("DeleteStream")
    assert status(model) == "DELETING"
    assert model.code("PutRecord", **entry()) == "ResourceNotFoundException"
    assert model.code("CreateStream", ShardCount=1) == "ResourceInUseException"
    model.settle()
    assert model.code("DescribeStreamSummary") == "ResourceNotFoundException"


def test_a_stream_created_anew_within_the_same_second_is_another() -> None:
    """Its creation time is another, and neither iterators nor numbers of the old one work on it."""
    model = Model(stream_ready_s=0.1)
    model.create()
    [number] = model.put(b"old")
    iterator = model.iterator(0, "TRIM_HORIZON")
    created = model.ask("DescribeStreamSummary")["StreamDescriptionSummary"]
    model.ask("DeleteStream")
    model.settle()
    model.create()

    again = model.ask("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert again["StreamCreationTimestamp"] > created["StreamCreationTimestamp"]
    assert model.code("GetRecords", None, ShardIterator=iterator) == "ResourceNotFoundException"
    position = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
    refused = model.code("GetShardIterator", ShardId=shard_id(0), **position)
    assert refused == "InvalidArgumentException"
    when = created["StreamCreationTimestamp"]
    assert model.code("ListShards", StreamCreationTimestamp=when) == "ResourceNotFoundException"
    assert len(model.shards(StreamCreationTimestamp=again["StreamCreationTimestamp"])) == 1


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"ShardCount": 1}, "ok"),
        ({}, "ValidationException"),
        ({"ShardCount": 0}, "ValidationException"),
        ({"ShardCount": "1"}, "SerializationException"),
        ({"ShardCount": 20_001}, "LimitExceededException"),
        ({"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}, "ok"),
        ({"StreamModeDetails": {"StreamMode": "OTHER"}}, "ValidationException"),
        (
            {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "ShardCount": 2},
            "InvalidArgumentException",
        ),
        ({"ShardCount": 1, "RecordDistributionStrategy": "AUTO"}, "InvalidArgumentException"),
        ({"ShardCount": 1, "MaxRecordSizeInKiB": 10_241}, "ValidationException"),
    ],
)
def test_create_stream(members: dict[str, Any], expected: str) -> None:
    """What a new stream may be."""
    assert Model().code("CreateStream", **members) == expected


def test_an_on_demand_stream_begins_with_four_shards() -> None:
    """And is not resharded by hand."""
    model = Model()
    model.ask("CreateStream", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    model.settle()

    assert len(model.shards()) == 4
    members = {"ShardToSplit": shard_id(0), "NewStartingHashKey": "100"}
    assert model.code("SplitShard", **members) == "ValidationException"


def test_at_most_five_streams_are_created_at_once() -> None:
    """The sixth waits for one of them."""
    model = Model(enforce_limits=False)
    codes = [model.code("CreateStream", f"s{i}", ShardCount=1) for i in range(6)]

    assert codes == ["ok"] * 5 + ["LimitExceededException"]
    model.settle()
    assert model.code("CreateStream", "s5", ShardCount=1) == "ok"


def test_a_stream_with_consumers_is_deleted_only_when_that_is_meant() -> None:
    """EnforceConsumerDeletion takes the consumers along."""
    model = Model()
    model.create()
    arn = model.register()

    assert model.code("DeleteStream") == "ResourceInUseException"
    assert model.code("DeleteStream", EnforceConsumerDeletion=True) == "ok"
    model.settle()
    assert model.code("DescribeStreamConsumer", None, ConsumerARN=arn).startswith("ResourceNotF")


def test_streams_are_listed_in_pages() -> None:
    """By name or by token, each page after the last."""
    model = Model(enforce_limits=False, iterator_life_s=60)
    for i in range(5):
        model.create(stream=f"s{i}")
    first = model.ask("ListStreams", None, Limit=2)
    by_name = model.ask("ListStreams", None, Limit=2, ExclusiveStartStreamName="s1")
    by_token = model.ask("ListStreams", None, NextToken=first["NextToken"])

    assert (first["StreamNames"], first["HasMoreStreams"]) == (["s0", "s1"], True)
    assert by_name["StreamNames"] == ["s2", "s3"]
    assert by_token["StreamNames"] == ["s2", "s3", "s4"]
    assert "NextToken" not in by_token
    assert by_token["StreamSummaries"][0]["StreamStatus"] == "ACTIVE"
    model.now += 61
    expired = model.code("ListStreams", None, NextToken=first["NextToken"])
    assert expired == "ExpiredNextTokenException"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"StreamName": "s"}, "ok"),
        ({"StreamARN": f"{ARN}s"}, "ok"),
        ({"StreamName": "s", "StreamARN": f"{ARN}s"}, "ok"),
        ({"StreamName": "t", "StreamARN": f"{ARN}s"}, "InvalidArgumentException"),
        ({"StreamName": "t"}, "ResourceNotFoundException"),
        ({"StreamARN": ARN.replace("us-east-1", "us-east-2") + "s"}, "ResourceNotFoundException"),
        ({"StreamARN": "s"}, "ValidationException"),
        ({"StreamName": "a b"}, "ValidationException"),
        ({}, "InvalidArgumentException"),
    ],
)
def test_a_stream_is_named_in_two_ways(members: dict[str, Any], expected: str) -> None:
    """By name, by ARN, or by both if they agree."""
    model = Model()
    model.create()

    assert model.code("DescribeStreamSummary", None, **members) == expected


def test_describe_stream_shows_shards_in_pages() -> None:
    """At most 100 at once."""
    model = Model()
    model.create(150)
    page = model.ask("DescribeStream", Limit=1000)["StreamDescription"]
    last = page["Shards"][-1]["ShardId"]
    rest = model.ask("DescribeStream", ExclusiveStartShardId=last)["StreamDescription"]

    assert (len(page["Shards"]), page["HasMoreShards"]) == (100, True)
    assert (len(rest["Shards"]), rest["HasMoreShards"]) == (50, False)


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("SplitShard", {"ShardToSplit": shard_id(0), "NewStartingHashKey": "9999"}),
    ("MergeShards", {"ShardToMerge": shard_id(0), "AdjacentShardToMerge": shard_id(1)}),
    ("UpdateShardCount", {"TargetShardCount": 4, "ScalingType": "UNIFORM_SCALING"}),
    ("UpdateMaxRecordSize", {"StreamARN": ARN + "s", "MaxRecordSizeInKiB": 2048}),
    (
        "UpdateStreamMode",
        {"StreamARN": ARN + "s", "StreamModeDetails": {"StreamMode": "ON_DEMAND"}},
    ),
    ("StartStreamEncryption", {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}),
    ("StopStreamEncryption", {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}),
]
AT_ONCE: list[tuple[str, dict[str, Any]]] = [
    ("IncreaseStreamRetentionPeriod", {"RetentionPeriodHours": 48}),
    ("AddTagsToStream", {"Tags": {"a": "b"}}),
    ("DeleteStream", {}),
    ("RegisterStreamConsumer", {"StreamARN": ARN + "s", "ConsumerName": "c"}),
]


@pytest.mark.parametrize(("operation", "members"), CHANGES, ids=[c[0] for c in CHANGES])
def test_one_change_at_a_time(operation: str, members: dict[str, Any]) -> None:
    """A stream that is UPDATING takes records, and no other change until it is ACTIVE again."""
    model = Model()
    model.create(2)
    assert model.code(operation, **members) == "ok"

    assert status(model) == "UPDATING"
    assert model.code("PutRecord", **entry()) == "ok"
    refused = {model.code(other, **more) for other, more in CHANGES + AT_ONCE}
    assert refused == {"ResourceInUseException"}
    model.settle()
    assert status(model) == "ACTIVE"


def test_retention_changes_at_once_and_brings_nothing_back() -> None:
    """Records older than the shorter period stay away when it is made longer."""
    model = Model()
    model.create()
    model.put(b"early")
    model.now += 23 * 3600
    model.put(b"late")

    assert model.code("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48) == "ok"
    model.now += 2 * 3600
    assert data_of(model.get(model.iterator(0, "TRIM_HORIZON"))["Records"]) == [b"early", b"late"]
    assert model.code("DecreaseStreamRetentionPeriod", RetentionPeriodHours=24) == "ok"
    assert model.code("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48) == "ok"
    assert data_of(model.get(model.iterator(0, "TRIM_HORIZON"))["Records"]) == [b"late"]


@pytest.mark.parametrize(
    ("operation", "hours", "expected"),
    [
        ("IncreaseStreamRetentionPeriod", 24, "InvalidArgumentException"),
        ("IncreaseStreamRetentionPeriod", 8760, "ok"),
        ("IncreaseStreamRetentionPeriod", 8761, "InvalidArgumentException"),
        ("DecreaseStreamRetentionPeriod", 24, "InvalidArgumentException"),
        ("DecreaseStreamRetentionPeriod", 23, "InvalidArgumentException"),
    ],
)
def test_bounds_of_retention(operation: str, hours: int, expected: str) -> None:
    """A day to a year, and really a change."""
    model = Model()
    model.create()

    assert model.code(operation, RetentionPeriodHours=hours) == expected


def test_encryption_shows_on_records_written_under_it() -> None:
    """And in the answers to writers, from the time the stream is ACTIVE again."""
    model = Model()
    model.create()
    key = {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}
    model.ask("StartStreamEncryption", **key)
    before = model.ask("PutRecord", **entry(b"plain"))
    model.settle()
    during = model.ask("PutRecords", Records=[entry(b"secret")])
    model.ask("StopStreamEncryption", **key)
    model.settle()
    after = model.ask("PutRecord", **entry(b"open"))

    records = model.get(model.iterator(0, "TRIM_HORIZON"))["Records"]
    assert [r.get("EncryptionType") for r in records] == [None, "KMS", None]
    assert [a.get("EncryptionType") for a in (before, during, after)] == [None, "KMS", None]


@pytest.mark.parametrize(
    ("code", "operations"), [("KMSDisabledException", 4), ("KMSThrottlingException", 4)]
)
def test_a_key_out_of_order_stops_reading_and_writing(code: str, operations: int) -> None:
    """Descriptions go on; everything goes on when it is back."""
    model = Model()
    model.create()
    arn, iterator = model.register(), model.iterator(0, "TRIM_HORIZON")
    model.account.set_key_state("s", code)

    refused = [
        model.code("PutRecord", **entry()),
        model.code("PutRecords", Records=[entry()]),
        model.code("GetRecords", None, ShardIterator=iterator),
        model.subscribe_code(arn),
    ]
    assert refused == [code] * operations
    assert model.code("ListShards") == "ok"
    model.account.set_key_state("s", None)
    assert model.code("PutRecord", **entry()) == "ok"


def test_tags() -> None:
    """Kept, replaced, removed, listed in pages."""
    model = Model()
    model.ask("CreateStream", ShardCount=1, Tags={"a": "1"})
    model.settle()
    model.ask("AddTagsToStream", Tags={"b": "2", "c": "3"})
    model.ask("RemoveTagsFromStream", TagKeys=["b", "z"])

    first = model.ask("ListTagsForStream", Limit=1)
    assert first == {"Tags": [{"Key": "a", "Value": "1"}], "HasMoreTags": True}
    rest = model.ask("ListTagsForStream", ExclusiveStartTagKey="a")
    assert rest == {"Tags": [{"Key": "c", "Value": "3"}], "HasMoreTags": False}
    too_many = {f"t{i}": "" for i in range(49)}
    assert model.code("AddTagsToStream", Tags=too_many) == "InvalidArgumentException"


def test_describe_limits() -> None:
    """Counts of open shards and of on-demand streams."""
    model = Model()
    model.create(3)
    model.ask("CreateStream", "d", StreamModeDetails={"StreamMode": "ON_DEMAND"})

    limits = model.ask("DescribeLimits", None)
    assert (limits["OpenShardCount"], limits["OnDemandStreamCount"]) == (7, 1)


@pytest.mark.parametrize(
    ("operation", "stream", "per_second"),
    [
        ("DescribeStream", "s", 10),
        ("DescribeStreamSummary", "s", 20),
        ("ListStreams", None, 5),
        ("ListShards", "s", 1000),
    ],
)
def test_rates_of_calls(operation: str, stream: str | None, per_second: int) -> None:
    """So many a second; one more is refused, and after a while they are admitted again."""
    model = Model()
    model.create()
    codes = [model.code(operation, stream) for _ in range(per_second + 1)]

    assert codes == ["ok"] * per_second + ["LimitExceededException"]
    model.now += 1
    assert model.code(operation, stream) == "ok"


def test_without_limits_nothing_is_counted() -> None:
    """Neither by setting nor for calls of the test itself."""
    free = Model(enforce_limits=False)
    free.create()
    assert {free.code("DescribeStream") for _ in range(50)} == {"ok"}

    model = Model()
    model.create()
    for _ in range(50):
        model.account.call_unlimited("DescribeStream", {"StreamName": "s"}, model.now)
    assert model.code("DescribeStream") == "ok"


def test_denied_operations() -> None:
    """On one stream or on all, until allowed; the message names user, action and resource."""
    model = Model()
    model.create()
    model.create(stream="t")
    model.account.deny("PutRecord", "s")
    assert model.code("PutRecord", **entry()) == "AccessDeniedException"
    assert model.code("PutRecord", "t", **entry()) == "ok"

    model.account.deny("PutRecord")
    assert model.code("PutRecord", "t", **entry()) == "AccessDeniedException"
    model.account.allow("PutRecord")
    model.account.allow("PutRecord", "s")
    assert model.code("PutRecord", **entry()) == "ok"

    iterator = model.iterator(0, "LATEST")
    model.account.deny("GetRecords", "s")
    assert model.code("GetRecords", None, ShardIterator=iterator) == "AccessDeniedException"
    arn = model.register()
    model.account.deny("SubscribeToShard", "s")
    assert model.subscribe_code(arn) == "AccessDeniedException"


def test_an_operation_that_is_not_known() -> None:
    """Neither are those that need more than a call."""
    assert Model().code("CreateQueue") == "UnknownOperationException"
    assert Model().code("SubscribeToShard") == "UnknownOperationException"


def test_repr_tells_what_there_is() -> None:
    """Streams with their shards, and open subscriptions."""
    model = Model()
    model.create(2)
    model.subscribe(model.register())

    assert re.fullmatch(
        r"<Account \[<s 2 open of 2 shards>\] \[<s shardId-000000000000 c open>\]>",
        repr(model.account),
    )
