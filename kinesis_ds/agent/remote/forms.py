"""Translate the values in control messages to plain JSON values and back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kinesis_ds import errors
from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.errors import InternalError, KinesisConnectorError
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.position import parse_position
from kinesis_ds.plan.ranges import ShardRange
from kinesis_ds.plan.shards import Shard


@dataclass(frozen=True)
class Form:
    """A pair of functions that translate one kind of value.

    Attributes:
        to_wire: Returns what JSON can carry.
        from_wire: Returns the value again. May raise anything that :func:`framing.decode` catches.
    """

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]


def _tuple_of(form: Form) -> Form:
    return Form(
        lambda values: [form.to_wire(value) for value in values],
        lambda values: tuple(form.from_wire(value) for value in values),
    )


def _values_of(form: Form) -> Form:
    return Form(
        lambda found: {key: form.to_wire(value) for key, value in found.items()},
        lambda found: {key: form.from_wire(value) for key, value in found.items()},
    )


def _optional(form: Form) -> Form:
    return Form(
        lambda value: None if value is None else form.to_wire(value),
        lambda value: None if value is None else form.from_wire(value),
    )


def _shard_to_wire(shard: Shard) -> list[Any]:
    low, high = shard.hash_range
    # Hash keys as text: they have 128 bits, and orjson writes integers of at most 64.
    return [
        shard.shard_id,
        shard.parents,
        shard.first_sequence_number,
        shard.closed,
        str(low),
        str(high),
    ]


def _shard_from_wire(raw: list[Any]) -> Shard:
    shard_id, parents, first, closed, low, high = raw
    return Shard(shard_id, tuple(parents), first, closed, (int(low), int(high)))


def _range_from_wire(raw: list[Any]) -> ShardRange:
    shard_id, start, end = raw
    return ShardRange(shard_id, parse_position(start), parse_position(end))


def _held_to_wire(held: Held) -> list[Any]:
    return [held.records, held.nbytes, str(held.end), held.oldest_ms]


def _held_from_wire(raw: list[Any]) -> Held:
    records, nbytes, end, oldest_ms = raw
    return Held(records, nbytes, parse_position(end), oldest_ms)


def _error_from_wire(raw: list[Any]) -> KinesisConnectorError:
    kind, message, remedy, code = raw
    found: object = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, KinesisConnectorError)):
        found = InternalError
    error: KinesisConnectorError = found(message, remedy)
    error.code = code
    return error


def _agent_options(raw: Mapping[str, Any]) -> AgentOptions:
    polling = raw["polling"]
    return AgentOptions(
        **{**raw, "polling": None if polling is None else PollingOptions(**polling)}
    )


PLAIN = Form(lambda value: value, lambda raw: raw)
POSITION = Form(str, parse_position)
POSITIONS = _values_of(POSITION)
SHARD = Form(_shard_to_wire, _shard_from_wire)
RANGE = Form(lambda r: [r.shard_id, str(r.start), str(r.end)], _range_from_wire)
RANGES = _tuple_of(RANGE)
LIMITS = _tuple_of(Form(list, lambda raw: Limits(*raw)))
HELD = _tuple_of(_optional(Form(_held_to_wire, _held_from_wire)))
ERROR = Form(lambda e: [type(e).__name__, e.message, e.remedy, e.code], _error_from_wire)
OPTIONAL_ERROR = _optional(ERROR)
ERRORS = _values_of(ERROR)
# ``dumps`` writes a dataclass as an object of its fields.
AWS = Form(lambda value: value, lambda raw: AwsOptions(**raw))
AGENT_OPTIONS = Form(lambda value: value, _agent_options)
