"""What takes minutes on a real server. Only on request: ``pytest -m soak``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.conftest import MakeStream
from integration.reading import ReaderJob, account
from kinesis_ds.limits import SUBSCRIPTION_LIFETIME_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_subscriptions_are_renewed_at_their_five_minute_end(
    endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """Records flow across the expiry of each subscription; none is lost or repeated."""
    stream = make_stream(shards=2)
    written: set[str] = set()
    next_write = time.monotonic()
    options = {"streamName": stream, "endpoint": endpoint, "initialPosition": "trim_horizon"}

    def renewed() -> bool:
        nonlocal next_write
        if time.monotonic() >= next_write:
            next_write = time.monotonic() + 1
            ids = [f"r{len(written) + i}" for i in range(5)]
            kinesis.put_records(
                StreamName=stream, Records=[{"Data": i.encode(), "PartitionKey": i} for i in ids]
            )
            written.update(ids)
        shards = job.statistics().get("shards", {})
        return bool(shards) and all(
            s["generation"] >= 2 and s["state"] == "streaming" for s in shards.values()
        )

    with ReaderJob(tmp_path, options) as job:
        job.wait_for(renewed, "every subscription renewed", SUBSCRIPTION_LIFETIME_S + 90)
        job.wait_for(lambda: len(account(job.out).records) >= len(written), "all records", 300)
        shards = job.statistics()["shards"].values()
        assert all(s["errors"] == {} for s in shards)
    account(tmp_path / "out").check(written)
