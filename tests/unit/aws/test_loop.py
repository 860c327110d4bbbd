"""The thread that owns the event loop."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.testing import KinesisServer


def test_calls_that_a_failed_one_left_under_way_end_with_the_loop() -> None:
    """They were destroyed with the loop before, in whatever they did, and it was told long after,
    as an error of somebody else.
    """
    ended = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("no such stream")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    async def both() -> None:
        await asyncio.gather(wait(), fail())

    with KinesisServer() as kinesis:
        network = NetworkLoop(AwsOptions("us-east-1", kinesis.endpoint, "access", "secret"))
        with pytest.raises(LookupError):
            network.run(both(), 30.0, "both")
        assert not ended
        network.close()
    assert ended == ["wait"]
