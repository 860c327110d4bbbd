"""The benchmarks run, and print what they promise. No time is asserted."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES

ROOT = Path(__file__).parents[3]


# What is in the table of each.
SAID = {
    "sink_smoothness": r"kinesis_ds against the model: rows/s \d+\.\d+, gaps",
    "sink_hot_shard": r"\n +2 +[\d.]+ +[\d.]+ +\d+% +\d+%\n",
    "sink_ordering": r"\n *10000 +on +\d+ +\d+ +[\d.]+%\n",
    "sink_throughput": r"\n +task +10240 +async-kinesis +\d+ ",
    "scale": r"\nkinesis_ds +http2 +10 +[\d.]+ ",
    "stalled_shard": r"\n +http2 +not taken +[\d.]+ ",
    "back_pressure": r"\n\d+ records, 0 lost, 0 repeated\n",
    "source_throughput": r"\n +1000 +2 +kinesis_ds +[\d.]+ ",
    "source_latency": r"\n +idle +http2 +3 +[\d.]+ ",
    "large_values": r"\n *read +kinesis_ds +4 +\d+ ",
    "decode": r"\n +1000 +[\d,]+ +[\d.]+ ",
    "agent_processes": r"\n +1000 +2 +[\d.]+ ",
    "aggregates": r"\n +taken apart +10000 +5 +[\d,]+ ",
    "planning": r"\n +1000 +a batch, all of it, without limits +[\d.]+ ",
}
# Those that start no Spark and few connections; the others are for `make test-all`.
SHORT = ("aggregates", "decode", "planning", "sink_ordering")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in NAMES]
)
def test_a_benchmark_ends_with_its_table(name: str) -> None:
    """``--quick`` writes far less, and does all the same."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick"],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(SAID[name], done.stdout), done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    """All that it takes from the connector, the double and Spark is there."""
    assert callable(importlib.import_module(f"benchmarks.{name}").main)
