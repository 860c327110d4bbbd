"""Records from nothing to 10 MiB, and shards by the hundred with nothing in them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import KinesisServer, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import STREAM, numbered, put_to
from tests.support.polling import eventually

SHARDS = 200


@pytest.fixture(params=["efo", "polling"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def large(serve: Serve) -> KinesisServer:
    """A stream that takes records of 10 MiB."""
    kinesis = serve(Settings(enforce_limits=False))

    def described() -> Any:
        answer = kinesis.call("DescribeStreamSummary", StreamName=STREAM)
        return answer["StreamDescriptionSummary"]

    arn = described()["StreamARN"]
    kinesis.call("UpdateMaxRecordSize", StreamARN=arn, MaxRecordSizeInKiB=10 * 1024)
    eventually(lambda: described()["StreamStatus"] == "ACTIVE", "an active stream")
    return kinesis


def test_records_of_every_size(large: KinesisServer, start_query: StartQuery, mode: str) -> None:
    """Bit for bit; the largest is all that a record may be, its key taken off."""
    sizes = [0, 1, 2, 3, 4, 1000, MIB, 0, 10 * MIB - 1, 5, 3 * MIB]
    data = [random.Random(i).randbytes(size) for i, size in enumerate(sizes)]
    for one in data:
        large.put(STREAM, one, partition_key="k")
    query = start_query(large, consumerMode=mode)

    assert query.read_until(len(data)) == data


def test_the_largest_record_through_a_small_buffer(
    large: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """One that is larger than the whole bound passes alone; what follows it is read, too."""
    data = [*numbered(1, 3), b"z" * (10 * MIB - 1), *numbered(4, 6)]
    for one in data:
        large.put(STREAM, one, partition_key="k")
    query = start_query(large, consumerMode=mode, fetchBufferSize="1mb")

    assert query.read_until(len(data)) == data


def test_the_largest_record_is_read_again_from_kinesis(
    large: KinesisServer, start_query: StartQuery
) -> None:
    """By the task itself, when the agent is gone."""
    data = [b"a" * (10 * MIB - 1), b"b", b"c" * (10 * MIB - 1)]
    for one in data:
        large.put(STREAM, one, partition_key="k")
    query = start_query(large)
    query.once()
    assert query.data == data


@pytest.mark.each_transport
def test_empty_shards_are_left_alone(serve: Serve, start_query: StartQuery) -> None:
    """Two hundred shards with nothing in them make no batch, and one record comes through."""
    kinesis = serve(shards=SHARDS)
    query = start_query(kinesis)
    query.step()

    def streaming() -> bool:
        assert not query.step()
        shards = query.coordinator.statistics().get("shards", {})
        return len(shards) == SHARDS and all(s["state"] == "streaming" for s in shards.values())

    eventually(streaming, f"{SHARDS} subscriptions")
    for _ in range(50):
        assert not query.step()
    assert len(query.batches()) == 1

    put_to(kinesis, "shardId-000000000150", b"one")
    assert query.read_until(1) == [b"one"]
