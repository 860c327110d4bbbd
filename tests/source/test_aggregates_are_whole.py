"""Aggregates of the KPL, as far as batches go: records of their own that are never parted."""

from __future__ import annotations

import pytest

from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, STREAM
from tests.support.aggregates import User, aggregate

SIZE = 10


def aggregated(first: int, last: int) -> bytes:
    return aggregate(*(User("key", b"%d" % n) for n in range(first, last + 1)))


@pytest.mark.parametrize("limit", ["1", "7", "10", "15", "25"])
@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_a_limit_does_not_cut_one(
    kinesis: KinesisServer, start_query: StartQuery, limit: str, mode: str
) -> None:
    """A batch has it or has it not; one larger than the limit comes alone."""
    for i in range(6):
        kinesis.put(STREAM, aggregated(i * SIZE + 1, (i + 1) * SIZE))
    query = start_query(kinesis, maxRecordsPerTrigger=limit, consumerMode=mode)

    assert query.read_until(60) == [b"%d" % n for n in range(1, 61)]
    for rows in query.batches():
        assert len(rows) % SIZE == 0
        assert len(rows) <= max(SIZE, int(limit))


def test_they_count_by_their_user_records(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """Plain records between them count as one each."""
    for i in range(4):
        kinesis.put(STREAM, aggregated(i * SIZE + 1, (i + 1) * SIZE), b"plain")
    query = start_query(kinesis, maxRecordsPerTrigger="12")
    query.read_until(44)
    assert max(len(rows) for rows in query.batches()) <= 12
    assert query.coordinator.statistics()["shards"][FIRST]["records"] == 44


def test_they_come_as_they_are_where_nobody_wants_them_parted(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """``deaggregate=false`` hands on the bytes that were written."""
    whole = aggregated(1, 5)
    kinesis.put(STREAM, whole, b"plain")
    query = start_query(kinesis, deaggregate="false")
    assert query.read_until(2) == [whole, b"plain"]
