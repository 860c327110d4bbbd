"""A polled source in which nothing happens writes no batch."""

from __future__ import annotations

import pytest

from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, STREAM, numbered
from tests.support.polling import eventually


@pytest.mark.parametrize("start", ["latest", "trim_horizon"])
def test_silence_makes_no_batch(
    kinesis: KinesisServer, start_query: StartQuery, start: str
) -> None:
    """Whatever its position is; no subscription is made, and the next record comes through."""
    query = start_query(kinesis, consumerMode="polling", initialPosition=start)
    query.step()

    def polls() -> int:
        query.step()
        shards = query.coordinator.statistics().get("shards", {})
        return int(shards.get(FIRST, {}).get("empty", 0))

    eventually(lambda: polls() >= 5, "five empty answers")
    assert len(query.batches()) == 1
    kinesis.put(STREAM, *numbered(1, 3))
    assert query.read_until(3) == numbered(1, 3)
    assert not kinesis.calls.calls("SubscribeToShard")
    assert not kinesis.calls.calls("RegisterStreamConsumer")
