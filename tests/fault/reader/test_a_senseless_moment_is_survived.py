"""A running query whose control calls are answered with something else for a moment (F47)."""

from __future__ import annotations

import pytest

from kinesis_ds.testing import AnswerWith, Fault, KinesisServer, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

PAGE = b"<html><body>Welcome to the proxy</body></html>"


def struck(kinesis: KinesisServer, operation: str) -> int:
    return sum(fault.operation == operation for fault, _ in kinesis.struck())


def test_senseless_lists_of_shards_end_no_query(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F47: four in a row, as of a subscription; then the children of a split are found."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, shardFetchInterval="1s")
    query.read_until(3)

    kinesis.add_faults(Fault(AnswerWith(PAGE), "ListShards", times=4))
    kinesis.split(STREAM, kinesis.open_shards(STREAM)[0])
    kinesis.put(STREAM, *numbered(4, 6))
    assert sorted(query.read_until(6)) == numbered(1, 6)
    assert struck(kinesis, "ListShards") == 4


def test_a_senseless_answer_explains_no_refusal(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F47: after three failures the cause is looked for; a look that tells nothing ends nothing."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)

    kinesis.add_faults(
        Fault(Refuse("InternalFailure", status=500), times=3),
        Fault(AnswerWith(PAGE), "DescribeStreamSummary"),
    )
    with kinesis.down():
        kinesis.put(STREAM, *numbered(4, 6))
    eventually(lambda: struck(kinesis, "DescribeStreamSummary"), "the cause was looked for")
    assert query.read_until(6) == numbered(1, 6)
