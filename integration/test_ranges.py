"""A planned range has the same records from the agent, from Kinesis, or from both in part."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from devtools.server import REGION
from devtools.waiting import wait_until
from integration.conftest import MakeStream
from kinesis_ds.agent import range_client as agent_client
from kinesis_ds.errors import AgentError, DataLossError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.offsets import InitialOffset, SourceOffset
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import After
from kinesis_ds.plan.ticket import AgentAddress
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.task import read_planned

RECORDS = 300


def write(kinesis: Any, stream: str, first: int = 0, count: int = RECORDS) -> None:
    for i in range(first, first + count, 100):
        kinesis.put_records(
            StreamName=stream,
            Records=[{"Data": f"r{j}".encode(), "PartitionKey": str(j)} for j in range(i, i + 100)],
        )


@pytest.fixture
def planned(
    endpoint: str, kinesis: Any, make_stream: MakeStream
) -> Iterator[tuple[Coordinator, list[PlannedRange], Any]]:
    """Return a coordinator that has planned one batch of all records of a two-shard stream."""
    stream = make_stream(shards=2)
    write(kinesis, stream)
    options = parse_read_options(
        {
            "streamName": stream,
            "endpoint": endpoint,
            "region": REGION,
            "initialPosition": "trim_horizon",
        }
    )
    coordinator = Coordinator(options)
    try:
        start = coordinator.latest(InitialOffset())
        assert coordinator.plan(InitialOffset(), start) == []
        assert isinstance(start, SourceOffset)

        def everything() -> list[PlannedRange] | None:
            end = coordinator.latest(start)
            ranges = coordinator.plan(start, end) if end != start else []
            return ranges if sum(r.records or 0 for r in ranges) == RECORDS else None

        yield coordinator, wait_until(everything, what="all records available"), options.aws
    finally:
        coordinator.close()


def table(planned: PlannedRange, aws: Any) -> pa.Table:
    return pa.Table.from_batches(list(read_planned(planned, aws)))


def test_agent_and_kinesis_give_the_same_rows(planned: Any) -> None:
    """Values and order of every column, also read twice from the agent."""
    _, ranges, aws = planned
    assert len(ranges) == 2
    for from_agent in ranges:
        rows = table(from_agent, aws)
        assert rows.num_rows == from_agent.records
        assert table(from_agent, aws).equals(rows)
        assert table(replace(from_agent, agent=None), aws).equals(rows)


def test_a_dead_agent_costs_no_records(planned: Any) -> None:
    """The agent at this address is gone: the range is read from Kinesis."""
    _, ranges, aws = planned
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = AgentAddress(f"grpc://127.0.0.1:{port}", "token")
    for from_agent in ranges:
        assert table(replace(from_agent, agent=gone), aws).equals(table(from_agent, aws))


def test_a_wrong_token_is_refused_and_costs_no_records(planned: Any) -> None:
    """Another query's task gets nothing from this agent."""
    _, ranges, aws = planned
    one = ranges[0]
    stranger = replace(one, agent=replace(one.agent, token="guess"))
    with pytest.raises(AgentError, match="only the query that started it"):
        list(agent_client.stream_range(stranger.agent, one.shard_id, one.start, one.end))
    assert table(stranger, aws).equals(table(one, aws))


def test_an_agent_that_breaks_off_half_way_is_continued_from_kinesis(
    planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows already given to Spark are not given again, and none is left out."""
    _, ranges, aws = planned
    one = ranges[0]
    whole = table(one, aws)

    def half(*_: Any) -> Iterator[pa.RecordBatch]:
        kept = whole.select(
            ["partitionKey", "data", "sequenceNumber", "approximateArrivalTimestamp"]
        )
        yield kept.slice(0, 17).combine_chunks().to_batches()[0]
        raise AgentError("the agent died")

    monkeypatch.setattr("kinesis_ds.reader.task.stream_range", half)
    assert table(one, aws).equals(whole)


def test_a_range_stays_closed_when_more_is_written(
    planned: Any, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records written after planning are not in the batch, wherever it is read from."""
    _, ranges, aws = planned
    before = [table(r, aws) for r in ranges]
    write(kinesis, ranges[0].stream, first=1000)
    for one, rows in zip(ranges, before, strict=True):
        assert table(one, aws).equals(rows)
        assert table(replace(one, agent=None), aws).equals(rows)


def test_a_freed_range_is_read_from_kinesis(planned: Any) -> None:
    """After the commit the agent has dropped the range; a late second action still gets it."""
    coordinator, ranges, aws = planned
    before = [table(r, aws) for r in ranges]
    base = coordinator.latest(None)
    coordinator.commit(base)
    one = ranges[0]
    with pytest.raises(AgentError, match="the agent holds"):
        list(agent_client.stream_range(one.agent, one.shard_id, one.start, one.end))
    for one, rows in zip(ranges, before, strict=True):
        assert table(one, aws).equals(rows)


def test_fewer_records_than_planned_fail_loudly(planned: Any) -> None:
    """What Kinesis no longer has is an error, never a shorter batch."""
    _, ranges, aws = planned
    one = ranges[0]
    with pytest.raises(DataLossError, match="held 10000 records when it was planned"):
        list(read_planned(replace(one, agent=None, records=10_000), aws))


def test_a_part_of_a_range_is_cut_exactly(planned: Any) -> None:
    """The range ends inside an event: after start, up to and including end."""
    _, ranges, aws = planned
    one = ranges[0]
    numbers = table(one, aws)["sequenceNumber"].to_pylist()
    part = replace(one, start=After(numbers[9]), end=After(numbers[20]), records=11)
    assert table(part, aws)["sequenceNumber"].to_pylist() == numbers[10:21]
    assert table(replace(part, agent=None), aws)["sequenceNumber"].to_pylist() == numbers[10:21]
