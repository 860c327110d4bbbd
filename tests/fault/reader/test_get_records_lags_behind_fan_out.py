"""A range that was received is read whole from Kinesis, where GetRecords shows it later (O1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.testing import Settings
from tests.support.agents import STREAM, numbered, poll_calls
from tests.support.micro_batches import MicroBatches

if TYPE_CHECKING:
    from typing import Any

    from tests.fault.conftest import Serve, StartQuery

pytestmark = pytest.mark.fault


def plan(query: MicroBatches) -> list[Any]:
    """What a batch of all that is received holds, read by tasks that reach no agent."""
    found: list[Any] = []

    def without_agent(batch: int, planned: list[Any]) -> list[list[str | None]]:
        found.extend(planned)
        return read(batch, [replace(p, agent=None) for p in planned])

    read = query._read
    query._read = without_agent  # type: ignore[method-assign]
    return found


def test_a_range_whose_agent_is_gone_is_waited_for(serve: Serve, start_query: StartQuery) -> None:
    """The empty answers at the tip are not the end of the range: its records are counted."""
    kinesis = serve(Settings(get_records_lag_s=15.0))
    query = start_query(kinesis)
    planned = plan(query)
    kinesis.put(STREAM, *numbered(1, 20))

    assert query.read_until(20) == numbered(1, 20)
    assert sum(p.records for p in planned) == 20
    assert all(call.request["Limit"] <= 21 for call in poll_calls(kinesis))


def test_a_batch_that_is_run_again_is_waited_for(serve: Serve, start_query: StartQuery) -> None:
    """Nobody knows after a restart how many records it held; it is asked for three seconds."""
    kinesis = serve(Settings(get_records_lag_s=2.5))
    query = start_query(kinesis)
    query.step()
    kinesis.put(STREAM, *numbered(1, 20))
    query.read_until(20)
    last = max(int(p.name) for p in (query.folder / "commits").iterdir())
    (query.folder / "commits" / str(last)).unlink()

    again = start_query(kinesis)
    again.step()
    assert again.replayed == 1
    assert again.data == numbered(1, 20)
