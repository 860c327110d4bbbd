"""Any options are either accepted or refused with an ``OptionError``."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kinesis_ds.errors import OptionError
from kinesis_ds.options.foreign import IGNORED, REFUSED
from kinesis_ds.options.parse import parse_read_options, parse_write_options
from kinesis_ds.options.table import OPTIONS
from kinesis_ds.options.times import java_time_ms, time_ms
from tests.support.examples import times

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SECRET_NAMES = [name for option in OPTIONS if option.secret for name in option.parsers]
SHARD = "shardId-000000000000"
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"

NAMES = st.sampled_from(
    [
        *(name for option in OPTIONS for name in option.parsers),
        *(name for names in (*IGNORED, *REFUSED) for name in names),
        "path",
        "checkpointLocation",
    ]
)
# What somebody could have meant.
LIKELY = st.sampled_from(
    [
        "orders",
        "orders,clicks",
        ARN,
        f"{ARN}/consumer/app:1",
        "arn:aws:iam::123456789012:role/reader",
        "eu-central-1",
        "http://localhost:4566",
        "https://kinesis.eu-central-1.amazonaws.com",
        "latest",
        "earliest",
        "efo",
        "polling",
        "true",
        "false",
        "10s",
        "500",
        "1.5",
        "2gb",
        "at_timestamp 2026-11-20T12:00:00Z",
        "at_timestamp 1795176000",
        json.dumps({SHARD: "AFTER:5"}),
        json.dumps({"orders": {SHARD: "LATEST"}}),
        json.dumps({SHARD: {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1795176000000"}}),
    ]
)
KEYS = [
    *(SHARD, ARN, "orders", "v", "streams", "initial", "name", "created", "shards"),
    *("at_timestamp", "format", "metadata", "streamName", "iteratorType", "iteratorPosition"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([SHARD, "LATEST", "AFTER:5", "v", "streams", ARN, "orders", "metadata"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
VALUES = LIKELY | JSON.map(json.dumps) | st.text(max_size=30)
OPTIONS_TYPED = st.dictionaries(NAMES | st.text(max_size=20), VALUES, max_size=6)
KINDS = st.sampled_from(["stream", "batch", None])


def check(raw: dict[str, str], kind: Any) -> None:
    for parse in (lambda: parse_read_options(raw, kind), lambda: parse_write_options(raw)):
        try:
            found = parse()
        except OptionError as exc:
            said = str(exc)
        else:
            said = repr(found)
            assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes
            hash(found)
        assert said
        assert SECRET not in said


@times(4)
@given(raw=OPTIONS_TYPED, kind=KINDS, is_named=st.booleans())
@example(raw={"initialPosition": '{"a":' * 50_000}, kind=None, is_named=True)
@example(raw={"initialPosition": "[" * 50_000}, kind=None, is_named=True)
@example(raw={"initialPosition": "{" + '"' * 50_001}, kind=None, is_named=True)
@example(raw={"streamName": "a" * 100_000}, kind=None, is_named=False)
@example(raw={"endpoint": "https://" + "a." * 50_000}, kind=None, is_named=True)
@example(raw={"endpoint": "https://" + "kinesis." * 10_000}, kind=None, is_named=True)
@example(raw={"minFetchPeriod": " " * 50_000 + "x"}, kind=None, is_named=True)
@example(raw={"x" * 100_000: "x"}, kind=None, is_named=True)
@example(raw={f"unknown{i}": "x" for i in range(2_000)}, kind=None, is_named=True)
@example(raw={"roleArn": "arn:aws:iam::123456789012:role/" + "a" * 512}, kind=None, is_named=True)
def test_whatever_is_typed_is_taken_or_refused(
    raw: dict[str, str], kind: Any, *, is_named: bool
) -> None:
    """Accepted options can be pickled, and reach the tasks unchanged."""
    check({"streamName": "orders", **raw} if is_named else raw, kind)


@given(
    secrets=st.dictionaries(st.sampled_from(SECRET_NAMES), st.just(SECRET), min_size=1),
    others=OPTIONS_TYPED,
    kind=KINDS,
)
def test_a_secret_is_in_no_error_and_no_repr(
    secrets: dict[str, str], others: dict[str, str], kind: Any
) -> None:
    """It is not shown, whatever else is wrong."""
    check({"streamName": "orders", **others, **secrets}, kind)


@given(st.integers(100_000_000, 99_999_999_999), st.integers(0, 999))
def test_a_number_of_seconds_and_of_milliseconds_are_the_same_moment(seconds: int, ms: int) -> None:
    """The number of digits decides which of the two it is."""
    assert time_ms(f"{seconds}.{ms:03}") == time_ms(f"{seconds}{ms:03}") == seconds * 1000 + ms


@given(st.datetimes(), st.timezones())
def test_a_time_is_the_same_in_iso_and_in_a_java_format(moment: Any, zone: Any) -> None:
    """For any time since 1970 in any zone."""
    moment = moment.replace(year=max(moment.year, 1971), day=min(moment.day, 28))
    at = moment.replace(tzinfo=zone)
    expected = at.replace(microsecond=at.microsecond // 1000 * 1000)
    offset = expected.strftime("%z")
    if len(offset) > 5:  # local mean time of long ago, in seconds
        return
    stamp = expected.strftime("%m/%d/%Y %H:%M:%S") + f".{at.microsecond // 1000:03} {offset}"

    assert time_ms(expected.isoformat()) == java_time_ms(stamp, "MM/dd/yyyy HH:mm:ss.SSS Z")
    assert time_ms(expected.isoformat()) == round(expected.timestamp() * 1000)


@given(st.text(max_size=40), st.text(max_size=20) | st.from_regex(r"[yMdHhmsSazZXE':./ -]{1,30}"))
def test_any_format_reads_a_time_or_says_why_not(text: str, pattern: str) -> None:
    """No other error than ``ValueError`` is raised."""
    with contextlib.suppress(ValueError):
        assert java_time_ms(text, pattern) >= 0
