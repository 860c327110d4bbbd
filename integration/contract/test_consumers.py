"""The life of an enhanced fan-out consumer, and how it is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from integration.contract.conftest import MakeStream
from integration.contract.stream import Stream, refused
from integration.contract.targets import Target


@pytest.fixture(scope="module")
def stream(target: Target) -> Iterator[Stream]:
    """A stream for consumers of different names."""
    with target.stream() as made:
        yield made


@pytest.fixture(scope="module")
def arn(stream: Stream) -> str:
    """The stream's ARN."""
    return stream.arn


@pytest.fixture(scope="module")
def consumer(stream: Stream) -> str:
    """The ARN of an ACTIVE consumer named `steady`."""
    return stream.consumer("steady")


def wait_until_gone(stream: Stream, consumer: str) -> None:
    def gone() -> bool:
        try:
            stream.consumer_status(consumer)
        except stream.client.exceptions.ResourceNotFoundException:
            return True
        return False

    stream.target.wait_until(gone, what=f"{consumer} is gone")


def test_new_consumer_is_creating_then_active(stream: Stream, arn: str) -> None:
    """RegisterStreamConsumer returns at once with the consumer CREATING; it is ACTIVE later."""
    answer = stream.client.register_stream_consumer(StreamARN=arn, ConsumerName="new")
    consumer = answer["Consumer"]
    assert consumer["ConsumerName"] == "new"
    assert consumer["ConsumerStatus"] == "CREATING"
    assert stream.consumer_status(consumer["ConsumerARN"]) == "CREATING"
    stream.wait_for_consumer(consumer["ConsumerARN"])


def test_consumer_arn_is_made_of_stream_name_and_time(arn: str, consumer: str) -> None:
    """The ARN is the stream's with the consumer's name and the time of its creation."""
    assert re.fullmatch(re.escape(f"{arn}/consumer/steady:") + r"\d+", consumer)


def test_consumer_is_described_by_arn_or_name(stream: Stream, arn: str, consumer: str) -> None:
    """Its own ARN alone will do, and so will the stream's ARN with the consumer's name."""
    describe = stream.client.describe_stream_consumer
    by_arn = describe(ConsumerARN=consumer)["ConsumerDescription"]
    by_name = describe(StreamARN=arn, ConsumerName="steady")["ConsumerDescription"]
    assert by_arn == by_name
    assert (by_arn["ConsumerName"], by_arn["ConsumerARN"]) == ("steady", consumer)
    assert (by_arn["StreamARN"], by_arn["ConsumerStatus"]) == (arn, "ACTIVE")


def test_name_in_use_is_refused(stream: Stream, arn: str, consumer: str) -> None:
    """A second consumer of one name on one stream gets ResourceInUseException."""
    del consumer
    with refused("ResourceInUseException"):
        stream.client.register_stream_consumer(StreamARN=arn, ConsumerName="steady")


def test_name_belongs_to_its_stream(stream: Stream, make_stream: MakeStream, consumer: str) -> None:
    """Another stream may have a consumer of the same name."""
    del stream
    assert make_stream().consumer("steady") != consumer


def test_consumer_is_deregistered_by_arn(stream: Stream) -> None:
    """DeregisterStreamConsumer returns at once with the consumer DELETING; it is gone later."""
    consumer = stream.consumer("by-arn")
    stream.client.deregister_stream_consumer(ConsumerARN=consumer)
    assert stream.consumer_status(consumer) == "DELETING"
    wait_until_gone(stream, consumer)


def test_consumer_is_deregistered_by_name(stream: Stream, arn: str) -> None:
    """The stream's ARN with the consumer's name will do."""
    consumer = stream.consumer("by-name")
    stream.client.deregister_stream_consumer(StreamARN=arn, ConsumerName="by-name")
    wait_until_gone(stream, consumer)


def test_consumer_registered_anew_is_another(stream: Stream) -> None:
    """A name can be used again after its consumer is gone, and the new one has a new ARN."""
    first = stream.consumer("again")
    stream.target.pass_time(1.1)
    stream.client.deregister_stream_consumer(ConsumerARN=first)
    wait_until_gone(stream, first)
    second = stream.consumer("again")
    assert second != first
    with refused("ResourceNotFoundException"):
        stream.consumer_status(first)


def test_unknown_consumer_is_not_found(stream: Stream, arn: str) -> None:
    """Describing or deregistering a consumer that is not there gets ResourceNotFoundException."""
    for unknown in (
        {"ConsumerARN": f"{arn}/consumer/unknown:1600000000"},
        {"StreamARN": arn, "ConsumerName": "unknown"},
    ):
        with refused("ResourceNotFoundException"):
            stream.client.describe_stream_consumer(**unknown)
        with refused("ResourceNotFoundException"):
            stream.client.deregister_stream_consumer(**unknown)


def test_consumer_of_an_unknown_stream_is_not_found(stream: Stream, arn: str) -> None:
    """A consumer cannot be registered on a stream that is not there."""
    with refused("ResourceNotFoundException"):
        stream.client.register_stream_consumer(StreamARN=f"{arn}-unknown", ConsumerName="one")


def test_consumers_are_listed_in_pages(make_stream: MakeStream) -> None:
    """ListStreamConsumers gives at most MaxResults, and NextToken leads to the others."""
    stream = make_stream()
    arn = stream.arn
    expected = {stream.consumer(name) for name in ("a", "b", "c")}
    page = stream.client.list_stream_consumers(StreamARN=arn, MaxResults=2)
    assert len(page["Consumers"]) == 2
    found = [consumer["ConsumerARN"] for consumer in page["Consumers"]]
    page = stream.client.list_stream_consumers(StreamARN=arn, NextToken=page["NextToken"])
    found += [consumer["ConsumerARN"] for consumer in page["Consumers"]]
    assert not page.get("NextToken")
    assert sorted(found) == sorted(expected)


def test_five_consumers_are_created_at_a_time_and_twenty_in_all(make_stream: MakeStream) -> None:
    """The sixth while five are CREATING, and the 21st of a stream, get LimitExceededException."""
    stream = make_stream()
    arn = stream.arn

    def register(number: int) -> str | None:
        """The consumer's ARN; None where it is refused."""
        try:
            answer = stream.client.register_stream_consumer(
                StreamARN=arn, ConsumerName=f"consumer-{number}"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "LimitExceededException":
                return None
            raise
        return answer["Consumer"]["ConsumerARN"]

    # At once, since a server may be done with the first while a slow client asks for the sixth.
    with ThreadPoolExecutor(6) as threads:
        for first in range(0, 18, 6):
            answers = list(threads.map(register, range(first, first + 6)))
            creating = [answer for answer in answers if answer]
            assert len(creating) == 5
            for consumer in creating:
                stream.wait_for_consumer(consumer)
    last = [register(number) for number in range(18, 23)]
    for consumer in last:
        assert consumer
        stream.wait_for_consumer(consumer)
    assert register(23) is None
