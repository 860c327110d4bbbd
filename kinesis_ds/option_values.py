"""What the text of an option may be: one parser a kind of value. Pure.

A parser turns text into a value, or raises ``ValueError`` with the form that it expected; the words
go into the middle of a sentence for the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from kinesis_ds.position import TRIM_HORIZON, AtTimestamp, TrimHorizon


@dataclass(frozen=True)
class Latest:
    """Start at what is written from now on. Resolved once, when the query first runs."""


InitialPosition = Latest | TrimHorizon | AtTimestamp


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a non-empty text")
    return value.strip()


def stream_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", value.strip()):
        raise ValueError("1 to 128 letters, digits, '_', '.' or '-'")
    return value.strip()


def stream_arn(value: str) -> str:
    if not re.fullmatch(
        r"arn:[^:]+:kinesis:[^:]+:\d{12}:stream/[a-zA-Z0-9_.-]{1,128}", value.strip()
    ):
        raise ValueError("arn:<partition>:kinesis:<region>:<account>:stream/<name>")
    return value.strip()


def url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#@]+(:\d+)?/?", value.strip()):
        raise ValueError("http://host[:port] or https://host[:port]")
    return value.strip().rstrip("/")


def boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


_DURATION = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(at_least_s: float, at_most_s: float = 86400.0) -> Callable[[str], float]:
    def parse(value: str) -> float:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*", value.lower())
        seconds = float(match[1]) * _DURATION[match[2]] if match else -1.0
        if not at_least_s <= seconds <= at_most_s:
            raise ValueError(
                f"a duration with its unit (ms, s, min, h, d) from {at_least_s:g}s to "
                f"{at_most_s:g}s"
            )
        return seconds

    return parse


# Above what anybody means; as a bound it is not worth a word in a message.
_BOUNDLESS = 1 << 50


def size(at_least: int, at_most: int = _BOUNDLESS) -> Callable[[str], int]:
    def parse(value: str) -> int:
        match = re.fullmatch(r"\s*(\d{1,18})\s*(b|kb|k|mb|m|gb|g)?\s*", value.lower())
        unit = (match[2] or "b")[0] if match else "b"
        size = int(match[1]) * 1024 ** "bkmg".index(unit) if match else -1
        if not at_least <= size <= at_most:
            bounds = _bounds(at_least, at_most, size, _shown_size)
            raise ValueError(f"bytes, or a number with kb, mb or gb, {bounds}")
        return size

    return parse


def count(at_least: int, at_most: int = _BOUNDLESS) -> Callable[[str], int]:
    def parse(value: str) -> int:
        count = int(value) if re.fullmatch(r"\s*\d{1,18}\s*", value) else -1
        if not at_least <= count <= at_most:
            raise ValueError(f"a whole number {_bounds(at_least, at_most, count, str)}")
        return count

    return parse


def _bounds(low: int, high: int, given: int, shown: Callable[[int], str]) -> str:
    if high == _BOUNDLESS and given <= high:
        return f"at least {shown(low)}"
    return f"from {shown(low)} to {shown(high)}"


def _shown_size(size: int) -> str:
    for power, unit in ((5, "PiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power and size % 1024**power == 0:
            return f"{size // 1024**power} {unit}"
    return f"{size} bytes"


def initial_position(value: str) -> InitialPosition:
    text = value.strip()
    lowered = text.lower()
    if lowered == "latest":
        return Latest()
    if lowered in ("trim_horizon", "earliest"):
        return TRIM_HORIZON
    if lowered.startswith("at_timestamp"):
        stamp = text[len("at_timestamp") :].lstrip(" :=")
        return AtTimestamp(_timestamp_ms(stamp))
    raise ValueError("latest, trim_horizon, earliest, or at_timestamp <ISO 8601 or epoch seconds>")


def _timestamp_ms(stamp: str) -> int:
    """ISO 8601 with a zone (none means UTC), or seconds since the epoch, to milliseconds."""
    if re.fullmatch(r"\d{9,10}(\.\d+)?", stamp):
        return round(float(stamp) * 1000)
    try:
        parsed = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", stamp))
    except ValueError:
        raise ValueError(
            "at_timestamp and an ISO 8601 time (2026-11-20T12:00:00Z) or seconds since the epoch"
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=timezone.utc)
    ms = round(parsed.timestamp() * 1000)
    if ms < 0:
        raise ValueError("a time since 1970")
    return ms


def consumer_mode(value: str) -> str:
    if value.strip().lower() not in ("efo", "subscribetoshard"):
        raise ValueError("efo (polling is not in this version)")
    return "efo"


def transport(value: str) -> str:
    if value.strip().lower() not in ("auto", "http1"):
        raise ValueError("auto or http1 (http2 is not in this version)")
    return "http1"
