"""The memory of a task, against a server that answers slowly or never (F48, FLINK-9374).

Measured in a process that does nothing else, from before the task to its peak: rows, records,
aggregates, and the bodies of requests as JSON with base64.
"""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import Delay, KinesisServer, NoAnswer, ScaledClock, Settings
from tests.support.environment import local_environment
from tests.support.fast import SPEED
from tests.support.sink_memory import WARM, measure
from tests.support.sinks import STREAM, put_fault

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

# What a task allocates beyond the bound: a piece of rows that waits to be admitted, a slice of
# Spark's rows, and the bodies of the requests under way. 9 to 17 MiB were seen.
CONSTANT = 24 * MIB
# Resident memory is more: the allocator keeps what rows took when they have become aggregates.
RESIDENT = 56 * MIB

AGGREGATED = {"aggregation": "true"}
never = pytest.mark.parametrize(
    "options", [{}, AGGREGATED, {"recordIds": "true"}], ids=["plain", "aggregated", "record ids"]
)


def write(
    fault: Delay | NoAnswer, bound: int, size: int, options: dict[str, str], *, trace: bool
) -> dict[str, Any]:
    """Offer four times what the bound admits."""
    faults = [put_fault(fault, stream=STREAM, times=None)]
    unlimited = Settings(enforce_limits=False)
    server = KinesisServer(unlimited, clock=ScaledClock(SPEED), faults=faults)
    with local_environment(), server as kinesis:
        for stream in (WARM, STREAM):
            kinesis.create_stream(stream, 4)
        options = {
            **kinesis.options(STREAM),
            "maxInFlightBytes": str(bound),
            "maxInFlightRecords": "1000000",
            "retryTimeout": "70s" if isinstance(fault, NoAnswer) else "3000s",
            **options,
        }
        return measure(options, 4 * bound // size, size, trace=trace)


@never
@pytest.mark.parametrize(
    ("bound", "size"), [(8 * MIB, 300), (64 * MIB, 20_000), (64 * MIB, 900_000)]
)
def test_a_silent_server_costs_the_bound_and_a_constant(
    bound: int, size: int, options: dict[str, str]
) -> None:
    """F48: rows are taken until the bound is reached, and the constant does not grow with it."""
    found = write(NoAnswer(), bound, size, options, trace=True)
    assert "could not be written" in found["error"]
    assert found["taken"] * size > bound * 0.7
    assert found["grown"] <= bound + CONSTANT


@pytest.mark.parametrize("options", [{}, AGGREGATED], ids=["plain", "aggregated"])
def test_so_does_a_slow_one(options: dict[str, str]) -> None:
    """F48: every answer takes a second, and all rows are written in the end."""
    found = write(Delay(1.0), 8 * MIB, 20_000, options, trace=True)
    assert found["error"] is None
    assert found["grown"] <= 8 * MIB + CONSTANT


@never
def test_resident_memory_is_bounded_too(options: dict[str, str]) -> None:
    """F48: it is the bound, twice where rows are copied into aggregates, and a constant."""
    found = write(NoAnswer(), 32 * MIB, 20_000, options, trace=False)
    assert found["grown"] <= 32 * MIB * (2 if options else 1) + RESIDENT
