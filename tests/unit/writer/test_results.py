"""How the answer to a PutRecords request is read."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.errors import ProtocolError
from kinesis_ds.writer.records import Block, Record, Request, plain
from kinesis_ds.writer.results import (
    Rejected,
    Retry,
    ShardWrites,
    classify,
    merge,
    tally,
)
from tests.support.scheduling import Delivered, Verdict, answers_of, verdicts_of

OK = {"ShardId": "shardId-0", "SequenceNumber": "17"}


def verdicts(answer: Any, sent: int) -> list[Verdict]:
    return verdicts_of(classify(answer, sent))


def failed(code: str) -> dict[str, str]:
    return {"ErrorCode": code, "ErrorMessage": "said so"}


def test_each_record_gets_its_own_verdict_in_order() -> None:
    """Three kinds of answers are told apart, record by record."""
    throttled = failed("ProvisionedThroughputExceededException")
    refused = failed("InvalidArgumentException")

    assert verdicts({"Records": [throttled, OK, refused]}, 3) == [
        Retry("ProvisionedThroughputExceededException", "said so"),
        Delivered("shardId-0", "17"),
        Rejected("InvalidArgumentException", "said so"),
    ]


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "InternalFailure", "KMSThrottlingException"]
)
def test_passing_failures_are_worth_another_try(code: str) -> None:
    """Errors that the API documents as passing are sent again."""
    assert isinstance(verdicts({"Records": [failed(code)]}, 1)[0], Retry)


@pytest.mark.parametrize("code", ["InvalidArgumentException", "AccessDeniedException", "Brand-New"])
def test_unknown_codes_are_refusals(code: str) -> None:
    """A code that nobody has heard of is neither success nor something to try for ever."""
    assert isinstance(verdicts({"Records": [failed(code)]}, 1)[0], Rejected)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_failed_record_count_is_not_trusted(count: int) -> None:
    """LocalStack reports one failure for many; the entries decide."""
    answer = {"FailedRecordCount": count, "Records": [failed("InternalFailure"), OK]}

    assert [type(v) for v in verdicts(answer, 2)] == [Retry, Delivered]


@pytest.mark.parametrize("answer", [{}, {"Records": None}, {"Records": []}, {"Records": [OK] * 3}])
def test_a_wrong_number_of_results_is_never_success(answer: dict[str, Any]) -> None:
    """Without one result a record it is unknown which is whose."""
    with pytest.raises(ProtocolError, match="sent 2 records"):
        classify(answer, 2)


@pytest.mark.parametrize("entry", [{}, {"ShardId": "s"}, {"SequenceNumber": "1"}])
def test_a_result_without_a_sequence_number_is_no_delivery(entry: dict[str, str]) -> None:
    """Absence of an error is not proof."""
    assert isinstance(verdicts({"Records": [entry]}, 1)[0], Rejected)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        5,
        "stored",
        [OK],
        {**OK, "ShardId": 7},
        {**OK, "ShardId": True},
        {**OK, "SequenceNumber": 17},
        {**OK, "SequenceNumber": "seventeen"},
        {**OK, "SequenceNumber": "9" * 5000},
        {**OK, "ErrorCode": 0},
        {**OK, "ErrorCode": False},
        {**OK, "ErrorCode": []},
        failed("InternalFailure") | {"ErrorCode": ["InternalFailure"]},
    ],
)
def test_a_result_that_makes_no_sense_is_no_delivery(entry: Any) -> None:
    """It neither counts as stored nor ends the task with an error that asks for a bug report."""
    (verdict,) = verdicts({"Records": [entry]}, 1)

    assert isinstance(verdict, Rejected)
    assert len(verdict.message) < 300


@pytest.mark.parametrize("code", [None, ""])
def test_an_empty_error_code_is_none(code: str | None) -> None:
    """Some servers write the member where others leave it out."""
    assert verdicts({"Records": [{**OK, "ErrorCode": code}]}, 1) == [Delivered("shardId-0", "17")]


@pytest.mark.parametrize("answer", [None, [], [OK], "x", 1])
def test_an_answer_that_is_no_object_is_never_success(answer: Any) -> None:
    """Whatever parsed it."""
    with pytest.raises(ProtocolError, match="no results"):
        classify(answer, 1)


def test_tally_and_merge_compare_sequence_numbers_as_numbers() -> None:
    """ "9" comes before "10", whatever the order of the answers."""
    many = Record(b"", "k", None, size=50, row=0, rows=7, window_bytes=100)
    records = [
        *(plain(b"", "k", None, size, 0) for size in (1, 10)),
        many,
        plain(b"", "k", None, 9, 0),
    ]
    verdicts = [Delivered("a", "10"), Delivered("a", "9"), Delivered("b", "5"), Retry("x", "")]

    request = Request([*records[:2], many, Block.of(records[3:])], 0, 0.0)
    counted = tally("s", request, answers_of(verdicts))
    assert counted == [
        ShardWrites("s", "a", "9", "10", 2, 11),
        ShardWrites("s", "b", "5", "5", 7, 100),
    ]

    more = [
        ShardWrites(stream, "a", n, n, 1, 1) for stream, n in (("s", "8"), ("s", "11"), ("t", "1"))
    ]
    total = merge([*counted, *more])
    assert total["s", "a"] == ShardWrites("s", "a", "8", "11", 4, 13)
    assert total["t", "a"] == more[2]
