"""The parsers of option values, one for each form of value. Pure.

A parser turns a text into a value, or raises ``ValueError`` with the form that it expects. Its
words go into the middle of a sentence for the user: "linger is 5, expected a duration with its
unit". Positions have a module of their own, :mod:`kinesis_ds.options.positions`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from kinesis_ds.plan.stream import region_of

# --- texts --------------------------------------------------------------------------------------

_NAME = r"[a-zA-Z0-9_.-]{1,128}"
_STREAM_ARN = rf"arn:[^:\s]+:kinesis:[^:\s]+:[0-9]{{12}}:stream/{_NAME}"


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a non-empty text")
    return value.strip()


def pattern(regex: str, form: str) -> Callable[[str], str]:
    """Return a parser for texts that match a regular expression as a whole."""

    def parse(value: str) -> str:
        if not re.fullmatch(regex, value.strip()):
            raise ValueError(form)
        return value.strip()

    return parse


name = pattern(_NAME, "1 to 128 letters, digits, '_', '.' or '-'")
name_prefix = pattern(r"[a-zA-Z0-9_.-]{1,100}", "1 to 100 letters, digits, '_', '.' or '-'")
url = pattern(r"https?://[^\s/?#@]+/?", "http://host[:port] or https://host[:port]")
role_arn = pattern(
    r"arn:[^:\s]+:iam::[0-9]{12}:role/[^\s]{1,512}", "arn:<partition>:iam::<account>:role/<name>"
)
session_name = pattern(r"[A-Za-z0-9_+=,.@-]{2,64}", "2 to 64 letters, digits or any of _+=,.@-")


def endpoint(value: str) -> str:
    return url(value).rstrip("/")


def host(value: str) -> str:
    """Parse a host name or an IP address; an IPv6 address may stand in brackets."""
    bare = value.strip()
    inner = bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare
    if ":" in inner:
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv6Address(inner))
    elif re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", bare):
        return bare
    raise ValueError("a host name or an IP address, without a port")


def ports(value: str) -> tuple[int, int]:
    """Parse a port, or a range of ports ``first-last``, to its first and last port."""
    match = re.fullmatch(r"\s*([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?\s*", value)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= 65535:
        raise ValueError("a port from 1 to 65535, or a range as 40000-40009")
    return first, last


T = TypeVar("T")


def listed(parse: Callable[[str], T], *, distinct: bool = True) -> Callable[[str], tuple[T, ...]]:
    """Return a parser for one or more values with commas between them."""

    def parse_all(value: str) -> tuple[T, ...]:
        found = tuple(parse(part) for part in value.split(","))
        if distinct and len(set(found)) < len(found):
            raise ValueError("each one once")
        return found

    return parse_all


def _stream_name(value: str) -> str:
    if value.strip().startswith("arn:"):
        raise ValueError("names; ARNs go into streamARN")
    return name(value)


_stream_arn = pattern(_STREAM_ARN, "arn:<partition>:kinesis:<region>:<account>:stream/<name>")
stream_names = listed(_stream_name)
consumer_names = listed(name, distinct=False)


def stream_arns(value: str) -> tuple[str, ...]:
    found = listed(_stream_arn)(value)
    if len({region_of(arn) for arn in found}) > 1:
        raise ValueError("streams of one region; a query of its own for each other one")
    return found


def _consumer_id(value: str) -> str:
    is_arn = re.fullmatch(rf"{_STREAM_ARN}/consumer/{_NAME}:[0-9]{{1,20}}", value.strip())
    if not is_arn and not re.fullmatch(_NAME, value.strip()):
        raise ValueError(
            "consumer names, or ARNs (arn:<partition>:kinesis:<region>:<account>:stream/<name>"
            "/consumer/<name>:<number>)"
        )
    return value.strip()


def consumer_ids(value: str) -> tuple[str, ...]:
    found = listed(_consumer_id, distinct=False)(value)
    if len({consumer.startswith("arn:") for consumer in found}) > 1:
        raise ValueError("names or ARNs, not both")
    return found


def choice(values: Mapping[str, T], form: str) -> Callable[[str], T]:
    """Return a parser for one of a few words, in upper or lower case."""

    def parse(value: str) -> T:
        if value.strip().lower() not in values:
            raise ValueError(form)
        return values[value.strip().lower()]

    return parse


boolean = choice({"true": True, "false": False}, "true or false")
consumer_mode = choice(
    {"efo": "efo", "subscribetoshard": "efo", "polling": "polling", "getrecords": "polling"},
    "efo or polling",
)
consumer_id_type = choice({"name": "name", "arn": "ARN"}, "name or ARN")
transport = choice({"auto": "auto", "http1": "http1", "http2": "http2"}, "auto, http1 or http2")
agent_placement = choice({"driver": "driver"}, "driver (executors is not in this version)")


# --- numbers ------------------------------------------------------------------------------------

_SECONDS = {"us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = (
    r"(?:(?P<us>us|microseconds?)|(?P<ms>ms|milliseconds?)|(?P<s>s|sec|seconds?)"
    r"|(?P<m>m|min|minutes?)|(?P<h>h|hours?)|(?P<d>d|days?))"
)
_DURATION = re.compile(rf"\s*([0-9]{{1,18}}(?:\.[0-9]{{1,9}})?)\s*{_UNIT}\s*")
_JVM_DURATION = re.compile(rf"\s*([0-9]{{1,18}})\s*{_UNIT}?\s*")


def duration(at_least_s: float, at_most_s: float = 86400.0) -> Callable[[str], float]:
    """Return a parser for a duration with a unit; the value is in seconds."""

    def parse(value: str) -> float:
        match = _DURATION.fullmatch(value.lower())
        seconds = float(match[1]) * _SECONDS[match.lastgroup or ""] if match else -1.0
        if not at_least_s <= seconds <= at_most_s:
            raise ValueError(
                f"a duration with its unit (ms, s, min, h, d) from {_shown_time(at_least_s)} to "
                f"{_shown_time(at_most_s)}"
            )
        return seconds

    return parse


def jvm_duration(at_least_s: float, at_most_s: float) -> Callable[[str], float]:
    """Return a parser for a duration as JVM connectors read it; the value is in seconds.

    Without a unit it is in milliseconds. A value outside the bounds is moved to the nearest bound.
    """

    def parse(value: str) -> float:
        match = _JVM_DURATION.fullmatch(value.lower())
        if not match:
            raise ValueError("milliseconds, or a number with its unit (ms, s, min, h, d)")
        return min(max(float(match[1]) * _SECONDS[match.lastgroup or "ms"], at_least_s), at_most_s)

    return parse


def _shown_time(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


# More than anybody means. As an upper limit it is not mentioned in messages.
_BOUNDLESS = 1 << 50


def size(at_least: int, at_most: int = _BOUNDLESS) -> Callable[[str], int]:
    """Return a parser for a number of bytes, with or without a unit."""

    def parse(value: str) -> int:
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(b|kb|k|mb|m|gb|g)?\s*", value.lower())
        unit = (match[2] or "b")[0] if match else "b"
        size = int(match[1]) * 1024 ** "bkmg".index(unit) if match else -1
        if not at_least <= size <= at_most:
            bounds = _bounds(at_least, at_most, size, _shown_size)
            raise ValueError(f"bytes, or a number with kb, mb or gb, {bounds}")
        return size

    return parse


def count(at_least: int, at_most: int = _BOUNDLESS) -> Callable[[str], int]:
    """Return a parser for a whole number."""

    def parse(value: str) -> int:
        count = int(value) if re.fullmatch(r"\s*[0-9]{1,18}\s*", value) else -1
        if not at_least <= count <= at_most:
            raise ValueError(f"a whole number {_bounds(at_least, at_most, count, str)}")
        return count

    return parse


def rate(at_least: float, at_most: float, unit: int) -> Callable[[str], int]:
    """Return a parser for a number of ``unit`` bytes a second; the value is in bytes a second."""

    def parse(value: str) -> int:
        match = re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", value.strip())
        number = float(value) if match else -1.0
        if not at_least <= number <= at_most:
            raise ValueError(f"MB a second, from {at_least:g} to {at_most:g}")
        return int(number * unit)

    return parse


def _bounds(low: int, high: int, given: int, shown: Callable[[int], str]) -> str:
    if high == _BOUNDLESS and given <= high:
        return f"at least {shown(low)}"
    return f"from {shown(low)} to {shown(high)}"


def _shown_size(size: int) -> str:
    for power, unit in ((5, "PiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power and size % 1024**power == 0:
            return f"{size // 1024**power} {unit}"
    return f"{size} byte" if size == 1 else f"{size} bytes"
