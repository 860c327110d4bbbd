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

PLAIN: dict[str, str] = {}
AGGREGATED = {"aggregation": "true"}
WITH_IDS = {"recordIds": "true"}
KINDS = {"plain": PLAIN, "aggregated": AGGREGATED, "record ids": WITH_IDS}


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


@pytest.mark.parametrize(
    ("bound", "size", "kind"),
    [
        *((8 * MIB, 300, kind) for kind in KINDS),
        (64 * MIB, 20_000, "aggregated"),
        (64 * MIB, 900_000, "plain"),
        pytest.param(64 * MIB, 20_000, "plain", marks=pytest.mark.long),
        pytest.param(64 * MIB, 20_000, "record ids", marks=pytest.mark.long),
        pytest.param(64 * MIB, 900_000, "aggregated", marks=pytest.mark.long),
        pytest.param(64 * MIB, 900_000, "record ids", marks=pytest.mark.long),
    ],
)
def test_a_silent_server_costs_the_bound_and_a_constant(bound: int, size: int, kind: str) -> None:
    """F48: rows are taken until the bound is reached, and the constant does not grow with it."""
    found = write(NoAnswer(), bound, size, KINDS[kind], trace=True)
    assert "could not be written" in found["error"]
    assert found["taken"] * size > bound * 0.7
    assert found["grown"] <= bound + CONSTANT


@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.long), "aggregated"])
def test_so_does_a_slow_one(kind: str) -> None:
    """F48: every answer takes a second, and all rows are written in the end."""
    found = write(Delay(1.0), 8 * MIB, 20_000, KINDS[kind], trace=True)
    assert found["error"] is None
    assert found["grown"] <= 8 * MIB + CONSTANT


@pytest.mark.parametrize(
    "kind", ["plain", pytest.param("aggregated", marks=pytest.mark.long), "record ids"]
)
def test_resident_memory_is_bounded_too(kind: str) -> None:
    """F48: it is the bound, twice where rows are copied into aggregates, and a constant."""
    found = write(NoAnswer(), 32 * MIB, 20_000, KINDS[kind], trace=False)
    assert found["grown"] <= 32 * MIB * (1 if kind == "plain" else 2) + RESIDENT
