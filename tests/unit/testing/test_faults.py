"""Faults as data: where they strike, how often, and as JSON."""

from __future__ import annotations

import pytest

from kinesis_ds.testing import faults as module
from kinesis_ds.testing.fault_script import FaultScript
from kinesis_ds.testing.faults import (
    Alter,
    AnswerWith,
    Cut,
    Delay,
    FailRecords,
    Fault,
    NoAnswer,
    Pause,
    Refuse,
    SendBytes,
    Stall,
    Target,
    dump_faults,
    load_faults,
)

ONE = Target("SubscribeToShard", "orders", "shard-1", "reader")
OTHER = Target("SubscribeToShard", "orders", "shard-2", "reader")
PUT = Target("PutRecords", "orders")


def script(*given: Fault) -> FaultScript:
    made = FaultScript()
    made.add(given, 100.0)
    return made


def calls(made: FaultScript, *targets: Target, now: float = 100.0) -> list[int]:
    """How many actions struck at each of these calls."""
    return [len(made.on_call(target, now)[0]) for target in targets]


def test_a_fault_strikes_once_at_the_first_call_it_concerns() -> None:
    """By default: once, at any shard."""
    made = script(Fault(Refuse("X")))

    assert calls(made, PUT, ONE, ONE) == [0, 1, 0]
    assert made.pending() == []
    assert [target for _, target in made.struck] == [ONE]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(Refuse("X"), shard="shard-2"), [0, 1, 0, 0]),
        (Fault(Refuse("X"), call=2), [0, 1, 0, 0]),
        (Fault(Refuse("X"), call=3), [0, 0, 0, 1]),
        (Fault(Refuse("X"), times=2), [1, 1, 0, 0]),
        (Fault(Refuse("X"), times=None), [1, 1, 0, 1]),
        (Fault(Refuse("X"), operation="PutRecords"), [0, 0, 1, 0]),
        (Fault(Refuse("X"), stream="other"), [0, 0, 0, 0]),
        (Fault(Refuse("X"), consumer="reader", call=2), [0, 1, 0, 0]),
    ],
)
def test_where_a_fault_strikes(fault: Fault, expected: list[int]) -> None:
    """Operation, stream, shard, consumer, and the n-th of those calls."""
    assert calls(script(fault), ONE, OTHER, PUT, ONE) == expected


def test_time_is_counted_from_when_the_fault_was_given() -> None:
    """Not before so many seconds, and then at the next call."""
    made = script(Fault(Refuse("X"), after_s=5))

    assert calls(made, ONE, now=104.9) == [0]
    assert calls(made, ONE, ONE, now=105.0) == [1, 0]


def test_a_fault_inside_a_stream_strikes_at_its_event() -> None:
    """Of the subscription that it met, and only there."""
    made = script(Fault(Cut(3), event=2))
    actions, stream = made.on_call(ONE, 100.0)

    assert actions == []
    assert [stream.at_event(n, 100.0) for n in (0, 1, 2, 3)] == [[], [], [Cut(3)], []]
    assert made.pending() == []


def test_a_fault_inside_a_stream_waits_for_its_event_in_later_subscriptions() -> None:
    """A subscription that ended before its event leaves the fault to the next one."""
    made = script(Fault(Stall(), event=2))
    _, first = made.on_call(ONE, 100.0)
    assert first.at_event(1, 100.0) == []
    _, second = made.on_call(ONE, 101.0)

    assert [second.at_event(n, 101.0) for n in (1, 2)] == [[], [Stall()]]
    assert first.at_event(2, 102.0) == []


def test_a_fault_inside_a_stream_may_wait_for_a_time() -> None:
    """It strikes at the first event from then on."""
    made = script(Fault(Stall(), after_s=10))
    _, stream = made.on_call(ONE, 100.0)

    assert [len(stream.at_event(n, 100.0 + 4 * n)) for n in (1, 2, 3, 4)] == [0, 0, 1, 0]


def test_what_is_cleared_does_not_strike_open_subscriptions() -> None:
    """Clearing ends everything still to come."""
    made = script(Fault(Stall(), event=2), Fault(Refuse("X"), times=None))
    _, stream = made.on_call(PUT, 100.0)
    _, stream = made.on_call(ONE, 100.0)
    made.clear()

    assert stream.at_event(2, 100.0) == []
    assert calls(made, ONE) == [0]


def test_a_fault_of_streams_belongs_to_subscriptions() -> None:
    """A cut inside an event of PutRecords would never strike."""
    with pytest.raises(ValueError, match="subscriptions only"):
        Fault(Cut(), operation="PutRecords")


@pytest.mark.parametrize(
    ("action", "struck"),
    [
        (FailRecords(), [0, 1, 2, 3, 4]),
        (FailRecords(every=2), [0, 2, 4]),
        (FailRecords(first=1, every=3), [1, 4]),
        (FailRecords(first=1, count=2), [1, 2]),
        (FailRecords(first=9), []),
    ],
)
def test_which_records_fail(action: FailRecords, struck: list[int]) -> None:
    """Counted within the request."""
    assert action.strikes(5) == struck


EVERY_ACTION = [
    Fault(kind(**given), operation=operation)  # type: ignore[call-arg]
    for kind, given, operation in (
        (Refuse, {"code": "X", "message": "m", "status": 500}, "PutRecords"),
        (AnswerWith, {"body": b"\x00\xff"}, "ListShards"),
        (NoAnswer, {"performed": True}, "PutRecords"),
        (Delay, {"seconds": 1.5}, "GetRecords"),
        (FailRecords, {"every": 2, "count": 7}, "PutRecords"),
        (Cut, {"byte": 12, "properly": True}, "SubscribeToShard"),
        (Pause, {"seconds": 3}, "SubscribeToShard"),
        (SendBytes, {"data": b"\x01\x02"}, "SubscribeToShard"),
        (Alter, {"put": {"ChildShards": []}, "drop": ["Records"]}, "SubscribeToShard"),
    )
] + [Fault(Stall(), stream="s", shard="x", consumer="c", call=3, event=4, after_s=2.5, times=None)]


def test_faults_survive_json() -> None:
    """What was stored strikes as what was given."""
    assert load_faults(dump_faults(EVERY_ACTION)) == EVERY_ACTION


def test_every_action_can_be_named() -> None:
    """The names in JSON are those of the classes."""
    for name in module._ACTIONS:
        assert hasattr(module, name)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '[{"operation": "PutRecords"}]',
        '[{"action": {"do": "Explode"}}]',
        '[{"action": {"do": "Cut", "bytes": 3}}]',
        '[{"action": {"do": "Cut"}, "when": 3}]',
        '[{"action": {"do": "SendBytes", "data": "%"}}]',
    ],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    """With an error that names what is wrong, before anything runs."""
    with pytest.raises(ValueError, match=r"."):
        load_faults(text)
