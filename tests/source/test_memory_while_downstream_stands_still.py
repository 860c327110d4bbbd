"""A downstream that stands still while 16 shards send at wire speed: the memory of the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing import KinesisServer, Replay, Settings
from tests.support.stalled import LOOK_S
from tests.support.transports import TRANSPORTS

ROOT = Path(__file__).parents[2]
SHARDS = 16
# What the process may need beside its buffer, whatever that is: see docs/how-to/back-pressure.md.
CONSTANT = 96 * MIB
# What it may still gain once its buffer is full.
FLAT = 16 * MIB
# Of each shard: 20 MB.
EVENTS, RECORDS_AN_EVENT, RECORD_BYTES = 80, 250, 1000


def stand_still(over: str, seconds: float, buffer_mib: int, timeout: str) -> list[dict[str, Any]]:
    """Let a process stand still for a time with a full buffer, and then read everything.

    Args:
        timeout: After which subscriptions are given back.

    Returns:
        What it told of itself before, meanwhile and afterwards.
    """
    replay = Replay.of(EVENTS, RECORDS_AN_EVENT, RECORD_BYTES)
    with KinesisServer(Settings(enforce_limits=False), tls=over == "http2") as kinesis:
        kinesis.create_stream("orders", SHARDS)
        kinesis.replay("orders", replay)
        environment = {**os.environ}
        place = {"transport": over}
        if over == "http2":
            environment["AWS_CA_BUNDLE"] = str(kinesis.ca_file)
            place["endpoint"] = kinesis.tls_endpoint
        told = {
            "stall_s": seconds,
            "records": replay.records,
            "options": {
                **kinesis.options("orders"),
                **place,
                "initialPosition": "trim_horizon",
                "fetchBufferSize": f"{buffer_mib}mb",
                "subscriptionIdleTimeout": timeout,
            },
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.stalled", json.dumps(told)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds + 600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    *looks, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["read"] == dict.fromkeys(last["read"], replay.records)
    assert len(last["read"]) == SHARDS
    return looks


def check(looks: list[dict[str, Any]], buffer_mib: int, record_property: Any) -> None:
    """Little more memory than the buffer, which was full, and no growth."""
    before, *meanwhile, _, after = looks
    most = max(look["held"] for look in meanwhile)
    filled = next(look["at"] for look in meanwhile if look["held"] > 0.95 * most)
    # What was received last is decoded by then.
    full = [look for look in meanwhile if look["at"] >= filled + 5]
    held, rss = [look["held"] for look in full], [look["rss"] for look in full]
    by_minute = [f"{look['rss'] / MIB:.1f}" for look in full[:: int(60 / LOOK_S)]]
    record_property("rss_by_minute_mib", " ".join(by_minute))
    record_property("rss_before_mib", before["rss"] / MIB)
    record_property("rss_full_mib", f"{min(rss) / MIB:.1f} to {max(rss) / MIB:.1f}")
    record_property("rss_after_mib", after["rss"] / MIB)
    record_property("held_mib", f"{min(held) / MIB:.1f} to {max(held) / MIB:.1f}")
    record_property("received_mib", full[-1]["received"] / MIB)
    # It was full: nothing of this is proved where it was not.
    assert most > 0.9 * buffer_mib * MIB
    assert max(look["peak"] for look in looks) <= buffer_mib * MIB
    for look in looks:
        assert look["rss"] - before["rss"] <= buffer_mib * MIB + CONSTANT
    assert max(rss) - rss[0] <= FLAT


@pytest.mark.fault
@pytest.mark.timeout(650)
@pytest.mark.parametrize(
    "over",
    # What HTTP/2 is received with is not Python, and has memory of its own.
    [pytest.param(over, marks=[pytest.mark.long] * (over == "http1")) for over in TRANSPORTS],
)
def test_memory_is_flat_while_downstream_stands_still(over: str, record_property: Any) -> None:
    """F40: at most the buffer and a constant, subscriptions given back; then each record, once."""
    looks = stand_still(over, 20.0, 64, "8s")
    check(looks, 64, record_property)
    assert looks[-3]["states"] == ["parked"]


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("timeout", ["30s", "3600s"], ids=["given back", "held open"])
@pytest.mark.parametrize("over", TRANSPORTS)
def test_memory_is_flat_while_downstream_stands_still_for_ten_minutes(
    over: str, timeout: str, record_property: Any
) -> None:
    """F40: whether the subscriptions are given back or held open for all that time."""
    check(stand_still(over, 600.0, 256, timeout), 256, record_property)
