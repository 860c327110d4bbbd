"""What a query tells Spark of how far behind it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kinesis_ds.observe.table import progress_table
from kinesis_ds.plan.offsets import SourceOffset, decode_offset
from kinesis_ds.testing import Fault, KinesisServer, NoAnswer, Settings, Stall
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, STREAM, numbered
from tests.support.fast import SPEED
from tests.support.micro_batches import AGENT_PROCESSES
from tests.support.polling import eventually

if TYPE_CHECKING:
    import pytest


def report(query: Any) -> Any:
    return query.coordinator.report()


def test_nothing_before_anything_is_read(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """Spark leaves it out."""
    query = start_query(kinesis)
    assert report(query) is None
    query.step()
    assert report(query) is None


def test_it_is_an_offset_with_the_lag_beside_it(serve: Serve, start_query: StartQuery) -> None:
    """Ahead of the last batch where more was received; the open shards are counted."""
    kinesis = serve(Settings(), shards=2)
    kinesis.put(STREAM, *numbered(1, 20))
    query = start_query(kinesis, maxRecordsPerTrigger="1")
    query.read_until(1)

    def held() -> bool:
        return bool(report(query)["lag"]["bufferedRecords"] >= 19)

    eventually(held, "the rest in the buffer")
    found = report(query)
    assert found["lag"]["shards"] == 2
    assert found["lag"]["bufferedBytes"] > 0
    assert {"minMsBehindLatest", "avgMsBehindLatest", "maxMsBehindLatest"} <= found["lag"].keys()
    assert set(found["counters"]) == {FIRST, "shardId-000000000001"}
    known = decode_offset({"v": found["v"], "streams": found["streams"]})
    assert isinstance(known, SourceOffset)
    assert known != query.last_offset()


def test_a_backlog_is_seen(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """More than the buffer holds: what Kinesis says about the rest is the lag."""
    for n in range(40):
        kinesis.put(STREAM, b"%d" % n + b"." * 200_000)
    query = start_query(kinesis, fetchBufferSize="1mb")
    query.read_until(1)

    def behind() -> bool:
        return bool(report(query)["lag"]["maxMsBehindLatest"] > 0)

    eventually(behind, "a lag")
    query.read_until(40)

    def caught_up() -> bool:
        query.step()
        return bool(report(query)["lag"]["maxMsBehindLatest"] == 0)

    eventually(caught_up, "no lag")


def test_the_table_of_a_query(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """As the listener shows it."""
    kinesis.put(STREAM, *numbered(1, 5))
    query = start_query(kinesis)
    query.read_until(5)
    progress = {"batchId": 1, "sources": [{"numInputRows": 5, "latestOffset": report(query)}]}
    table = progress_table(progress)
    assert table is not None
    assert FIRST in table
    assert "streaming" in table


def test_it_grows_through_an_outage_that_is_told_within_half_a_minute(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """A black hole: nobody says how far behind a shard is, so the clock does."""
    caplog.set_level(logging.INFO, "kinesis_ds.reader.silence")

    def told() -> list[str]:
        return [r.levelname for r in caplog.records if r.name == "kinesis_ds.reader.silence"]

    kinesis.add_faults(Fault(Stall(), event=3))
    query = start_query(kinesis)
    kinesis.put(STREAM, *numbered(1, 5))
    query.read_until(5)
    assert report(query)["lag"]["estimatedShards"] == 0

    lost = (Fault(NoAnswer(), operation=o, times=None) for o in ("SubscribeToShard", "ListShards"))
    kinesis.add_faults(*lost)
    eventually(lambda: bool(kinesis.struck()), "nothing comes any more")
    began = kinesis.clock.monotonic()

    eventually(lambda: bool(told()), "a warning")
    # A process tells it with its next beat, once a second of the machine's time.
    assert kinesis.clock.monotonic() - began < (30 if AGENT_PROCESSES == "1" else 30 + 2 * SPEED)
    assert FIRST in caplog.text
    eventually(lambda: report(query)["lag"]["maxMsBehindLatest"] > 30_000, "a lag that grows")
    found = report(query)
    assert found["lag"]["estimatedShards"] == 1
    assert found["counters"][FIRST]["msBehindEstimated"]
    table = progress_table({"sources": [{"latestOffset": found}]})
    assert table is not None
    assert f"~{found['lag']['maxMsBehindLatest'] / 1000:.1f}s" in table

    kinesis.clear_faults()
    kinesis.put(STREAM, *numbered(6, 7))
    query.read_until(7)
    eventually(lambda: told() == ["WARNING", "INFO"], "the end of it, and nothing else")
    assert report(query)["lag"]["estimatedShards"] == 0
