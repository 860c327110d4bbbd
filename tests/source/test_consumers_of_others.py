"""``registeredConsumerId``: a consumer that somebody else registered, for each stream its own."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import ConsumerError
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered, registered


def consumers(kinesis: KinesisServer, stream: str = STREAM) -> list[str]:
    arn = kinesis.call("DescribeStreamSummary", StreamName=stream)["StreamDescriptionSummary"]
    listed = kinesis.call("ListStreamConsumers", StreamARN=arn["StreamARN"])["Consumers"]
    return [c["ConsumerName"] for c in listed]


@pytest.mark.parametrize("form", ["name", "arn"])
def test_it_is_used_and_left_as_it_is(
    kinesis: KinesisServer, start_query: StartQuery, form: str
) -> None:
    """None is registered, none is removed, whatever the query's end."""
    _, arn = registered(kinesis, STREAM, "theirs")
    kinesis.put(STREAM, *numbered(1, 5))
    before = len(kinesis.calls.calls("RegisterStreamConsumer"))
    query = start_query(kinesis, registeredConsumerId="theirs" if form == "name" else arn)
    assert query.read_until(5) == numbered(1, 5)
    query.close()

    assert consumers(kinesis) == ["theirs"]
    assert len(kinesis.calls.calls("RegisterStreamConsumer")) == before
    used = {call.request["ConsumerARN"] for call in kinesis.calls.calls("SubscribeToShard")}
    assert used == {arn}


def test_each_stream_has_its_own(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """In the order of the streams."""
    kinesis.create_stream("returns", 1)
    ids = [registered(kinesis, stream, f"of-{stream}")[1] for stream in (STREAM, "returns")]
    kinesis.put(STREAM, *numbered(1, 2))
    kinesis.put("returns", *numbered(3, 4))
    query = start_query(kinesis, streamName=f"{STREAM},returns", registeredConsumerId=",".join(ids))
    assert sorted(query.read_until(4)) == numbered(1, 4)


def test_one_that_is_not_there_is_not_made(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """A name mistyped is told."""
    query = start_query(kinesis, registeredConsumerId="nobody")
    query.step()
    with pytest.raises(ConsumerError, match="nobody"):
        query.step()
    assert consumers(kinesis) == []
