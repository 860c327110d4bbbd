"""Describing a stream and listing its shards: what is asked, and what answers become."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.errors import (
    InvalidRequestError,
    ProtocolError,
)
from kinesis_ds.plan.stream import StreamId, StreamInfo
from tests.support.control_answers import Answers, refused
from tests.support.virtual_time import run_in_virtual_time

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
THEIRS = f"{ARN}/consumer/theirs:1600000000"
INFO = StreamInfo("orders", ARN, 1, "ACTIVE", None)
BY_ARN = StreamId(arn=ARN)


def shards(*ids: str, token: str | None = None) -> dict[str, Any]:
    page: dict[str, Any] = {
        "Shards": [
            {
                "ShardId": shard_id,
                "SequenceNumberRange": {"StartingSequenceNumber": "1"},
                "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
            }
            for shard_id in ids
        ]
    }
    return {**page, "NextToken": token} if token else page


def listed(client: Answers, after: str | None = None) -> list[str]:
    return list(run_in_virtual_time(list_shards(client, BY_ARN, after)))  # type: ignore[arg-type]


def test_a_listing_may_begin_behind_a_shard() -> None:
    """Only its first page says so: the token remembers."""
    client = Answers(shards("b", token="more"), shards("c"))

    assert listed(client, "a") == ["b", "c"]
    assert client.asked == [
        ("list_shards", {"StreamARN": ARN, "ExclusiveStartShardId": "a"}),
        ("list_shards", {"NextToken": "more"}),
    ]


def test_a_token_that_is_too_old_begins_the_listing_again() -> None:
    """From its first page, and where it was to begin."""
    expired = refused("ExpiredNextTokenException")
    client = Answers(shards("b", token="old"), expired, shards("b", token="new"), shards("c"))

    assert listed(client, "a") == ["b", "c"]
    firsts = [request for _, request in client.asked if "NextToken" not in request]
    assert firsts == [{"StreamARN": ARN, "ExclusiveStartShardId": "a"}] * 2


def test_tokens_that_are_always_too_old_are_told() -> None:
    """A server whose tokens never work must not be asked for ever."""
    client = Answers(refused("ExpiredNextTokenException"))
    with pytest.raises(InvalidRequestError, match="ExpiredNextToken"):
        listed(client)
    assert len(client.asked) == 6


def test_another_refusal_is_told_at_once() -> None:
    """Only that one means that the same question may be asked again."""
    client = Answers(refused("InvalidArgumentException"))
    with pytest.raises(InvalidRequestError):
        listed(client)
    assert len(client.asked) == 1


def summary(**members: Any) -> dict[str, Any]:
    created = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    told = {
        "StreamName": "orders",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "StreamCreationTimestamp": created,
        **members,
    }
    return {"StreamDescriptionSummary": told}


@pytest.mark.parametrize(
    ("members", "expected"),
    [({"RetentionPeriodHours": 168}, 168), ({}, 24), ({"RetentionPeriodHours": None}, 24)],
)
def test_how_long_a_stream_keeps_records(members: dict[str, Any], expected: int) -> None:
    """A day where the server does not say."""
    client = Answers(summary(**members))
    found = run_in_virtual_time(describe_stream(client, BY_ARN))  # type: ignore[arg-type]

    assert found.retention_hours == expected


def test_a_senseless_retention_is_the_answers_fault() -> None:
    """And not a TypeError somewhere."""
    client = Answers(summary(RetentionPeriodHours="long"))
    with pytest.raises(ProtocolError):
        run_in_virtual_time(describe_stream(client, BY_ARN))  # type: ignore[arg-type]
