"""Jobs written for other connectors run with nothing changed but the name of the format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from devtools.waiting import wait_until
from integration.conftest import MakeStream
from integration.jobs import job_for_awslabs, job_for_databricks
from integration.streams import everything_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WITHIN_S = 240


def put(kinesis: Any, stream: str, count: int, first: int = 0) -> set[str]:
    """Write records; returns what is in them."""
    texts = [f"{stream}/{i}" for i in range(first, first + count)]
    for start in range(0, count, 500):
        answer = kinesis.put_records(
            StreamName=stream,
            Records=[{"Data": t.encode(), "PartitionKey": t} for t in texts[start : start + 500]],
        )
        assert answer["FailedRecordCount"] == 0
    return set(texts)


def written_to(kinesis: Any, stream: str) -> Counter[str]:
    """What is in the records of a stream, and how often."""
    return Counter(data for _, _, data in everything_in(kinesis, stream))


def until(query: StreamingQuery, is_done: Any, what: str) -> None:
    """Wait for a query to get somewhere; it must not fail on the way."""

    def check() -> bool:
        failure = query.exception()
        assert failure is None, str(failure)
        return bool(is_done())

    wait_until(check, what=what, within_s=WITHIN_S)


@pytest.mark.timeout(600)
def test_a_job_for_awslabs_copies_a_stream(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """By enhanced fan-out from one stream, and with the options of its sink into another, as
    aggregates.
    """
    source, target = make_stream(shards=2), make_stream(shards=2)
    expected = put(kinesis, source, 1000)
    query = job_for_awslabs.start(spark, endpoint, source, target, str(tmp_path))
    try:
        until(query, lambda: written_to(kinesis, target).keys() >= expected, "the first records")
        expected |= put(kinesis, source, 500, first=1000)
        until(query, lambda: written_to(kinesis, target).keys() >= expected, "the later records")
        consumers = kinesis.list_stream_consumers(
            StreamARN=kinesis.describe_stream_summary(StreamName=source)[
                "StreamDescriptionSummary"
            ]["StreamARN"]
        )["Consumers"]
    finally:
        query.stop()

    copied = written_to(kinesis, target)
    assert copied.keys() == expected
    assert set(copied.values()) == {1}
    assert [consumer["ConsumerName"] for consumer in consumers] == ["TestConsumer"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["POLLING", pytest.param("EFO", marks=pytest.mark.long)])
def test_a_job_for_databricks_reads_its_streams(
    spark: SparkSession,
    endpoint: str,
    kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
    how: str,
) -> None:
    """Two streams in one query, every record of both once, under the name of its stream."""
    streams = [make_stream(shards=2), make_stream()]
    expected = {text for stream in streams for text in put(kinesis, stream, 500)}
    seen: list[tuple[str, str]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        seen.extend((row.stream, row.data) for row in batch.collect())

    query = job_for_databricks.start(
        spark,
        endpoint,
        ",".join(streams),
        getattr(job_for_databricks, how),
        keep,
        str(tmp_path),
    )
    try:
        until(query, lambda: len(seen) >= len(expected), "the first records")
        expected |= {text for stream in streams for text in put(kinesis, stream, 100, first=500)}
        until(query, lambda: len(seen) >= len(expected), "the later records")
    finally:
        query.stop()

    assert sorted(text for _, text in seen) == sorted(expected)
    assert all(text.startswith(f"{stream}/") for stream, text in seen)
