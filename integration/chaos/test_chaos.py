"""A few seeds of chaos, as a test; more of them by ``python -m integration.chaos``.

``CHAOS_BARE`` and ``CHAOS_SPARK`` set how many seeds run on either engine, ``CHAOS_FIRST`` sets
the first one. A seed that failed is in the message and can be run again; its schedule and its logs
are under ``artifacts/chaos``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration.chaos.conductor import EngineName, run_seed
from integration.chaos.schedule import make_schedule

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "chaos"
FIRST = int(os.environ.get("CHAOS_FIRST", "1"))
BARE = int(os.environ.get("CHAOS_BARE", "6"))
SPARK = int(os.environ.get("CHAOS_SPARK", "1"))

pytestmark = pytest.mark.chaos


def run(seed: int, engine: EngineName) -> None:
    report = run_seed(make_schedule(seed), engine, ARTIFACTS / f"{engine}-{seed}")
    again = f"python -m integration.chaos --engine {engine} --seed {seed}"
    assert report.passed, "\n".join([*report.problems, f"again: {again}", str(report.artifacts)])
    assert report.written > 0
    assert report.batches > 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(BARE))
def test_bare(number: int) -> None:
    """Kills, reshards and faults over Spark's protocol without the JVM."""
    run(FIRST + number, "bare")


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(SPARK))
def test_spark(number: int) -> None:
    """The same over Spark."""
    run(FIRST + number, "spark")
