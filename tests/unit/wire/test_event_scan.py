"""Which events are scanned; tests/property checks that the result is right."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from kinesis_ds.plan.position import TRIM_HORIZON, After
from kinesis_ds.testing.replay import Replay
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.wire.event_scan import MAX_RECORD_BYTES, MIN_RECORDS, scan_event

COMPACT, SPACED = (",", ":"), (", ", ": ")


def record(number: int, size: int = 20, **more: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": str(10**55 + number),
        "ApproximateArrivalTimestamp": 1_700_000_000.5 + number,
        "Data": base64.b64encode(bytes([number % 256]) * (size + number % 3)).decode(),
        "PartitionKey": f"key-{number}",
        **more,
    }


def event(
    records: list[dict[str, Any]], separators: tuple[str, str] = COMPACT, **around: Any
) -> bytes:
    last = records[-1]["SequenceNumber"] if records else "0"
    body = {"Records": records, "ContinuationSequenceNumber": last, "MillisBehindLatest": 0}
    return json.dumps({**body, **around}, separators=separators).encode()


MANY = [record(n) for n in range(MIN_RECORDS + 10)]


@pytest.mark.parametrize("separators", [COMPACT, SPACED])
@pytest.mark.parametrize("more", [{}, {"EncryptionType": "KMS"}, {"PartitionKey": None}])
def test_what_servers_send_is_cut(separators: tuple[str, str], more: dict[str, Any]) -> None:
    """AWS and the double write JSON without spaces, LocalStack with spaces."""
    records = [{**item, **more} for item in MANY]
    found = scan_event(event(records, separators))

    assert found is not None
    around, columns = found
    assert around["ContinuationSequenceNumber"] == MANY[-1]["SequenceNumber"]
    assert columns.numbers.to_pylist() == [item["SequenceNumber"] for item in records]
    assert columns.data.to_pylist() == [base64.b64decode(item["Data"]) for item in records]
    assert columns.keys.to_pylist() == [item["PartitionKey"] for item in records]
    assert columns.seconds.to_pylist() == [item["ApproximateArrivalTimestamp"] for item in records]
    assert list(columns.encryptions) == [more.get("EncryptionType")]


@pytest.mark.parametrize(
    "written",
    [
        "1700000000.123", "1700000000.1", "1700000000", "1.700000000123E9", "1.7E9", "1E9",
        "1700000000.1234567", "17.5E8", "170000000.5", "12345678901.5",
    ],
)  # fmt: skip
def test_times_of_any_form_are_what_a_parser_reads(written: str) -> None:
    """AWS writes an exponent, the double none, others more decimals.

    One record of another form is always among them.
    """
    for other in ("1700000000.5", "1.7000000005E9", "1700000001"):
        payload = event(MANY).replace(b"1700000000.5", other.encode(), 1)
        payload = payload.replace(b"1700000001.5", written.encode(), 1)
        found = scan_event(payload)
        assert found is not None
        wanted = [
            record["ApproximateArrivalTimestamp"] for record in json.loads(payload)["Records"]
        ]
        assert found[1].seconds.to_pylist() == wanted


def test_the_double_at_wire_speed_is_cut() -> None:
    """Otherwise the benchmarks would measure something else."""
    (frame,) = Replay.of(1, MIN_RECORDS, 100).frames
    start = frame.index(b'{"')
    assert scan_event(frame[start:-4]) is not None


@pytest.mark.parametrize(
    "payload",
    [
        event(MANY[: MIN_RECORDS // 2]),
        event([record(n, MAX_RECORD_BYTES) for n in range(MIN_RECORDS)]),
        event([*MANY, record(200, More="x")]),
        event([*MANY, record(200, PartitionKey='a"b')]),
        event([*MANY, record(200, PartitionKey="a\\b")]),
        event([*MANY, record(200, EncryptionType="NONE")]),
        event([*MANY[1:], MANY[0]]),
        event([*MANY, {**record(200), "SequenceNumber": "7"}]),
        event(MANY)[:-1] + b',"Records":5}',
        event([]),
        b"[]",
        b"",
    ],
    ids=[
        *("few", "long", "one more member", "a quote", "a backslash", "one encrypted otherwise"),
        *("out of order", "other length", "records twice", "none", "a list", "nothing"),
    ],
)
def test_what_is_not_worth_it_or_not_alike_is_left_to_the_parser(payload: bytes) -> None:
    """The scan never guesses."""
    assert scan_event(payload) is None


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        (b'"PartitionKey":"key-70"}]', b'"PartitionKey":"key-70" 5}]'),
        (b'"key-70"', b'"key\x01-70"'),
        (b'"key-70"', b'"key\xff-70"'),
        (b":1700000070.5,", b":01700000070.5,"),
        (b":1700000070.5,", b":1700000070.e5,"),
        (b":1700000070.5,", b":1700000070.,"),
        (b":1700000070.5,", b":-1700000070.5,"),
        (b":1700000070.5,", b":true,"),
        (b":1700000070.5,", b":,"),
        (b'"1' + b"0" * 53 + b'70"', b'"1' + b"0" * 53 + b'7x"'),
        (b'"Data":"RkZG', b'"Data":"RkZ'),
        (b'"Data":"RkZG', b'"Data":"Rk!G'),
        (b'"Data":"RkZG', b'"Data":"Rk=G'),
    ],
)
def test_what_is_no_json_or_no_record_is_left_to_the_parser(written: bytes, instead: bytes) -> None:
    """The parser then raises the right error."""
    many = [record(n) for n in [0] * MIN_RECORDS + list(range(71))]
    payload = event(many, ContinuationSequenceNumber="2" * 56)
    assert scan_event(payload) is not None
    at = payload.rindex(written)
    assert scan_event(payload[:at] + instead + payload[at + len(written) :]) is None


def test_data_of_odd_lengths_that_add_up() -> None:
    """The length of base64 is checked for each value, not only for all together."""
    payload = event([record(n, size=3) for n in range(0, 3 * MIN_RECORDS, 3)])
    assert scan_event(payload) is not None
    assert scan_event(payload.replace(b'"AAAA"', b'"AAA"').replace(b'"AwMD"', b'"AwMDA"')) is None


def test_what_was_had_before_is_dropped() -> None:
    """A scanned event drops old records just as a parsed event does."""
    decoded = decode_event(event(MANY), After(MANY[4]["SequenceNumber"]))

    assert decoded.received == len(MANY)
    assert decoded.records is not None
    assert decoded.records.batch.num_rows == len(MANY) - 5
    assert decoded.records.first == int(MANY[5]["SequenceNumber"])


def test_without_numpy_all_is_parsed() -> None:
    """A cluster without NumPy reads the same records, more slowly."""
    program = """
import sys
sys.modules["numpy"] = None
from kinesis_ds.wire.event_scan import scan_event
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.plan.position import TRIM_HORIZON
payload = sys.stdin.buffer.read()
print(scan_event(payload), decode_event(payload, TRIM_HORIZON).records.batch.num_rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=event(MANY), capture_output=True, check=False
    )
    assert done.stdout.decode().split() == ["None", str(len(MANY))], done.stderr.decode()
    assert decode_event(event(MANY), TRIM_HORIZON).received == len(MANY)
