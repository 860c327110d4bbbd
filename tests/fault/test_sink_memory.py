"""The memory of a task, against a server that answers slowly or never (F48, FLINK-9374).

Measured as the resident memory of a process that does nothing else: rows, records, aggregates,
bodies of requests as JSON with base64, buffers of sockets, and what the allocator keeps.
"""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import Delay, KinesisServer, NoAnswer, ScaledClock, Settings
from tests.support.environment import local_environment
from tests.support.fast import SPEED
from tests.support.sink_memory import WARM, measure
from tests.support.sinks import STREAM, put_fault

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

BOUND = 8 * MIB
# 25 to 46 MiB were seen: bodies of the requests under way, once as they were built and once more
# in the sockets, and one piece of rows.
CONSTANT = 56 * MIB


@pytest.mark.parametrize("options", [{}, {"aggregation": "true"}], ids=["plain", "aggregated"])
@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("answers", ["slowly", "never"])
def test_the_memory_of_a_task_is_bounded(answers: str, size: int, options: dict[str, str]) -> None:
    """F48: far more rows are offered than the bound admits; resident memory grows by no more than
    the bound and a constant.
    """
    fault = NoAnswer() if answers == "never" else Delay(1.0)
    where = put_fault(fault, stream=STREAM, times=None)
    count = (8 if answers == "never" else 2) * BOUND // size
    server = KinesisServer(Settings(enforce_limits=False), clock=ScaledClock(SPEED), faults=[where])
    with local_environment(), server as kinesis:
        for stream in (WARM, STREAM):
            kinesis.create_stream(stream, 4)
        bounds = {"maxInFlightBytes": "8mb", "maxInFlightRecords": "1000000"}
        patience = {"retryTimeout": "70s" if answers == "never" else "3000s"}
        found = measure({**kinesis.options(STREAM), **bounds, **patience, **options}, count, size)
    assert found["grown"] <= BOUND + CONSTANT
    if answers == "never":
        assert "could not be written" in found["error"]
        # The bound, a piece of a quarter of it that waits, and a slice of 4 MiB of Spark's rows.
        assert found["taken"] * size <= BOUND + BOUND // 4 + 4 * MIB + 100 * size
    else:
        assert found["error"] is None
        assert found["taken"] >= count
