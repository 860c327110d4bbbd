"""A stream deleted and created again under its name: another stream, whose records are all new."""

from __future__ import annotations

import logging

import pytest

from kinesis_ds.errors import StreamNotFoundError, StreamRecreatedError
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered
from tests.support.polling import eventually


def delete(kinesis: KinesisServer) -> None:
    """With its consumers, and wait until it is gone."""
    kinesis.call("DeleteStream", StreamName=STREAM, EnforceConsumerDeletion=True)

    def gone() -> bool:
        return STREAM not in kinesis.call("ListStreams")["StreamNames"]

    eventually(gone, "the stream's deletion")


def create_again(kinesis: KinesisServer) -> None:
    delete(kinesis)
    kinesis.create_stream(STREAM, 2)


def test_it_is_told_to_a_query_that_comes_back(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """Its positions mean nothing in the new stream."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    create_again(kinesis)

    with pytest.raises(StreamRecreatedError, match=f"{STREAM} was deleted and created again"):
        start_query(kinesis).read_until(4)


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_with_the_users_leave_a_query_that_comes_back_reads_the_new_one(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """F22: from its oldest record, with one warning; the next restart is clean."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, consumerMode=mode)
    query.read_until(3)
    query.close()
    create_again(kinesis)
    kinesis.put(STREAM, *numbered(4, 9))

    with caplog.at_level(logging.WARNING):
        again = start_query(kinesis, consumerMode=mode, failOnDataLoss="false")
        again.read_until(9)
    again.close()
    assert sorted(again.data, key=int) == numbered(1, 9)
    assert sum("created again" in r.message for r in caplog.records) == 1

    kinesis.put(STREAM, *numbered(10, 12))
    third = start_query(kinesis, consumerMode=mode)
    third.read_until(12)
    assert sorted(third.data, key=int) == numbered(1, 12)


def test_it_is_told_to_a_query_that_reads(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """It was not looked at while there was none."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    with kinesis.down():
        create_again(kinesis)

    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        query.read_until(4)


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_with_the_users_leave_a_query_that_reads_begins_again(
    kinesis: KinesisServer, start_query: StartQuery, mode: str
) -> None:
    """Without a restart, with all of the new stream; a consumer is registered there, too."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, consumerMode=mode, failOnDataLoss="false")
    query.read_until(3)
    with kinesis.down():
        create_again(kinesis)
        kinesis.put(STREAM, *numbered(4, 9))

    query.read_until(9)
    assert sorted(query.data, key=int) == numbered(1, 9)


def test_with_the_users_leave_a_stream_begins_again_beside_one_that_has_news(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """Records of the other stream wait when it is noticed, so the next batch is planned at once."""
    kinesis.create_stream("returns", 1)
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.put("returns", *numbered(101, 103))
    query = start_query(kinesis, streamName=f"{STREAM},returns", failOnDataLoss="false")
    query.read_until(6)
    with kinesis.down():
        create_again(kinesis)
        kinesis.put(STREAM, *numbered(4, 9))

    def noticed() -> bool:
        shards = query.coordinator.statistics()["shards"]
        return any(s["state"] == "failed" for n, s in shards.items() if n.startswith(STREAM))

    def held() -> bool:
        return bool(query.coordinator.statistics()["pool"]["used_records"])

    eventually(noticed, "the new stream")
    kinesis.put("returns", *numbered(104, 105))
    eventually(held, "records of the other stream")
    query.read_until(14)
    assert sorted(query.data, key=int) == [*numbered(1, 9), *numbered(101, 105)]


def test_a_stream_that_is_only_deleted_ends_the_query(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """Whatever the user allows to be lost: there is nothing to read."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, failOnDataLoss="false")
    query.read_until(3)
    delete(kinesis)

    with pytest.raises(StreamNotFoundError, match=STREAM):
        query.read_until(4)
