"""After a query was stopped, no process is left, and its consumer is deregistered if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest

from devtools.waiting import wait_until
from integration.conftest import MakeStream, read_into_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
@pytest.mark.parametrize("deregister", [True, False])
def test_only_an_explicit_stop_with_the_option_deregisters_the_consumer(
    spark: SparkSession,
    endpoint: str,
    kinesis: Any,
    make_stream: MakeStream,
    tmp_path: Path,
    deregister: bool,
) -> None:
    """Spark ends the source's process with SIGTERM; it cleans up before it goes."""
    stream = make_stream()
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    query = read_into_nothing(
        spark,
        tmp_path,
        streamName=stream,
        endpoint=endpoint,
        consumerName="kept-or-not",
        requireConsumerDeregistration=str(deregister).lower(),
    )

    def consumers() -> list[str]:
        found = kinesis.list_stream_consumers(StreamARN=summary["StreamARN"])["Consumers"]
        return [c["ConsumerName"] for c in found if c["ConsumerStatus"] == "ACTIVE"]

    try:
        wait_until(consumers, what="the consumer is registered", within_s=300)
    finally:
        query.stop()
    wait_until(lambda: not _source_processes(), what="the source's process is gone", within_s=120)
    assert query.exception() is None
    assert consumers() == ([] if deregister else ["kept-or-not"])


def _source_processes() -> list[int]:
    """Return the reader processes of Spark below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any("python_streaming_source_runner" in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
