"""Times: every documented form is exact to the millisecond, and no other form is accepted."""

from __future__ import annotations

import pytest

from kinesis_ds.options.times import java_time_ms, time_ms

NOON = 1_795_176_000_000  # 2026-11-20T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T12:00:00Z", NOON),
        ("2026-11-20t12:00:00z", NOON),
        ("2026-11-20 12:00:00", NOON),
        ("2026-11-20T12:00", NOON),
        ("2026-11-20", NOON - 12 * 3_600_000),
        ("2026-11-20T14:00:00+02:00", NOON),
        ("2026-11-20T14:00:00+0200", NOON),
        ("2026-11-20T14:00:00 +02", NOON),
        ("2026-11-20T04:30:00-07:30", NOON),
        ("2026-11-20T12:00:00.1Z", NOON + 100),
        ("2026-11-20T12:00:00,123456789Z", NOON + 123),
        ("2026-11-20T12:00:00.9999", NOON + 999),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2024-02-29", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999-18:00", 253_402_365_599_999),
        # Seconds and milliseconds since the epoch are told apart by their digits.
        ("100000000", 100_000_000_000),
        ("1795176000", NOON),
        ("1795176000.5", NOON + 500),
        ("1795176000.0009", NOON),
        ("99999999999", 99_999_999_999_000),
        ("100000000000", 100_000_000_000),
        ("1795176000123", NOON + 123),
        (" 1795176000123 ", NOON + 123),
    ],
)
def test_a_time(text: str, expected: int) -> None:
    """ISO 8601 in its usual forms, or a number."""
    assert time_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "tomorrow",
        "2026",
        "2026-11",
        "20261120T120000Z",
        "2026-11-20Z",
        "2026-11-20T12",
        "2026-11-20T12:00:00.",
        "2026-11-20T12:00:00.1234567890",
        "2026-11-20T12:00:00+2",
        "2026-13-01",
        "2026-02-29",
        "2026-11-20T24:00:00Z",
        "2026-11-20T12:60:00Z",
        "2026-11-20T12:00:00+18:61",
        "2026-11-20T12:00:00+19:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "12345678",
        "123456789012345",
        "-1795176000",
        "1e10",
        "1795176000123.5",
        "١٧٩٥١٧٦٠٠٠",
        "2" * 100_000,
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """Numbers whose unit is not clear, and times that no record can have, are refused too."""
    with pytest.raises(ValueError, match=r"time|offset from UTC"):
        time_ms(text)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("06/25/2020 10:23:45 PDT", "MM/dd/yyyy HH:mm:ss ZZZ", 1_593_105_825_000),
        ("06/25/2020 10:23:45 PST", "MM/dd/yyyy HH:mm:ss zzz", 1_593_109_425_000),
        ("06/25/2020 10:23:45 -0700", "MM/dd/yyyy HH:mm:ss Z", 1_593_105_825_000),
        ("06/25/2020 10:23:45 GMT-7", "MM/dd/yyyy HH:mm:ss z", 1_593_105_825_000),
        (
            "06/25/2020 10:23:45 America/Los_Angeles",
            "MM/dd/yyyy HH:mm:ss z",
            1_593_105_825_000,
        ),
        ("2026-11-20T12:00:00Z", "yyyy-MM-dd'T'HH:mm:ssXXX", NOON),
        ("2026-11-20T14:00:00+02:00", "yyyy-MM-dd'T'HH:mm:ssXXX", NOON),
        ("2026-11-20T14:00:00.123+0200", "yyyy-MM-dd'T'HH:mm:ss.SSSXX", NOON + 123),
        ("2026-11-20T14+02", "yyyy-MM-dd'T'HHX", NOON),
        ("2026-11-20 12:00", "yyyy-MM-dd HH:mm", NOON),
        ("20261120120000123", "yyyyMMddHHmmssSSS", NOON + 123),
        ("Fri, 20 Nov 2026 12:00:00 UTC", "EEE, d MMM yyyy HH:mm:ss z", NOON),
        ("friday 20 NOVEMBER 2026 12:00 pm", "EEEE d MMMM yyyy h:mm a", NOON),
        ("20.11.2026 12:30 AM", "d.M.yyyy hh:mm a", NOON - 11 * 3_600_000 - 1_800_000),
        ("1.2.2026", "dd.MM.yyyy", 1_769_904_000_000),
        ("2026 o'clock 11 20", "yyyy 'o''clock' MM dd", NOON - 12 * 3_600_000),
        ("2026'11'20", "yyyy''MM''dd", NOON - 12 * 3_600_000),
        # An hour that the clocks show twice is the first of the two.
        ("2026-10-25 02:30 Europe/Berlin", "yyyy-MM-dd HH:mm z", 1_792_888_200_000),
    ],
)
def test_a_time_in_a_java_format(text: str, pattern: str, expected: int) -> None:
    """The result is that of both of Java's parsers."""
    assert java_time_ms(text, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        ("YYYY-MM-dd", "YYYY"),
        ("uuuu-MM-dd", "uuuu"),
        ("yy-MM-dd", "yy"),
        ("yyyy-DDD", "DDD"),
        ("yyyy-MM-dd KK", "KK"),
        ("yyyy-MM-dd kk", "kk"),
        ("yyyy-MM-dd HH:mm:ss.S", "S"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "SSSSSS"),
        ("yyyy-MM-dd zzzz", "zzzz"),
        ("yyyy-MM-dd XXXX", "XXXX"),
        ("yyyy-LL-dd", "LL"),
        ("G yyyy-MM-dd", "G"),
        ("yyyy-MM-ddTHH", "T"),
    ],
)
def test_a_letter_that_is_not_supported_is_named(pattern: str, letters: str) -> None:
    """Java's two parsers disagree about it, or it cannot be parsed."""
    with pytest.raises(ValueError, match=f"'{letters}' in .* is not supported"):
        java_time_ms("2026-11-20", pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "said"),
    [
        ("2026", "yyyy", "year, month and day"),
        ("20 20 11 2026", "dd dd MM yyyy", "the day once"),
        ("20.11.2026 5", "dd.MM.yyyy h", "h and a"),
        ("20.11.2026 PM", "dd.MM.yyyy a", "h and a"),
        ("20.11.2026 5 5 PM", "dd.MM.yyyy H h a", "h and a"),
        ("20.11.2026", "dd.MM.yyyy'", "quotes are closed"),
        ("2026-11-20", "dd.MM.yyyy", "in the format 'dd.MM.yyyy'"),
        ("20.11.2026 13 PM", "dd.MM.yyyy h a", "from 1 to 12"),
        ("20.11.2026 0 PM", "dd.MM.yyyy h a", "from 1 to 12"),
        ("Mon 20.11.2026", "E dd.MM.yyyy", "the weekday"),
        ("31.11.2026", "dd.MM.yyyy", "that exist"),
        ("20.11.1969", "dd.MM.yyyy", "since 1970"),
        ("20.11.2026 IST", "dd.MM.yyyy z", "a zone known here, not 'IST'"),
        ("20.11.2026 America", "dd.MM.yyyy z", "a zone known here"),
        ("20.11.2026 leapseconds", "dd.MM.yyyy z", "a zone known here"),
        ("20.11.2026 Europe/", "dd.MM.yyyy z", "a zone known here"),
        ("2026111", "yyyyMMdd", "in the format 'yyyyMMdd'"),
        ("20 \u017fep 2026", "d MMM yyyy", "in the format"),
        ("20.11.2026 +1930", "dd.MM.yyyy Z", "at most 18 hours"),
        ("x" * 101, "dd.MM.yyyy", "100 characters"),
        ("20.11.2026", "d" * 101, "100 characters"),
    ],
)
def test_a_time_that_its_format_does_not_read_is_refused(
    text: str, pattern: str, said: str
) -> None:
    """The message says what is wrong with the time or with the format."""
    with pytest.raises(ValueError, match=said):
        java_time_ms(text, pattern)
