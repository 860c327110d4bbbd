"""Parse times as users write them into milliseconds since the epoch. Pure.

Kinesis has no finer unit than a millisecond, so smaller fractions are cut off. A time without a
zone is in UTC: a query must not start at another time because it was moved to another machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from kinesis_ds.errors import shown

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_CHARS = 100

_FORMS = (
    "an ISO 8601 time (2026-11-20T12:00:00Z), or seconds (9 to 11 digits) or milliseconds (12 to "
    "14 digits) since the epoch"
)
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r" ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def time_ms(text: str) -> int:
    """Parse a time in ISO 8601, or a number since the epoch.

    The number of digits decides whether such a number is in seconds or in milliseconds.

    Raises:
        ValueError: The text is no such time. The message lists the forms.
    """
    text = text.strip()
    if number := re.fullmatch(r"([0-9]{9,11})(?:\.([0-9]{1,9}))?", text):
        return int(number[1]) * 1000 + _fraction_ms(number[2])
    if re.fullmatch(r"[0-9]{12,14}", text):
        return int(text)
    found = _ISO.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if found is None:
        raise ValueError(_FORMS)
    year, month, day, hour, minute, second = (int(found[i] or 0) for i in range(1, 7))
    local = _local(text, year, month, day, hour, minute, second)
    return _utc_ms(local, _offset(found[8] or "Z"), _fraction_ms(found[7]))


def java_time_ms(text: str, pattern: str) -> int:
    """Parse a time by a Java date pattern.

    Only patterns are supported that Java's two parsers of dates understand in the same way.

    Raises:
        ValueError: The pattern has a letter that is not supported, or the text does not match it.
            The message says which.
    """
    if max(len(text), len(pattern)) > _MAX_CHARS:
        raise ValueError(f"a time and a format of at most {_MAX_CHARS} characters each")
    found = re.fullmatch(_regex(pattern), text.strip(), re.IGNORECASE | re.ASCII)
    if found is None:
        raise ValueError(f"a time in the format {shown(pattern)}, not {shown(text)}")
    part = found.groupdict()
    hour = int(part.get("hour") or 0)
    if "half" in part:
        if not 1 <= int(part["hour12"]) <= 12:
            raise ValueError(f"an hour from 1 to 12 in {shown(text)}")
        hour = int(part["hour12"]) % 12 + (12 if part["half"].upper() == "PM" else 0)
    month = part["month"]
    number = int(month) if month.isdigit() else 1 + _MONTHS.index(month[:3].lower())
    minute, second = int(part.get("minute") or 0), int(part.get("second") or 0)
    local = _local(text, int(part["year"]), number, int(part["day"]), hour, minute, second)
    weekday = part.get("weekday")
    if weekday and _WEEKDAYS[local.weekday()] != weekday[:3].lower():
        raise ValueError(f"the weekday of the date in {shown(text)}")
    return _utc_ms(local, _zone(part.get("zone") or "UTC", local), int(part.get("ms") or 0))


# --- the letters of a Java pattern --------------------------------------------------------------

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_LONG_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
_LONG_WEEKDAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_ZONE = r"[A-Za-z][A-Za-z0-9_/]*(?:[+-][0-9]{1,2}(?::?[0-9]{2})?)?|[+-][0-9]{2}:?[0-9]{2}"

# The part of a time that a run of one letter stands for, and how many digits it has at most, or the
# regular expression for it.
_NUMBERS: Mapping[str, tuple[str, int]] = {
    **dict.fromkeys(("d", "dd"), ("day", 2)),
    **dict.fromkeys(("M", "MM"), ("month", 2)),
    **dict.fromkeys(("H", "HH"), ("hour", 2)),
    **dict.fromkeys(("h", "hh"), ("hour12", 2)),
    **dict.fromkeys(("m", "mm"), ("minute", 2)),
    **dict.fromkeys(("s", "ss"), ("second", 2)),
    "yyyy": ("year", 4),
    "SSS": ("ms", 3),
}
_TEXTS: Mapping[str, tuple[str, str]] = {
    "MMM": ("month", "|".join(_MONTHS)),
    "MMMM": ("month", _LONG_MONTHS),
    **dict.fromkeys(("E", "EE", "EEE"), ("weekday", "|".join(_WEEKDAYS))),
    "EEEE": ("weekday", _LONG_WEEKDAYS),
    "a": ("half", "AM|PM"),
    **dict.fromkeys(("z", "zz", "zzz", "Z", "ZZ", "ZZZ"), ("zone", _ZONE)),
    "X": ("zone", "Z|[+-][0-9]{2}(?:[0-9]{2})?"),
    "XX": ("zone", "Z|[+-][0-9]{4}"),
    "XXX": ("zone", "Z|[+-][0-9]{2}:[0-9]{2}"),
}
_SUPPORTED = "yyyy, M to MMMM, d, H, h with a, m, s, SSS, E, z, Z and X"


# A quoted text, a letter repeated, or any other character.
_RUNS = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z]")


def _regex(pattern: str) -> str:
    """Translate a Java date pattern into a regular expression with a group for each part."""
    runs = [m[0] for m in _RUNS.finditer(pattern)]
    parts: dict[str, str] = {}
    regex = ""
    for i, run in enumerate(runs):
        if run == "'":
            raise ValueError(f"a format whose quotes are closed, not {shown(pattern)}")
        if not (run[0].isascii() and run[0].isalpha()):
            text = run if run[0] != "'" else run[1:-1].replace("''", "'") or "'"
            regex += re.escape(text)
            continue
        name, form = _part(run, pattern, _touches_number(runs, i))
        if name in parts:
            raise ValueError(f"a format that gives the {name} once, not {shown(pattern)}")
        parts[name] = run
        regex += f"(?P<{name}>{form})"
    for name in ("year", "month", "day"):
        if name not in parts:
            raise ValueError(f"a format with year, month and day, not {shown(pattern)}")
    if ("hour12" in parts) != ("half" in parts) or {"hour", "hour12"} <= parts.keys():
        raise ValueError(f"a format with H, or with h and a, not {shown(pattern)}")
    return regex


def _part(run: str, pattern: str, touches_number: bool) -> tuple[str, str]:
    if run in _TEXTS:
        return _TEXTS[run]
    if run not in _NUMBERS:
        raise ValueError(f"a format of {_SUPPORTED}; {run!r} in {shown(pattern)} is not supported")
    name, digits = _NUMBERS[run]
    # Java takes `dd` as "one or two digits", unless another number follows at once.
    return name, f"[0-9]{{{len(run) if touches_number or digits > 2 else '1,2'}}}"


def _touches_number(runs: list[str], i: int) -> bool:
    beside = runs[max(0, i - 1) : i] + runs[i + 1 : i + 2]
    return any(run in _NUMBERS for run in beside)


# --- zones --------------------------------------------------------------------------------------

# Abbreviations that can only mean one zone here, with the hours that the zone is ahead of UTC.
_ABBREVIATIONS = {
    **dict.fromkeys(("Z", "UTC", "UT", "GMT", "WET"), 0),
    **dict.fromkeys(("CET", "WEST"), 1),
    **dict.fromkeys(("CEST", "EET"), 2),
    **dict.fromkeys(("EST", "CDT"), -5),
    **dict.fromkeys(("CST", "MDT"), -6),
    **dict.fromkeys(("MST", "PDT"), -7),
    **dict.fromkeys(("PST", "AKDT"), -8),
    "AKST": -9,
    "EDT": -4,
    "EEST": 3,
    "HST": -10,
    "JST": 9,
}


def _zone(name: str, local: datetime) -> timedelta:
    """Return how far a zone is ahead of UTC at a local time.

    If the clocks are set back and the local time comes twice, it is the first of the two.
    """
    if name.upper() in _ABBREVIATIONS:
        return timedelta(hours=_ABBREVIATIONS[name.upper()])
    number = re.fullmatch(r"(?:GMT|UTC)?([+-][0-9]{1,2}(?::?[0-9]{2})?)", name, re.IGNORECASE)
    if number:
        return _offset(number[1])
    try:
        offset = local.replace(tzinfo=ZoneInfo(name)).utcoffset()
    # KeyError: there is no such zone. The others: the text cannot be the name of a zone.
    except (KeyError, OSError, ValueError, OverflowError):
        offset = None
    if offset is None:
        raise ValueError(
            f"a zone known here, not {shown(name)}: write its offset from UTC (+0200), a name like "
            f"Europe/Berlin, or one of {', '.join(sorted(_ABBREVIATIONS))}"
        )
    return offset


def _offset(text: str) -> timedelta:
    if text in "Zz":
        return timedelta(0)
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    if int(hours) > 18 or int(minutes) > 59:
        raise ValueError(f"an offset from UTC of at most 18 hours, not {text}")
    size = timedelta(hours=int(hours), minutes=int(minutes))
    return -size if text[0] == "-" else size


def _local(text: str, *fields: int) -> datetime:
    try:
        return datetime(*fields, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]
    except ValueError:
        raise ValueError(f"a date and time that exist, not {shown(text)}") from None


def _utc_ms(local: datetime, ahead: timedelta, ms: int) -> int:
    since = (local - _EPOCH) - ahead
    found = (since.days * 86_400 + since.seconds) * 1000 + ms
    if found < 0:
        raise ValueError("a time since 1970")
    return found


def _fraction_ms(digits: str | None) -> int:
    return int(f"{digits or ''}000"[:3])
