"""However much happens at once, a position is moved by one writer, and forward only (F28)."""

from __future__ import annotations

import itertools
import random

import pytest

from kinesis_ds.testing import (
    CloseStream,
    Corrupt,
    Cut,
    Fault,
    Raise,
    Refuse,
    Repeat,
    Settings,
    Trickle,
)
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to, subscribe_calls

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]


def any_fault(rng: random.Random, call: int) -> Fault:
    """Something at some event of the n-th subscription."""
    action = rng.choice(
        [
            CloseStream(),
            Cut(rng.randrange(120)),
            Corrupt(rng.randrange(-60, -1)),
            Raise("InternalFailureException"),
            Raise("ResourceInUseException"),
            Repeat(2),
            Trickle(7),
        ]
    )
    return Fault(action, call=call, event=rng.randrange(1, 6))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_positions_only_move_forward(serve: Serve, start_agent: StartAgent, seed: int) -> None:
    """F28: two shards, each with a fault a subscription; every one starts where the one before it
    had got to or further on, and every record comes once and in order.
    """
    rng = random.Random(seed)
    kinesis = serve(Settings(event_bytes=1), shards=2)
    for shard in (FIRST, SECOND):
        faults = [any_fault(rng, n) for n in range(1, 9)]
        kinesis.add_faults(
            *[Fault(f.action, shard=shard, call=f.call, event=f.event) for f in faults]
        )
    kinesis.add_faults(Fault(Refuse("InternalFailure", status=500), call=4))
    for shard in (FIRST, SECOND):
        put_to(kinesis, shard, *numbered(1, 40))
    agent = start_agent(kinesis).assign(FIRST, SECOND)

    for shard in (FIRST, SECOND):
        agent.take_until(numbered(1, 40), shard)
        starts = [
            int(call.request["StartingPosition"].get("SequenceNumber", 0))
            for call in subscribe_calls(kinesis, shard)
        ]
        assert all(sooner <= later for sooner, later in itertools.pairwise(starts))
        records = [r.sequence_number for r in kinesis.records(STREAM) if r.shard_id == shard]
        assert set(starts) <= {0, *records}
