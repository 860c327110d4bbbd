"""Answers of any content: an error of ours, or the truth.

Nothing that was not understood counts as a success, or as an end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.aws.answers import error_answer, json_object
from kinesis_ds.aws.read_range import read_range, shard_is_drained
from kinesis_ds.errors import (
    AccessError,
    InternalError,
    KinesisConnectorError,
    ProtocolError,
)
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, Position, parse_position
from kinesis_ds.writer.records import Item, Request, plain
from kinesis_ds.writer.results import Rejected, Retry, classify, merge, tally
from tests.support.hostile import (
    ANYTHING,
    FUZZ,
    Row,
    array,
    assert_ours,
    damaged,
    members,
    object_of,
    parsed,
    records_text,
    rows_in,
    rows_of,
)
from tests.support.scheduling import Delivered, verdicts_of
from tests.support.virtual_time import run_in_virtual_time

NO_MORE = AccessError("the script is over")


# --- GetRecords and GetShardIterator ------------------------------------------------------------

NEXT = st.sampled_from([b'"next"', b'"next"', b"null", b'""'])
PAGES = object_of(
    Records=st.just(b"[]") | records_text(),
    MillisBehindLatest=st.sampled_from([b"0", b"5"]),
    NextShardIterator=NEXT,
)
ITERATORS = st.just(b'{"ShardIterator":"first"}') | object_of(ShardIterator=ANYTHING) | ANYTHING


@dataclass
class Scripted:
    """Stands for a connection whose calls are answered with these bytes, one after the other."""

    pages: list[bytes]
    iterator: bytes = b'{"ShardIterator":"first"}'
    given: list[dict[str, Any]] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)

    async def call(self, operation: str, body: dict[str, Any], label: str) -> dict[str, Any]:
        if operation == "GetShardIterator":
            return json_object(self.iterator, operation, label)
        self.asked.append(body["ShardIterator"])
        if not self.pages:
            raise NO_MORE
        answer = json_object(self.pages.pop(0), operation, label)
        self.given.append(answer)
        return answer


class LoopClock:
    """The time of the running loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()


def read(connection: Scripted, start: Position, end: Position) -> tuple[list[Row], bool]:
    """The rows, and whether the end was reached without an error."""
    rows: list[Row] = []

    async def collect() -> None:
        batches = read_range(connection, "arn", "s", start, end, "shard s", LoopClock())  # type: ignore[arg-type]
        async for batch in batches:
            rows.extend(rows_in(batch))

    try:
        run_in_virtual_time(collect())
    except KinesisConnectorError as exc:
        assert_ours(exc)
        return rows, False
    return rows, True


@FUZZ
@given(
    st.lists(PAGES | damaged(PAGES), max_size=4),
    st.just(TRIM_HORIZON) | st.integers(0, 60).map(lambda n: After(str(n))),
    st.just(SHARD_END) | st.integers(0, 70).map(lambda n: After(str(n))),
)
def test_a_range_holds_what_the_answers_hold_and_ends_on_evidence(
    pages: list[bytes], start: Position, end: Position
) -> None:
    """Whatever the answers are: rows that they hold, and no end but what they say."""
    connection = Scripted(list(pages))
    rows, ended = read(connection, start, end)

    held = [item for answer in connection.given for item in _records(answer)]
    at = 0
    for row in rows:  # each further on than the one before
        while rows_of_or_none(held[at]) != [row]:
            at += 1
        at += 1
    numbers = [int(row[2]) for row in rows]
    assert numbers == sorted(numbers)
    assert all(isinstance(iterator, str) for iterator in connection.asked)
    if isinstance(start, After):
        assert all(n > start.number for n in numbers)
    if isinstance(end, After):
        assert all(n <= end.number for n in numbers)
    if ended:
        last = connection.given[-1]
        assert isinstance(last["Records"], list)
        says_so = last.get("NextShardIterator") in (None, "")
        found = [int(item["SequenceNumber"]) for item in last["Records"]]
        beyond = isinstance(end, After) and bool(found) and found[-1] >= end.number
        at_tip = not found and last.get("MillisBehindLatest") in (None, 0)
        assert says_so or beyond or (at_tip and isinstance(end, After))


def _records(answer: dict[str, Any]) -> list[Any]:
    found = answer.get("Records")
    return found if isinstance(found, list) else []


def rows_of_or_none(item: Any) -> list[Row] | None:
    try:
        return rows_of(item)
    except (AssertionError, AttributeError, KeyError, TypeError):
        return None


@FUZZ
@given(st.lists(PAGES | damaged(PAGES), max_size=3), ITERATORS)
def test_a_shard_is_drained_only_where_an_answer_says_so(
    pages: list[bytes], iterator: bytes
) -> None:
    """A list of records with nothing new in it, and no next iterator; not the absence of both."""
    connection = Scripted(list(pages), iterator)

    async def ask() -> bool:
        return await shard_is_drained(
            connection,  # type: ignore[arg-type]
            "arn",
            "s",
            After("70"),
            "shard s",
            LoopClock(),
        )

    try:
        drained = run_in_virtual_time(ask())
    except KinesisConnectorError as exc:
        assert_ours(exc)
        return
    last = connection.given[-1]
    assert isinstance(last["Records"], list)
    if drained:
        assert last.get("NextShardIterator") in (None, "")
        for answer in connection.given:
            assert all(int(item["SequenceNumber"]) <= 70 for item in answer["Records"])


# --- error answers ------------------------------------------------------------------------------

ERRORS = object_of(
    __type=st.sampled_from([b'"AccessDeniedException"', b'"a.b#ExpiredIteratorException:x"']),
    message=st.just(b'"said so"'),
    Message=st.just(b'"said so"'),
)


@FUZZ
@given(
    ANYTHING | ERRORS | damaged(ERRORS) | st.binary(max_size=40),
    st.sampled_from([204, 301, 400, 403, 413, 429, 500, 503]),
    st.sampled_from(["", "ThrottlingException", "x:y", ":", "#"]),
)
def test_an_error_answer_of_any_body_is_an_error(body: bytes, status: int, header: str) -> None:
    """A body that makes no sense never hides that a server was only out of breath."""
    error = error_answer(status, header or None, body, "GetRecords", "shard s")

    assert isinstance(error, KinesisConnectorError)
    assert not isinstance(error, InternalError)
    assert isinstance(error.code, str)
    try:
        says = orjson.loads(body)
    except ValueError:
        says = None
    if status >= 500 and not (isinstance(says, dict) and isinstance(says.get("__type"), str)):
        assert error.retryable


# --- PutRecords ---------------------------------------------------------------------------------

RESULTS = object_of(
    ShardId=st.sampled_from([b'"shardId-0"', b'"shardId-1"']),
    SequenceNumber=st.integers(0, 10**56).map(lambda n: b'"%d"' % n),
    ErrorCode=st.sampled_from([b"null", b'""', b'"InternalFailure"', b'"AccessDenied"']),
    ErrorMessage=st.sampled_from([b"null", b'"said so"']),
)


@FUZZ
@given(
    st.lists(RESULTS | ANYTHING, max_size=4).map(lambda r: members([("Records", array(r))]))
    | object_of(Records=st.lists(RESULTS, max_size=3).map(array), FailedRecordCount=st.just(b"0"))
    | ANYTHING,
    st.integers(0, 4),
)
def test_nothing_counts_as_stored_but_a_result_that_says_where(text: bytes, sent: int) -> None:
    """One result a record, and a shard and a number in each that counts (F53)."""
    try:
        answer = parsed(text)
    except ValueError:
        return
    try:
        answers = classify(answer, sent)
    except ProtocolError as exc:
        assert_ours(exc)
        return
    verdicts = verdicts_of(answers)
    assert len(answers.shards) == sent == len(answer["Records"])
    for verdict, entry in zip(verdicts, answer["Records"], strict=True):
        assert isinstance(verdict, (Delivered, Retry, Rejected))
        if isinstance(verdict, Delivered):
            assert entry.get("ErrorCode") in (None, "")
            assert (entry["ShardId"], entry["SequenceNumber"]) == (
                verdict.shard_id,
                verdict.sequence_number,
            )
            assert verdict.shard_id
            assert parse_position(f"AFTER:{verdict.sequence_number}") is not None
        else:
            assert isinstance(verdict.code, str)
            assert isinstance(verdict.message, str)
    items: list[Item] = [plain(b"", "k", None, 1, i) for i in range(sent)]
    stored = tally("orders", Request(items, sent, 0.0), answers)
    totals = merge(merge(stored).values(), into=merge(stored))
    delivered = sum(isinstance(verdict, Delivered) for verdict in verdicts)
    assert sum(total.records for total in totals.values()) == 2 * delivered
