"""Reading a closed range with GetRecords: exactly that range, through whatever passes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.aws.errors import service_error
from kinesis_ds.aws.read_range import read_range, shard_is_drained
from kinesis_ds.errors import (
    AccessError,
    DataLossError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
)
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    ShardEnd,
)
from kinesis_ds.wire.decode import sequence_numbers
from tests.support.builders import ARRIVED_S, record
from tests.support.virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

LATER = AtTimestamp(int(ARRIVED_S * 1000) + 1)
EXPIRED = service_error("GetRecords", "s", "ExpiredIteratorException", "old")
THROTTLED = service_error("GetRecords", "s", "ProvisionedThroughputExceededException", "")
INVALID = service_error("GetShardIterator", "s", "InvalidArgumentException", "expired")
DENIED = service_error("GetRecords", "s", "AccessDeniedException", "")

Answer = dict[str, Any] | KinesisConnectorError


def page(
    *numbers: int, behind: int = 0, last: bool = False, arrived_s: float = ARRIVED_S
) -> dict[str, Any]:
    """One GetRecords answer; the last of a closed shard has no next iterator."""
    return {
        "Records": [record(n, arrived_s=arrived_s) for n in numbers],
        "MillisBehindLatest": behind,
        **({} if last else {"NextShardIterator": "next"}),
    }


def mixed(*numbers_and_arrivals: tuple[int, float]) -> dict[str, Any]:
    """An answer whose records arrived at different times."""
    return {
        "Records": [record(n, arrived_s=arrived_s) for n, arrived_s in numbers_and_arrivals],
        "MillisBehindLatest": 0,
        "NextShardIterator": "next",
    }


class LoopClock:
    """The time of the running loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()


class Answers:
    """Stands for a connection: gives the answers of a list, and keeps what was asked."""

    def __init__(self, *pages: Answer, iterators: Sequence[Answer] = ()) -> None:
        self.pages = list(pages)
        self.iterators = list(iterators)
        self.starts: list[str] = []
        self.times: list[float] = []
        self.limits: list[int] = []

    async def call(self, operation: str, body: dict[str, Any], label: str) -> dict[str, Any]:
        if operation == "GetShardIterator":
            kind = body["ShardIteratorType"]
            self.starts.append(
                ":".join([kind, *filter(None, [body.get("StartingSequenceNumber")])])
            )
            answer = self.iterators.pop(0) if self.iterators else {"ShardIterator": "first"}
        else:
            self.times.append(asyncio.get_running_loop().time())
            self.limits.append(body["Limit"])
            answer = self.pages.pop(0)
        if isinstance(answer, KinesisConnectorError):
            raise answer
        return answer


def read(
    answers: Answers,
    start: Position,
    end: Position,
    *,
    fail_on_data_loss: bool = True,
    expected: int | None = None,
    known_since: float | None = None,
) -> list[int]:
    async def collect() -> list[int]:
        batches = read_range(
            answers,  # type: ignore[arg-type]
            "arn",
            "s",
            start,
            end,
            "shard s",
            LoopClock(),
            fail_on_data_loss=fail_on_data_loss,
            expected=expected,
            known_since=known_since,
        )
        return [n async for batch in batches for n in sequence_numbers(batch)]

    return run_in_virtual_time(collect())


def drained(answers: Answers) -> bool:
    async def ask() -> bool:
        return await shard_is_drained(
            answers,  # type: ignore[arg-type]
            "arn",
            "s",
            After("5"),
            "shard s",
            LoopClock(),
        )

    return run_in_virtual_time(ask())


@pytest.mark.parametrize(
    ("start", "end", "pages", "expected"),
    [
        pytest.param(
            TRIM_HORIZON, After("3"), [page(1, 2, 3, 4)], [1, 2, 3], id="ends inside a page"
        ),
        pytest.param(
            TRIM_HORIZON, After("3"), [page(1, 2), page(3)], [1, 2, 3], id="ends with a page"
        ),
        pytest.param(
            TRIM_HORIZON, After("3"), [page(1, 2), page(4)], [1, 2], id="the end is no record"
        ),
        pytest.param(
            After("1"), After("3"), [page(1, 2, 3)], [2, 3], id="a careless server starts too early"
        ),
        pytest.param(
            TRIM_HORIZON,
            After("3"),
            [page(2, behind=9), page(behind=5), page(3)],
            [2, 3],
            id="empty pages",
        ),
        pytest.param(
            TRIM_HORIZON, After("9"), [page(2), page()], [2], id="the tip, behind silence"
        ),
        pytest.param(
            TRIM_HORIZON, After("9"), [page(2, last=True)], [2], id="the shard has ended meanwhile"
        ),
        pytest.param(
            TRIM_HORIZON, SHARD_END, [page(1), page(2, last=True)], [1, 2], id="to the end"
        ),
        pytest.param(
            TRIM_HORIZON,
            SHARD_END,
            [page(1), page(), page(last=True)],
            [1],
            id="the end comes late",
        ),
        pytest.param(
            TRIM_HORIZON,
            After("4"),
            [page(1, 2), page(2, 3), page(3, 4)],
            [1, 2, 3, 4],
            id="repeats",
        ),
        pytest.param(
            LATER,
            After("4"),
            [page(1, 2), page(3), page(4, arrived_s=ARRIVED_S + 1)],
            [4],
            id="older than the wanted time, page after page",
        ),
    ],
)
def test_a_range_is_read_exactly(
    start: Position, end: Position, pages: list[Answer], expected: list[int]
) -> None:
    """All records behind the start up to the end, once and in order, with no needless call."""
    answers = Answers(*pages)

    assert read(answers, start, end) == expected
    assert answers.pages == []


T_MS = int(ARRIVED_S * 1000) + 5_000
LATE_S = T_MS / 1000
EARLY_S = LATE_S - 0.001


@pytest.mark.parametrize(
    ("start", "pages", "expected"),
    [
        pytest.param(
            TRIM_HORIZON,
            [page(1), page(2, 3, arrived_s=EARLY_S), page(4, arrived_s=LATE_S)],
            [1, 2, 3],
            id="to the millisecond",
        ),
        pytest.param(
            TRIM_HORIZON, [mixed((1, ARRIVED_S), (2, EARLY_S), (3, LATE_S))], [1, 2], id="in a page"
        ),
        pytest.param(
            TRIM_HORIZON,
            [mixed((1, EARLY_S), (2, LATE_S), (3, EARLY_S), (4, LATE_S))],
            [1],
            id="the first that is late ends it, though arrival times are approximate",
        ),
        pytest.param(TRIM_HORIZON, [page(1, 2, last=True)], [1, 2], id="the end of the shard"),
        pytest.param(TRIM_HORIZON, [page(last=True)], [], id="the end of an empty shard"),
        pytest.param(TRIM_HORIZON, [page(1), page(), page()], [1], id="the tip"),
        pytest.param(TRIM_HORIZON, [page(), page()], [], id="the tip of an empty shard"),
        pytest.param(
            TRIM_HORIZON,
            [page(1), page(), page(behind=7), page(), page(2), page(), page()],
            [1, 2],
            id="an empty page that is not the tip counts for nothing",
        ),
        pytest.param(
            TRIM_HORIZON,
            [page(behind=9), page(behind=8), page(behind=7), page(1, arrived_s=LATE_S)],
            [],
            id="silence, and then a record that is late",
        ),
        pytest.param(After("1"), [page(1, 2), page(), page()], [2], id="behind a record"),
        pytest.param(
            AtTimestamp(T_MS - 1),
            [mixed((1, ARRIVED_S), (2, EARLY_S), (3, LATE_S))],
            [2],
            id="a millisecond",
        ),
    ],
)
def test_a_range_ends_at_a_time(start: Position, pages: list[Answer], expected: list[int]) -> None:
    """Before the first record that arrived then or later; at the shard's end; or at the tip, which
    one answer alone does not prove.
    """
    answers = Answers(*pages)

    assert read(answers, start, AtTimestamp(T_MS)) == expected
    assert answers.pages == []


@pytest.mark.parametrize("end", [After("9"), AtTimestamp(T_MS), SHARD_END])
def test_nothing_at_the_tip_is_not_believed_while_rows_are_missing(end: Position) -> None:
    """GetRecords may show records later than the subscription that they were planned from."""
    last = [page(last=True)] if isinstance(end, ShardEnd) else [page()]
    answers = Answers(*[page()] * 20, page(1, 2), *[page()] * 20, page(3), *last)

    assert read(answers, TRIM_HORIZON, end, expected=3, known_since=0.0) == [1, 2, 3]
    assert answers.pages == []


def test_rows_that_do_not_come_are_given_up_half_a_minute_after_they_were_known() -> None:
    """The task says then how many are missing. It has not asked as fast as it may."""
    answers = Answers(page(1), *[page()] * 100)

    assert read(answers, TRIM_HORIZON, After("9"), expected=3, known_since=0.0) == [1]
    assert 30 <= answers.times[-1] <= 31
    assert len(answers.times) <= 63


def test_a_shard_that_does_not_end_is_doubted_only_after_half_a_minute() -> None:
    """The subscription told of its end, and GetRecords may not know of it yet."""
    answers = Answers(*[page()] * 50, page(1, last=True))
    assert read(answers, TRIM_HORIZON, SHARD_END, known_since=0.0) == [1]

    with pytest.raises(ProtocolError, match="read to its end once"):
        read(Answers(*[page()] * 100), TRIM_HORIZON, SHARD_END, known_since=0.0)


@pytest.mark.parametrize(
    ("end", "known_since", "asked_for_s"),
    [
        pytest.param(After("9"), 0.0, 3.0, id="three seconds"),
        pytest.param(After("9"), -2.0, 1.0, id="of which two had passed"),
        pytest.param(After("9"), -3.0, 0.0, id="known long enough"),
        pytest.param(After("9", -1_000), 0.0, 3.0, id="seen a second ago"),
        pytest.param(After("9", -60_000), 0.0, 0.0, id="seen a minute ago"),
        pytest.param(AtTimestamp(0), 0.0, 0.2, id="a time, of which nothing was received"),
        pytest.param(After("9"), None, 0.0, id="known for ever"),
    ],
)
def test_silence_where_nothing_was_counted_is_asked_about_for_three_seconds(
    end: Position, known_since: float | None, asked_for_s: float
) -> None:
    """Since the range was known; a range that lies long back costs nothing (LoopClock is at 0)."""
    answers = Answers(*[page()] * 100)

    assert read(answers, TRIM_HORIZON, end, known_since=known_since) == []
    assert answers.times[-1] == pytest.approx(asked_for_s, abs=0.55)


def test_a_position_that_is_gone_leaves_no_number_to_wait_for() -> None:
    """The rows that expired with it do not come, however long somebody asks."""
    answers = Answers(page(7), *[page()] * 100, iterators=[INVALID])

    assert read(
        answers, After("5"), After("9"), fail_on_data_loss=False, expected=3, known_since=0.0
    ) == [7]
    assert answers.times[-1] <= 4


@pytest.mark.parametrize(
    ("expected", "start", "pages", "limits"),
    [
        pytest.param(None, TRIM_HORIZON, [page(1, 2), page(3)], [10_000] * 2, id="no number"),
        pytest.param(3, TRIM_HORIZON, [page(1, 2), page(3)], [4, 2], id="what is missing"),
        pytest.param(20_000, TRIM_HORIZON, [page(1, 2, 3)], [10_000], id="the most there is"),
        pytest.param(
            2, TRIM_HORIZON, [page(1, 2), page(4)], [3, 1], id="none is missing, is there more?"
        ),
        pytest.param(
            1,
            LATER,
            [page(*range(1, 3)), page(*range(3, 7)), page(*range(7, 15)), page(15, arrived_s=9e9)],
            [2, 4, 8, 16],
            id="records that are no rows of the range are passed in few calls",
        ),
    ],
)
def test_no_more_is_asked_for_than_is_missing(
    expected: int | None, start: Position, pages: list[Answer], limits: list[int]
) -> None:
    """And one record more, which shows that the range is over. A shard gives 2 MB a second."""
    answers = Answers(*pages)
    end = After("15") if start is LATER else After("3")

    read(answers, start, end, expected=expected)
    assert answers.limits == limits


def test_more_rows_than_were_counted_are_seen() -> None:
    """A record that the agent never had must not push out the last one without a word."""
    answers = Answers(page(1, 2, 3), page())

    assert read(answers, TRIM_HORIZON, After("9"), expected=2) == [1, 2, 3]


def test_a_range_ends_before_a_record() -> None:
    """An end that a user named with AT_SEQUENCE_NUMBER is not in the range itself."""
    assert read(Answers(page(1, 2, 3)), TRIM_HORIZON, At("3")) == [1, 2]
    assert read(Answers(page(1, 2)), TRIM_HORIZON, At("3")) == [1, 2]


@pytest.mark.parametrize("passing", [THROTTLED, service_error("GetRecords", "s", "x", "", 500)])
def test_passing_failures_are_waited_out(passing: KinesisConnectorError) -> None:
    """The same iterator is used again: nothing is skipped, nothing read twice."""
    answers = Answers(page(1), passing, passing, page(2), iterators=[{"ShardIterator": "first"}])

    assert read(answers, TRIM_HORIZON, After("2")) == [1, 2]
    assert answers.starts == ["TRIM_HORIZON"]


def test_an_expired_iterator_is_replaced_behind_the_last_record() -> None:
    """Not at the start of the range again, and at once (F26, F27)."""
    answers = Answers(page(1), EXPIRED, page(2))

    assert read(answers, TRIM_HORIZON, After("2")) == [1, 2]
    assert answers.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]


def test_calls_keep_the_shards_pace() -> None:
    """Five GetRecords a second for a shard, whatever the answers hold."""
    answers = Answers(*[page(n) for n in range(1, 21)])
    read(answers, TRIM_HORIZON, After("20"))

    gaps = [b - a for a, b in zip(answers.times, answers.times[1:], strict=False)]
    assert all(gap >= 0.199 for gap in gaps)


def test_a_position_that_is_gone_is_data_loss() -> None:
    """Shard and position are named; the range cannot be read by anybody any more (F21)."""
    with pytest.raises(DataLossError, match=r"shard s: .* AFTER:5"):
        read(Answers(iterators=[INVALID]), After("5"), After("9"))


def test_a_position_that_is_gone_is_left_where_the_user_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """failOnDataLoss=false: the oldest record, never 'now', and nothing before the start (F22)."""
    answers = Answers(page(4, 7, 8), page(9), iterators=[INVALID])

    assert read(answers, After("5"), After("9"), fail_on_data_loss=False) == [7, 8, 9]
    assert answers.starts == ["AFTER_SEQUENCE_NUMBER:5", "TRIM_HORIZON"]
    assert "AFTER:5 is gone" in caplog.text


@pytest.mark.parametrize(
    ("start", "code", "fail_on_data_loss"),
    [
        pytest.param(After("5"), "ValidationException", True, id="the form of the call"),
        pytest.param(TRIM_HORIZON, "InvalidArgumentException", True, id="no position to lose"),
        pytest.param(After("5"), "ValidationException", False, id="the form, in any case"),
    ],
)
def test_a_refusal_for_another_reason_is_not_data_loss(
    start: Position, code: str, fail_on_data_loss: bool
) -> None:
    """The user would be told to give up records that are all there."""
    refusal = service_error("GetShardIterator", "s", code, "no")

    with pytest.raises(InvalidRequestError):
        read(Answers(iterators=[refusal]), start, After("9"), fail_on_data_loss=fail_on_data_loss)


def test_an_oldest_record_that_is_refused_as_well_is_told() -> None:
    """It was not the position then; and nothing goes round in circles."""
    with pytest.raises(InvalidRequestError):
        read(Answers(iterators=[INVALID, INVALID]), After("5"), After("9"), fail_on_data_loss=False)


def test_denied_access_fails_at_once() -> None:
    """What will not pass is not waited for (F45)."""
    answers = Answers(page(1), DENIED)

    with pytest.raises(AccessError):
        read(answers, TRIM_HORIZON, After("9"))
    assert len(answers.times) == 2


@pytest.mark.parametrize("error", [THROTTLED, EXPIRED], ids=["throttled", "expired"])
def test_failing_for_minutes_is_given_up(error: KinesisConnectorError) -> None:
    """A task ends with the error, and Spark may try it again elsewhere."""
    answers = Answers(*[error] * 500)

    with pytest.raises(type(error)):
        read(answers, TRIM_HORIZON, After("9"))
    assert 180 <= answers.times[-1] <= 200


def test_a_shard_that_never_ends_is_doubted() -> None:
    """It was read to its end once: an open shard under its name is another stream's."""
    with pytest.raises(ProtocolError, match="read to its end once"):
        read(Answers(*[page()] * 20), TRIM_HORIZON, SHARD_END)


SENSELESS = [
    {},
    {"Records": None},
    {"Records": {}},
    {"Records": "x"},
    {"__type": "InternalFailure"},
    {"NextShardIterator": "next"},
    {"Records": [], "NextShardIterator": 0},
    {"Records": [], "NextShardIterator": False},
    {"Records": [], "NextShardIterator": ["next"]},
    {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": "0"},
    {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": []},
    {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": 0.5},
]


@pytest.mark.parametrize("answer", SENSELESS)
def test_an_answer_without_records_is_a_protocol_error(answer: dict[str, Any]) -> None:
    """Nothing is taken for an empty page that is none."""
    with pytest.raises(ProtocolError):
        read(Answers(answer), TRIM_HORIZON, After("9"))


@pytest.mark.parametrize("answer", SENSELESS)
def test_an_answer_that_makes_no_sense_is_no_evidence_of_an_end(answer: dict[str, Any]) -> None:
    """A shard taken for drained is never read again: the rest of it would be lost (F33)."""
    with pytest.raises(ProtocolError):
        drained(Answers(answer))


@pytest.mark.parametrize("answer", [{}, {"ShardIterator": None}, {"ShardIterator": 5}])
def test_no_iterator_is_a_protocol_error(answer: dict[str, Any]) -> None:
    """An answer without what was asked for is not used."""
    with pytest.raises(ProtocolError, match="without an iterator"):
        read(Answers(iterators=[answer]), TRIM_HORIZON, After("9"))


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        pytest.param([page(last=True)], True, id="nothing, and no next iterator"),
        pytest.param([page()], False, id="nothing yet, and more may come"),
        pytest.param([page(9)], False, id="a record"),
        pytest.param([page(9, last=True)], False, id="a record, the last"),
        pytest.param([page(5), page(last=True)], True, id="what was read already, then the end"),
        pytest.param(
            [page(behind=9), page(behind=3), page(last=True)], True, id="silence before the end"
        ),
        pytest.param([page(behind=9), page(9)], False, id="silence before a record"),
    ],
)
def test_a_shard_is_drained_on_evidence(pages: list[Answer], *, expected: bool) -> None:
    """Only Kinesis saying that nothing is left, and nothing will come, counts (F33)."""
    answers = Answers(*pages)

    assert drained(answers) is expected


def test_a_check_goes_on_through_passing_failures() -> None:
    """Asking again is cheaper than subscribing again, and the children of the shard wait."""
    assert drained(Answers(THROTTLED, EXPIRED, page(behind=9), THROTTLED, page(last=True)))


@pytest.mark.parametrize("error", [THROTTLED, DENIED])
def test_a_failed_check_is_no_evidence(error: KinesisConnectorError) -> None:
    """An error is raised, not answered with yes or no."""
    with pytest.raises(type(error)):
        drained(Answers(*[error] * 500))
