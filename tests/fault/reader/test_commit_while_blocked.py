"""Commits while nothing can be fetched, and while more can be fetched all the time (F41, F42)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.plan.offsets import SourceOffset
from kinesis_ds.testing import Fault, Stall
from tests.fault.conftest import Serve, StartQuery
from tests.support import micro_batches
from tests.support.agents import FIRST, numbered
from tests.support.fast import fast_network

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions
    from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> list[NetworkLoop]:
    """The network loops of the queries of this test."""
    made: list[NetworkLoop] = []

    def make(aws: AwsOptions) -> NetworkLoop:
        made.append(fast_network(aws))
        return made[-1]

    monkeypatch.setattr(micro_batches, "fast_network", make)
    return made


def counters(query: MicroBatches) -> dict[str, Any]:
    found: dict[str, Any] = query.coordinator.statistics()["shards"][FIRST]
    return found


def test_a_commit_needs_neither_the_service_nor_the_loop(
    serve: Serve, start_query: StartQuery, networks: list[NetworkLoop]
) -> None:
    """F41: half-open subscription, endpoint gone, loop wedged: the commit frees what it must."""
    kinesis = serve(None, Fault(Stall(), event=2))
    records = numbered(1, 100, 1000)
    kinesis.put("orders", *records)
    query = start_query(kinesis)
    assert query.read_until(100) == records
    assert counters(query)["held_bytes"] > 100_000

    go_on = threading.Event()
    with kinesis.down():
        networks[0].post(go_on.wait, 30)
        end = query.last_offset()
        query.coordinator.commit(end)
        assert counters(query)["held_bytes"] == 0
        assert counters(query)["committed"] == counters(query)["available"]
        assert query.coordinator.latest(end) == end
        go_on.set()
    kinesis.put("orders", b"behind it")
    assert query.read_until(101) == [*records, b"behind it"]


def test_a_flood_does_not_hold_a_commit_up(serve: Serve, start_query: StartQuery) -> None:
    """F42: there is always more to fetch, and each commit takes effect before it returns."""
    kinesis = serve()
    records = numbered(1, 2000, 5000)
    kinesis.put("orders", *records)
    query = start_query(kinesis, fetchBufferSize="1mb")
    query.run_until(lambda: query.rows, "the first records")
    batches = 0
    while len(query.rows) < 2000:
        query.run_until(query.step, "another batch")
        batches += 1
        end = query.last_offset()
        assert isinstance(end, SourceOffset)
        query.coordinator.commit(end)
        assert counters(query)["committed"] == str(next(iter(end.streams.values())).shards[FIRST])
    assert query.data == records
    assert batches >= 5
