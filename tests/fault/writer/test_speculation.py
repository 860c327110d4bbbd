"""Two copies of a task write the same rows at the same time, as ``spark.speculation`` has it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.sink_tasks import run_task
from tests.support.sinks import Sink, rows
from tests.support.stored_rows import stored_rows, times, without_repeats

pytestmark = pytest.mark.fault

IDS = range(1000)


@pytest.mark.parametrize("ids", ["false", "true"])
def test_two_copies_store_each_row_twice_and_each_id_once(ids: str) -> None:
    """Kinesis does not know what it has; whoever keeps the first of each id has each row once."""
    with Sink() as sink, ThreadPoolExecutor(2) as pool:
        copies = [
            pool.submit(run_task, sink, rows(IDS, size=40), batchMaxRecords="50", recordIds=ids)
            for _ in range(2)
        ]
        assert [copy.result().records for copy in copies] == [len(IDS)] * 2

        found = stored_rows(sink.kinesis, sink.stream)
        assert times(found) == Counter([*IDS, *IDS])
        if ids == "true":
            assert times(without_repeats(found)) == Counter(IDS)
