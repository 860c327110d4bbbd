"""Control calls about consumers: what is asked, and what answers become."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesis_ds.aws.consumers import (
    consumer_name,
    deregister_consumer,
    registered_consumer,
    serving_consumer,
)
from kinesis_ds.errors import (
    AccessError,
    ConsumerError,
    KinesisConnectorError,
)
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.testing import ManualClock
from tests.support.control_answers import Answers, refused
from tests.support.virtual_time import run_in_virtual_time

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
THEIRS = f"{ARN}/consumer/theirs:1600000000"
INFO = StreamInfo("orders", ARN, 1, "ACTIVE", None)
BY_ARN = StreamId(arn=ARN)


def described(**members: Any) -> dict[str, Any]:
    told = {"ConsumerStatus": "ACTIVE", "ConsumerARN": THEIRS, "StreamARN": ARN, **members}
    return {"ConsumerDescription": told}


def registered(client: Answers, given: str) -> str:
    work = registered_consumer(client, INFO, given, 5.0, ManualClock())  # type: ignore[arg-type]
    return run_in_virtual_time(work)


def test_a_consumer_given_by_arn_is_asked_for_by_arn() -> None:
    """Across accounts there is no other way."""
    client = Answers(described())

    assert registered(client, THEIRS) == THEIRS
    assert client.asked == [("describe_stream_consumer", {"ConsumerARN": THEIRS})]


def test_a_consumer_given_by_name_is_asked_for_by_the_streams_arn() -> None:
    """Which names account and region as well."""
    client = Answers(described())

    assert registered(client, "theirs") == THEIRS
    assert client.asked == [
        ("describe_stream_consumer", {"ConsumerName": "theirs", "StreamARN": ARN})
    ]


def test_a_consumer_that_says_another_stream_is_refused() -> None:
    """Whatever its ARN looks like."""
    with pytest.raises(ConsumerError, match="belongs to arn:other"):
        registered(Answers(described(StreamARN="arn:other")), THEIRS)


@pytest.mark.parametrize("given", ["arn:aws:kinesis:eu-central-1:123456789012:thing", "arn:x"])
def test_an_arn_that_is_no_consumers_is_refused(given: str) -> None:
    """Without a call."""
    client = Answers(described())
    with pytest.raises(ConsumerError, match="is not the ARN of a consumer"):
        registered(client, given)
    assert client.asked == []


def test_a_denied_description_is_told_at_once() -> None:
    """It does not pass by waiting."""
    client = Answers(refused("AccessDeniedException"))
    with pytest.raises(AccessError, match="DescribeStreamConsumer"):
        registered(client, "theirs")
    assert len(client.asked) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (described(), True),
        (described(ConsumerStatus="DELETING"), False),
        (described(ConsumerARN=THEIRS + "1"), False),
        (refused("ResourceNotFoundException"), False),
    ],
    ids=["active", "deleting", "registered again", "gone"],
)
def test_which_consumer_serves(answer: dict[str, Any] | Exception, expected: bool) -> None:
    """The very one that was subscribed with, and no other of its name."""
    client = Answers(answer)
    work = serving_consumer(client, INFO, THEIRS)  # type: ignore[arg-type]

    assert run_in_virtual_time(work) is expected
    assert client.asked == [("describe_stream_consumer", {"ConsumerARN": THEIRS})]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(THEIRS, "theirs"), (f"{ARN}/consumer/old-style", "old-style"), ("theirs", "theirs")],
)
def test_the_name_in_an_arn(given: str, expected: str) -> None:
    """Without the time of registration."""
    assert consumer_name(given) == expected


def deregister(client: Answers, within_s: float = 60.0) -> None:
    async def main() -> None:
        await asyncio.wait_for(deregister_consumer(client, INFO, "mine"), within_s)  # type: ignore[arg-type]

    run_in_virtual_time(main())


def test_deregistering_that_is_throttled_is_tried_again() -> None:
    """An idle consumer is billed; five calls a second are shared with the whole stream."""
    client = Answers(refused("LimitExceededException"), refused("InternalFailure", 500), {})
    deregister(client)

    assert len(client.asked) == 3


def test_deregistering_lasts_as_long_as_the_caller_waits() -> None:
    """Its time-out is an option of the user's."""
    with pytest.raises(asyncio.TimeoutError):
        deregister(Answers(refused("LimitExceededException")), within_s=5.0)


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_deregistering_what_is_gone_is_done_and_what_is_denied_is_told(code: str) -> None:
    """Neither is tried again."""
    client = Answers(refused(code))
    if code == "ResourceNotFoundException":
        deregister(client)
    else:
        with pytest.raises(KinesisConnectorError, match="DeregisterStreamConsumer"):
            deregister(client)
    assert len(client.asked) == 1
