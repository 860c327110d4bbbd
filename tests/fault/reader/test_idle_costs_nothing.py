"""Shards in which nothing happens (F43)."""

from __future__ import annotations

import pytest

from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.options.aws import AwsOptions
from tests.fault.conftest import Serve, StartQuery
from tests.support import micro_batches
from tests.support.fast import FastLoop
from tests.support.polling import eventually

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

SHARDS = 4


def test_an_idle_source_wakes_for_heartbeats_and_discovery_only(
    serve: Serve, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F43: the loop turns a few times for each thing that happened, and asks for nothing."""
    loops: list[FastLoop] = []

    def loop() -> FastLoop:
        loops.append(FastLoop())
        return loops[-1]

    def network(aws: AwsOptions) -> NetworkLoop:
        return NetworkLoop(aws, loop)

    monkeypatch.setattr(micro_batches, "fast_network", network)
    kinesis = serve(shards=SHARDS)
    query = start_query(kinesis)

    def events() -> list[int]:
        shards = query.coordinator.statistics().get("shards", {})
        return [shard["events"] for shard in shards.values()]

    query.run_until(lambda: sum(events()) >= SHARDS, "every shard is open")
    turns, calls, began = loops[0].turns, len(kinesis.calls), sum(events())
    eventually(lambda: min(events()) >= 8, "some heartbeats on each shard")

    happened = sum(events()) - began + len(kinesis.calls) - calls
    assert loops[0].turns - turns < 6 * happened
    asked = {call.target.operation for call in list(kinesis.calls)[calls:]}
    assert asked <= {"ListShards"}
