"""Objects that cross a process boundary are unchanged after it and show no secret."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from kinesis_ds import errors
from kinesis_ds.agent import machine as shard_machine
from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.efo import machine as efo_machine
from kinesis_ds.agent.pool import PoolStatistics
from kinesis_ds.options.parse import parse_read_options, parse_write_options
from kinesis_ds.plan.offsets import InitialOffset, SourceOffset, StreamOffset
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp
from kinesis_ds.plan.ranges import ShardRange
from kinesis_ds.plan.start import Latest
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.plan.ticket import AgentAddress
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.stream import KinesisStreamReader
from kinesis_ds.wire.event_stream import Message
from tests.support.builders import shard

SECRET = "wJalrXUtnFEMI-bPxRfiCYEXAMPLEKEY"
RAW = {
    "streamName": "orders",
    "awsAccessKey": SECRET,
    "awsSecretKey": SECRET,
    "sessionToken": SECRET,
    "endpoint": "http://localhost:4566",
}
ADDRESS = AgentAddress("grpc://127.0.0.1:1", SECRET)
PLANNED = PlannedRange("orders", "arn", "s", TRIM_HORIZON, After("7"), 3, ADDRESS)
ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.KinesisConnectorError)
]


def stimuli() -> list[object]:
    """Return one of each message between the machine and its runner."""
    values = {
        "generation": 1,
        "error": errors.TransientError("x"),
        "position": After("1"),
        "records": 1,
        "millis_behind": 0,
        "has_children": True,
        "has_continuation": False,
        "ended": True,
        "gone": False,
        "denied": None,
        "when": 1.0,
        "text": "x",
    }
    kinds = [
        kind
        for machine in (shard_machine, efo_machine)
        for _, kind in inspect.getmembers(machine, inspect.isclass)
        if kind.__module__ == machine.__name__ and dataclasses.is_dataclass(kind)
    ]
    assert len(kinds) >= 21
    return [kind(**{f.name: values[f.name] for f in dataclasses.fields(kind)}) for kind in kinds]


WITH_ERRORS = (
    efo_machine.Broke,
    shard_machine.Crashed,
    shard_machine.Refused,
    shard_machine.Diagnosed,
    shard_machine.Fail,
)
VALUES = [
    TRIM_HORIZON,
    SHARD_END,
    After("0042"),
    AtTimestamp(5),
    InitialOffset(),
    Latest(),
    StreamId("orders"),
    SourceOffset({"arn": StreamOffset("orders", "arn", 1, "consumer", {"s": After("1")})}),
    ShardRange("s", TRIM_HORIZON, After("1")),
    shard("s", "p", closed=True),
    parse_read_options(RAW),
    parse_write_options(RAW),
    parse_read_options(RAW).aws,
    ADDRESS,
    PLANNED,
    AgentOptions("orders", "arn", "consumer", 1.0, fail_on_data_loss=True, host="h"),
    PoolStatistics(1, 2, 3, 4, 5, 6),
    Message(b"raw", 0),
    *stimuli(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_value_survives_pickling_and_shows_no_secret(value: object) -> None:
    """It is equal after pickling in every protocol, and its ``repr`` may be logged."""
    if isinstance(value, WITH_ERRORS):
        value = dataclasses.replace(value, error=None)  # type: ignore[arg-type]

    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))  # noqa: S301
        assert again == value
        assert type(again) is type(value)
    assert SECRET not in repr(value)
    assert SECRET not in str(value)


@pytest.mark.parametrize(
    "value", [v for v in VALUES if dataclasses.is_dataclass(v)], ids=lambda v: type(v).__name__
)
def test_values_are_frozen(value: object) -> None:
    """An object that was passed on cannot be changed by the sender."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        object.__getattribute__(value, "__setattr__")("anything", 1)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda k: k.__name__)
def test_an_error_survives_pickling_and_copying(kind: type[errors.KinesisConnectorError]) -> None:
    """Message, remedy, code and class reach the driver, and a copy can be raised again."""
    error = kind("what happened", "What to do.")
    error.code = "SomeException"

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(again) is kind
        assert str(again) == str(error) == f"[{kind.condition}] what happened What to do."
        assert (again.message, again.remedy, again.code) == (
            error.message,
            error.remedy,
            error.code,
        )
        assert again.retryable is kind.retryable


def test_every_error_has_a_condition_of_its_own() -> None:
    """A condition that users search for belongs to one class."""
    assert len({kind.condition for kind in ERRORS}) == len(ERRORS)
    assert str(errors.AgentError("no remedy")) == "[KINESIS_AGENT] no remedy"


def test_a_partition_carries_its_range() -> None:
    """The task gets the range that the driver planned, and Spark's log gets no token."""
    partition = RangePartition(PLANNED)
    again = pickle.loads(pickle.dumps(partition))  # noqa: S301

    assert again.ranges == (PLANNED,)
    assert SECRET not in repr(partition)
    assert SECRET not in str(partition.value)


def test_a_reader_travels_without_what_it_runs() -> None:
    """A copy in a task has the options, but no coordinator and no connections."""
    reader = KinesisStreamReader(parse_read_options(RAW))
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301

    assert vars(again) == {
        "_options": parse_read_options(RAW),
        "_coordinator": None,
        "_asked": None,
    }
    again.stop()
