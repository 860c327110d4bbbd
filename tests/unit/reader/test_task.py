"""The read task: the same records, whoever still has them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.errors import AgentError, DataLossError, InternalError
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.ticket import AgentAddress
from kinesis_ds.reader import task
from kinesis_ds.wire.schema import SOURCE_SCHEMA
from tests.support.builders import records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import pyarrow as pa

ADDRESS = AgentAddress("grpc://127.0.0.1:1", "token")


def planned(count: int | None, agent: AgentAddress | None = ADDRESS) -> PlannedRange:
    return PlannedRange("orders", "arn", "s", TRIM_HORIZON, After("9"), count, agent)


class Sources:
    """What the agent and Kinesis give, and where Kinesis was asked to start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent: list[pa.RecordBatch | AgentError] = []
        self.kinesis: list[pa.RecordBatch] = []
        self.asked_from: list[Position] = []
        self.connections = 0
        self.connected = 0
        monkeypatch.setattr(task, "stream_range", self._stream)
        monkeypatch.setattr(task, "read_range", self._read_range)
        monkeypatch.setattr(task, "Connection", self._connect)

    def _stream(self, *args: object) -> Iterator[pa.RecordBatch]:
        for item in self.agent:
            if isinstance(item, AgentError):
                raise item
            yield item

    @contextlib.asynccontextmanager
    async def _connect(self, aws: AwsOptions) -> AsyncIterator[Sources]:
        self.connections += 1
        self.connected += 1
        yield self
        self.connected -= 1

    async def _read_range(
        self, connection: Sources, arn: str, shard_id: str, start: Position, *_: Any, **__: Any
    ) -> AsyncIterator[pa.RecordBatch]:
        self.asked_from.append(start)
        for batch in self.kinesis:
            yield batch


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(monkeypatch)


def read(what: PlannedRange) -> list[str]:
    batches = list(task.read_planned(what, AwsOptions()))
    assert all(b.schema == SOURCE_SCHEMA for b in batches)
    return [n for b in batches for n in b.column("sequenceNumber").to_pylist()]


def batch(*numbers: int) -> pa.RecordBatch:
    return records(numbers).batch


def test_the_agent_gives_it_all(sources: Sources) -> None:
    """Kinesis is not asked."""
    sources.agent = [batch(1, 2), batch(3)]

    assert read(planned(3)) == ["1", "2", "3"]
    assert sources.asked_from == []


def test_an_agent_that_is_gone_is_replaced_by_kinesis(sources: Sources) -> None:
    """The whole range, from its start."""
    sources.agent = [AgentError("gone")]
    sources.kinesis = [batch(1, 2, 3)]

    assert read(planned(3)) == ["1", "2", "3"]
    assert sources.asked_from == [TRIM_HORIZON]


def test_an_agent_that_breaks_off_is_continued_by_kinesis(sources: Sources) -> None:
    """Behind the last record that came, so that none comes twice."""
    sources.agent = [batch(1, 2), AgentError("broke off")]
    sources.kinesis = [batch(3)]

    assert read(planned(3)) == ["1", "2", "3"]
    assert sources.asked_from == [After("2")]


def test_rows_that_nobody_takes_any_more_are_closed_from_within_another_loop(
    sources: Sources,
) -> None:
    """The garbage collector closes them where it finds them: perhaps while another task reads."""
    sources.kinesis = [batch(1), batch(2)]
    rows = task.read_planned(planned(None, agent=None), AwsOptions())
    next(rows)

    async def elsewhere() -> None:
        rows.close()  # type: ignore[attr-defined]

    asyncio.run(elsewhere())
    assert sources.connected == 0


def test_a_range_without_an_agent_is_read_from_kinesis(sources: Sources) -> None:
    """After a restart nobody holds it; how many there were is not known then."""
    sources.kinesis = [batch(1)]

    assert read(planned(None, agent=None)) == ["1"]


@pytest.mark.parametrize(
    ("numbers", "error"), [((1, 2), DataLossError), ((1, 2, 3, 4), InternalError)]
)
def test_another_number_of_records_is_an_error(
    sources: Sources, numbers: tuple[int, ...], error: type[Exception]
) -> None:
    """A batch with records missing or too many never ends as if it were whole."""
    sources.agent = [batch(*numbers)]
    with pytest.raises(InternalError, match="held 3 records"):
        read(planned(3))

    sources.agent, sources.kinesis = [AgentError("gone")], [batch(*numbers)]
    with pytest.raises(error, match="held 3 records"):
        read(planned(3))


def test_records_that_expired_are_gone_without_where_the_user_said_so(
    sources: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    """failOnDataLoss=false: what is left of the range, and one warning that says how much that is.
    An agent that holds the range never gives less than it said.
    """
    asked = replace(planned(3), fail_on_data_loss=False)
    sources.agent, sources.kinesis = [AgentError("gone")], [batch(3)]

    assert read(asked) == ["3"]
    assert "held 3 records when it was planned and 1 now" in caplog.text
    sources.agent = [batch(3)]
    with pytest.raises(InternalError):
        read(asked)


def test_ranges_of_a_task_are_read_in_order_over_one_connection(sources: Sources) -> None:
    """A parent before its children; a connection costs more than a small range."""
    sources.agent, sources.kinesis = [batch(1)], [batch(2, 3)]
    of_agent = replace(planned(1), shard_id="a")
    of_kinesis = [replace(planned(2, agent=None), shard_id=s) for s in "pq"]

    read = task.read_all([of_kinesis[0], of_agent, of_kinesis[1]], AwsOptions())

    assert [
        (row["shardId"], row["sequenceNumber"]) for batch in read for row in batch.to_pylist()
    ] == [("p", "2"), ("p", "3"), ("a", "1"), ("q", "2"), ("q", "3")]
    assert (sources.connections, sources.connected) == (1, 0)


def test_a_task_that_is_given_up_closes_its_connection(sources: Sources) -> None:
    """Spark stops a task in the middle where a query has a limit."""
    sources.kinesis = [batch(1), batch(2)]

    reading = task.read_planned(planned(2, agent=None), AwsOptions())
    next(reading)
    assert sources.connected == 1
    reading.close()  # type: ignore[attr-defined]
    assert sources.connected == 0


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(After("9"), After("9"), id="empty"),
        pytest.param(AtTimestamp(9), AtTimestamp(5), id="backwards in time"),
        pytest.param(SHARD_END, AtTimestamp(5), id="behind the end"),
    ],
)
def test_a_range_that_holds_nothing_asks_nobody(
    sources: Sources, start: Position, end: Position
) -> None:
    """It is no call, and no connection."""
    assert read(replace(planned(None, agent=None), start=start, end=end)) == []
    assert (sources.asked_from, sources.connections) == ([], 0)
