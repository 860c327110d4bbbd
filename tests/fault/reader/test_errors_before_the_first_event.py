"""What goes wrong before anything was received leaves the position to start from (F25)."""

from __future__ import annotations

import pytest

from kinesis_ds.plan.position import After, AtTimestamp, Position
from kinesis_ds.testing import (
    AnswerWith,
    CloseStream,
    Corrupt,
    Cut,
    Disconnect,
    Fault,
    KinesisServer,
    Raise,
    Refuse,
)
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import STREAM, numbered, starts, subscribe_calls

pytestmark = [pytest.mark.fault, pytest.mark.each_transport]

REFUSALS = [
    Refuse("ResourceInUseException"),
    Refuse("LimitExceededException"),
    Refuse("ProvisionedThroughputExceededException"),
    Refuse("InternalFailure", status=500),
    AnswerWith(b"<html>busy</html>", 503, "text/html"),
    AnswerWith(b"", 500),
    AnswerWith(b"not here", 404, "text/plain"),
    AnswerWith(b"[]", 400),
    Disconnect(),
    Disconnect(performed=True),
]
ENDINGS = [
    CloseStream(),
    Cut(0),
    Cut(5),
    Cut(properly=True),
    Corrupt(),
    Raise("InternalFailureException"),
    Raise("KMSThrottlingException"),
    Raise("ResourceInUseException"),
]


def script(actions: list[object], event: int = 1) -> list[Fault]:
    """One after the other, each at a call of its own."""
    return [
        Fault(action, call=n, event=event)  # type: ignore[arg-type]
        for n, action in enumerate(actions, 1)
    ]


@pytest.mark.parametrize("part", [REFUSALS[:5], REFUSALS[5:]], ids=["first", "rest"])
def test_calls_that_fail_are_made_again_with_the_same_start(
    serve: Serve, start_agent: StartAgent, part: list[object]
) -> None:
    """F25: whatever refuses the call, the next one asks for the same; records are read once."""
    kinesis = serve(None, *script(part))
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 3))
    calls = subscribe_calls(kinesis)
    assert len(kinesis.struck()) == len(part)
    assert set(starts(calls)) == {"TRIM_HORIZON"}
    assert agent.agent.failure() is None


@pytest.mark.parametrize("event", [0, 1], ids=["initial response", "first event"])
def test_subscriptions_that_end_at_once_are_opened_with_the_same_start(
    serve: Serve, start_agent: StartAgent, event: int
) -> None:
    """F25: opened, and over before the first event: nothing was received."""
    part = ENDINGS[:4] if event else ENDINGS[4:]
    kinesis = serve(None, *script(list(part), event))
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 3))
    assert len(kinesis.struck()) == len(part)
    calls = [call for call in subscribe_calls(kinesis) if call.outcome == "ok"]
    assert starts(calls) == ["TRIM_HORIZON"] * (len(part) + 1)


@pytest.mark.parametrize("kind", ["a time", "a number"])
def test_every_kind_of_start_is_kept(
    kinesis: KinesisServer, start_agent: StartAgent, kind: str
) -> None:
    """F25: a time stays that time, a number stays AFTER that number."""
    kinesis.put(STREAM, *numbered(1, 2))
    stored = kinesis.records(STREAM)
    wait_from = stored[-1].arrived
    kinesis.wait_for(lambda: kinesis.clock.wall() > wait_from + 1, what="a second later")
    now_ms = int(kinesis.clock.wall() * 1000) - 500
    start: Position = (
        AtTimestamp(now_ms) if kind == "a time" else After(str(stored[-1].sequence_number))
    )
    kinesis.put(STREAM, *numbered(3, 4))
    kinesis.add_faults(*script([Refuse("InternalFailure", status=500), CloseStream(), Cut(0)]))
    agent = start_agent(kinesis).assign(position=start)

    agent.take_until(numbered(3, 4))
    assert len(kinesis.struck()) == 3
    asked = starts(subscribe_calls(kinesis))
    assert len(set(asked)) == 1
    assert asked[0] == (
        f"AT_TIMESTAMP:{now_ms / 1000}"
        if kind == "a time"
        else f"AFTER_SEQUENCE_NUMBER:{stored[-1].sequence_number}"
    )
