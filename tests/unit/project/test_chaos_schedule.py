"""A chaos run's schedule: the same for a seed everywhere, and the same again from its JSON."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.chaos.schedule import (
    QUIET_SEED,
    SOURCE,
    Burst,
    Freeze,
    Inject,
    Kill,
    Outage,
    Schedule,
    Split,
    StandStill,
    dump_schedule,
    load_schedule,
    make_schedule,
)
from kinesis_ds.options.parse import parse_read_options, parse_write_options
from kinesis_ds.testing.faults import AnswerWith, Corrupt, Fault, MiscountResults, SendBytes

SEEDS = range(1, 301)


@pytest.mark.parametrize("seed", [0, 1, 17, 123456])
def test_a_seed_makes_the_same_schedule_each_time(seed: int) -> None:
    """A run can be repeated by its number alone."""
    assert make_schedule(seed) == make_schedule(seed)
    assert make_schedule(seed) != make_schedule(seed + 1)


def test_seeds_made_before_keep_their_schedules() -> None:
    """A number in a bug report means the same next year; a new drawing needs a new VERSION."""
    schedule = make_schedule(17)
    kinds = Counter(type(step).__name__ for step in schedule.steps)
    assert (schedule.shards, schedule.records) == (5, 1078)
    assert kinds == {
        "Burst": 19,
        "Inject": 8,
        "Intrude": 4,
        "Kill": 2,
        "Merge": 1,
        "Scale": 2,
        "Speculate": 1,
        "Split": 2,
    }


@pytest.mark.parametrize("seed", range(60))
def test_a_schedule_goes_through_json(seed: int) -> None:
    """Faults, with their bytes, too."""
    schedule = make_schedule(seed)
    assert load_schedule(dump_schedule(schedule)) == schedule


def test_every_kind_of_step_goes_through_json() -> None:
    """Also those that no seed tried here has drawn."""
    steps = (
        Burst(0.0, 3, 10, 2),
        Kill(1.0, "driver", "logged", 8.0),
        Split(1.5, 0.5),
        Outage(2.0, 3.0),
        StandStill(2.5, 1.0),
        Freeze(3.0, "agent", 2.0),
        Inject(4.0, Fault(SendBytes(b"\x00\xff"), shard="shardId-000000000001", event=2)),
    )
    schedule = Schedule(5, 2, 1, True, 30.0, 1024, {"a": "b"}, {}, steps)
    assert load_schedule(dump_schedule(schedule)) == schedule
    assert (schedule.records, schedule.seconds) == (3, 9.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "JSON object"),
        ("{}", "version"),
        ('{"v": 1}', "steps"),
        ('{"v": 1, "steps": [{"do": "Dance", "at": 1}]}', "Kill"),
        ('{"v": 1, "steps": [], "seed": 1}', "shards"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, said: str) -> None:
    """A file kept by another version must not run as something else."""
    with pytest.raises(ValueError, match=said):
        load_schedule(text)


def test_the_quiet_seed_is_quiet() -> None:
    """What fails with it is no matter of faults."""
    assert {type(step) for step in make_schedule(QUIET_SEED).steps} == {Burst}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_can_be_survived(seed: int) -> None:
    """Bounded faults, options that parse, and records after everything else."""
    schedule = make_schedule(seed)
    faults = [step.fault for step in schedule.steps if isinstance(step, Inject)]
    assert all(fault.times is not None for fault in faults)
    damage = [f for f in faults if isinstance(f.action, Corrupt)]
    assert sum(f.times or 0 for f in damage) < 5, "five in a row end a subscription"
    failures = [
        f
        for f in faults
        if isinstance(f.action, MiscountResults)
        or (isinstance(f.action, AnswerWith) and f.action.status == 200)
    ]
    assert sum(f.times or 0 for f in failures) < 4, "four failures end a task"

    names = {"streamName": SOURCE}
    parse_read_options({**names, **schedule.source_options})
    parse_write_options({**names, **schedule.sink_options})
    assert list(schedule.steps) == sorted(schedule.steps, key=lambda step: step.at)
    assert isinstance(schedule.steps[-1], Burst)


def test_everything_is_drawn_sooner_or_later() -> None:
    """No kind of step, victim, moment or fault is left out by a slip."""
    steps = [step for seed in SEEDS for step in make_schedule(seed).steps]
    assert len({type(step) for step in steps}) == 12
    assert len({(s.victim, s.moment) for s in steps if isinstance(s, Kill)}) == 9
    faults = [step.fault for step in steps if isinstance(step, Inject)]
    assert len({type(fault.action) for fault in faults}) == 18
    assert {fault.operation for fault in faults} == {
        "SubscribeToShard",
        "ListShards",
        "DescribeStreamSummary",
        "DescribeStreamConsumer",
        "GetRecords",
        "GetShardIterator",
        "PutRecords",
    }
