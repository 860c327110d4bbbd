"""Tasks on other machines read everything a second time, and the driver says so."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.ticket import AgentAddress
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support import micro_batches
from tests.support.agents import FIRST, numbered, poll_calls, put_to
from tests.support.polling import eventually

if TYPE_CHECKING:
    import pytest

# The agent listens on 127.0.0.1 only; to it, another address of the network is another machine.
ELSEWHERE = "127.0.0.2"


def on_another_machine(planned: PlannedRange) -> PlannedRange:
    """Return a range as a task on another machine has it: its own loopback is not the driver's."""
    if planned.agent is None:
        return planned
    uri = planned.agent.uri.replace("127.0.0.1", ELSEWHERE)
    return replace(planned, agent=AgentAddress(uri, planned.agent.token))


def batches(query: Any, kinesis: KinesisServer, first: int, last: int) -> None:
    """Put a record and read it, batch by batch."""
    for n in range(first, last + 1):
        put_to(kinesis, FIRST, *numbered(n, n))
        query.read_until(n)
    query.coordinator.latest(query.last_offset())  # the last batch is committed


def counted(query: Any, count: int) -> Any:
    """Wait until so many ranges are counted; agent processes are asked now and then."""

    def found() -> Any:
        ranges = query.coordinator.statistics()["ranges"]
        return ranges if ranges["fetched"] + sum(ranges["fallbacks"].values()) == count else None

    return eventually(found, f"{count} ranges")


def test_everything_read_twice_is_told(
    kinesis: KinesisServer,
    start_query: StartQuery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exact records all the same; counted by reason; one warning, however long it goes on."""
    read = micro_batches.read_planned
    monkeypatch.setattr(
        micro_batches,
        "read_planned",
        lambda planned, *args: read(on_another_machine(planned), *args),
    )
    query = start_query(kinesis)

    with caplog.at_level(logging.WARNING, "kinesis_ds"):
        batches(query, kinesis, 1, 3)
        assert query.data == numbered(1, 3)
        assert poll_calls(kinesis), "the tasks read from Kinesis"

        def told() -> list[str]:
            query.coordinator.latest(query.last_offset())
            return [r.getMessage() for r in caplog.records if "GetRecords" in r.getMessage()]

        eventually(told, "the warning")
        kinesis.clock.advance(60)
        batches(query, kinesis, 4, 5)
        (warning,) = told()
    assert "127.0.0.1" in warning
    assert "agentHost" in warning
    ranges = counted(query, 5)
    assert ranges["fallbacks"]["not_fetched"] == 5
    assert query.coordinator.report()["ranges"] == ranges


def test_ranges_that_are_fetched_are_counted_and_nothing_is_said(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where a task fetches twice; the batch that a restart repeats comes from Kinesis."""
    query = start_query(kinesis)
    with caplog.at_level(logging.WARNING, "kinesis_ds"):
        batches(query, kinesis, 1, 2)
        kinesis.clock.advance(60)
        batches(query, kinesis, 3, 4)
    ranges = counted(query, 4)
    assert ranges["fetched"] == 4
    assert not any(ranges["fallbacks"].values())
    assert not [r for r in caplog.records if "GetRecords" in r.getMessage()]

    query.close()
    last = max((query.folder / "commits").iterdir(), key=lambda path: int(path.name))
    last.unlink()
    again = start_query(kinesis)
    again.step()
    again.step()
    assert again.replayed == 1
    found = again.coordinator.statistics()["ranges"]
    assert found["fallbacks"]["not_held"] == 1


def test_tasks_fetch_over_an_address_of_the_network(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """Encrypted, and on a port that a firewall may know."""
    query = start_query(kinesis, agentHost=ELSEWHERE, agentPort="41873-41893")
    batches(query, kinesis, 1, 2)
    assert query.data == numbered(1, 2)
    assert counted(query, 2)["fetched"] == 2
    (opened,) = query.coordinator._source.open.values()
    scheme, _, port = opened.agent.address_of(FIRST).uri.rpartition(":")
    assert scheme == f"grpc+tls://{ELSEWHERE}"
    assert 41873 <= int(port) <= 41893
