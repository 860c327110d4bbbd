"""A few seeds of chaos, as a test; more of them by ``python -m integration.chaos``.

``CHAOS_BARE`` and ``CHAOS_SPARK`` set how many seeds run on either engine, of which all but a few
are ``long``; ``CHAOS_FIRST`` sets the first one. A seed that failed is in the message and can be
run again; its schedule and its logs are under ``artifacts/chaos``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration.chaos.conductor import EngineName, run_seed
from integration.chaos.schedule import make_schedule

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "chaos"
FIRST = int(os.environ.get("CHAOS_FIRST", "1"))
BARE = int(os.environ.get("CHAOS_BARE", "20"))
SPARK = int(os.environ.get("CHAOS_SPARK", "6"))

pytestmark = pytest.mark.chaos


def seeds(count: int, short: Sequence[int]) -> pytest.MarkDecorator:
    """So many seeds, of which only those at the places in ``short`` are run by default."""
    chosen = [
        pytest.param(FIRST + n, marks=() if n in short else pytest.mark.long) for n in range(count)
    ]
    return pytest.mark.parametrize("seed", chosen)


def run(seed: int, engine: EngineName) -> None:
    report = run_seed(make_schedule(seed), engine, ARTIFACTS / f"{engine}-{seed}")
    again = f"python -m integration.chaos --engine {engine} --seed {seed}"
    assert report.passed, "\n".join([*report.problems, f"again: {again}", str(report.artifacts)])
    assert report.written > 0
    assert report.batches > 0


@pytest.mark.timeout(240)
@seeds(BARE, short=range(4))
def test_bare(seed: int) -> None:
    """Kills, reshards and faults over Spark's protocol without the JVM."""
    run(seed, "bare")


@pytest.mark.spark
@pytest.mark.timeout(900)
# Seed 6 kills what reads and writes, and lets the JVM live: others restart that.
@seeds(SPARK, short=[5])
def test_spark(seed: int) -> None:
    """The same over Spark."""
    run(seed, "spark")
