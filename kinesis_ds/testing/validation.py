"""Check the form of requests: their fields, and each field's type and bounds. Pure.

As on AWS, a wrong type is a SerializationException, and a value outside its bounds is a
ValidationException that names every field at fault. Unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kinesis_ds.testing.errors import ServiceError


@dataclass(frozen=True)
class Field:
    """What one field may hold.

    Attributes:
        types: The types that the JSON value may have. A bool does not count as a number.
        required: Whether the field has to be there.
        low, high: Bounds of a number, or of the length of a text, a list or a map; None for none.
        pattern: A regular expression that the whole text matches; None for any text.
        choices: The values that are allowed; empty for all.
        fields: The fields of a structure; None for other types.
    """

    types: tuple[type, ...]
    required: bool = False
    low: int | None = None
    high: int | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    fields: Mapping[str, Field] | None = None


Fields = Mapping[str, Field]


def needed(of: Field) -> Field:
    """Return the same field, but required."""
    return replace(of, required=True)


def check(fields: Fields, request: Mapping[str, Any], path: str = "") -> None:
    """Refuse a request that does not have these fields.

    Args:
        path: What names the request in error texts, if it is part of another one.

    Raises:
        ServiceError: SerializationException or ValidationException.
    """
    faults = list(_faults(fields, request, path))
    if faults:
        count = f"{len(faults)} validation error{'s' if len(faults) > 1 else ''} detected: "
        raise ServiceError("ValidationException", count + "; ".join(faults))


def dry_run(request: Mapping[str, Any]) -> None:
    """End a request with ``DryRun``, which only asks whether it would succeed. Call it after all
    checks.

    Raises:
        ServiceError: DryRunOperationException, as AWS answers.
    """
    if request.get("DryRun"):
        raise ServiceError("DryRunOperationException", "The request would have succeeded.")


def _faults(fields: Fields, request: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, of in fields.items():
        path = f"{prefix}{name[0].lower()}{name[1:]}"
        value = request.get(name)
        if value is None:
            if of.required:
                yield _fault("null", path, "Member must not be null")
            continue
        if not _is_of(of.types, value):
            raise ServiceError(
                "SerializationException", f"{path} is of type {type(value).__name__}"
            )
        for rule in _broken_rules(of, value):
            yield _fault(value, path, rule)
        if of.fields is not None:
            yield from _faults(of.fields, value, f"{path}.")


def _is_of(types: tuple[type, ...], value: object) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _broken_rules(of: Field, value: Any) -> Iterator[str]:
    number = isinstance(value, (int, float))
    measured, what = (value, "value") if number else (len(value), "length")
    if of.low is not None and measured < of.low:
        yield f"Member must have {what} greater than or equal to {of.low}"
    if of.high is not None and measured > of.high:
        yield f"Member must have {what} less than or equal to {of.high}"
    if of.pattern is not None and not re.fullmatch(of.pattern, value, re.ASCII):
        yield f"Member must satisfy regular expression pattern: {of.pattern}"
    if of.choices and value not in of.choices:
        yield f"Member must satisfy enum value set: [{', '.join(of.choices)}]"


def _fault(value: Any, path: str, rule: str) -> str:
    shown = str(value)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    return f"Value '{shown}' at '{path}' failed to satisfy constraint: {rule}"
