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


def fields_of(kind: Any, *forms: Form) -> Form:
    """Return the form of a dataclass or named tuple: a list of its fields, each in its form."""
    names = kind.__match_args__
    return Form(
        lambda of: [f.to_wire(getattr(of, name)) for f, name in zip(forms, names, strict=True)],
        lambda raw: kind(*[f.from_wire(value) for f, value in zip(forms, raw, strict=True)]),
    )


def _object_of(kind: Any) -> Form:
    # ``dumps`` writes a dataclass as an object of its fields.
    return Form(lambda value: value, lambda raw: kind(**raw))


def _error_from_wire(raw: list[Any]) -> KinesisConnectorError:
    kind, message, remedy, code = raw
    found: object = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, KinesisConnectorError)):
        found = InternalError
    error: KinesisConnectorError = found(message, remedy)
    error.code = code
    return error


def _agent_options(raw: Mapping[str, Any]) -> AgentOptions:
    return AgentOptions(**{**raw, "polling": _POLLING.from_wire(raw["polling"])})


PLAIN = Form(lambda value: value, lambda raw: raw)
POSITION = Form(str, parse_position)
POSITIONS = _values_of(POSITION)
# Hash keys as text: they have 128 bits, and orjson writes integers of at most 64.
_HASH_RANGE = _tuple_of(Form(str, int))
SHARD = fields_of(Shard, PLAIN, _tuple_of(PLAIN), PLAIN, PLAIN, _HASH_RANGE)
RANGES = _tuple_of(fields_of(ShardRange, PLAIN, POSITION, POSITION))
LIMITS = _tuple_of(fields_of(Limits, PLAIN, PLAIN, PLAIN))
HELD = _tuple_of(_optional(fields_of(Held, PLAIN, PLAIN, POSITION, PLAIN)))
ERROR = Form(lambda e: [type(e).__name__, e.message, e.remedy, e.code], _error_from_wire)
OPTIONAL_ERROR = _optional(ERROR)
ERRORS = _values_of(ERROR)
AWS = _object_of(AwsOptions)
_POLLING = _optional(_object_of(PollingOptions))
AGENT_OPTIONS = Form(lambda value: value, _agent_options)
