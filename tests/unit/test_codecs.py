"""The standard library replaces orjson, pybase64 and zlib-ng, with the same results."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds import codecs
from kinesis_ds.codecs import JSONDecodeError, plain_b64decode, plain_dumps, plain_loads

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
LOADS = [codecs.loads, plain_loads]


def test_the_fast_ones_are_used_here() -> None:
    """Otherwise these tests would compare the standard library with itself."""
    assert codecs.loads is not plain_loads
    assert codecs.b64decode is not plain_b64decode
    assert codecs.crc32 is not zlib.crc32


@given(VALUES)
def test_either_reads_what_the_other_wrote(value: object) -> None:
    """Any value of JSON."""
    assert plain_loads(codecs.dumps(value)) == codecs.loads(plain_dumps(value)) == value


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(
    "text",
    [b"NaN", b"-Infinity", b'"\xff"', b"", b"[" * 100_000, b'{"a":1'],
    ids=["NaN", "infinite", "no UTF-8", "nothing", "deep", "half"],
)
def test_both_refuse_with_the_same_error(loads: Any, text: bytes) -> None:
    """Callers catch only one type of error."""
    with pytest.raises(JSONDecodeError):
        loads(text)


@pytest.mark.parametrize("loads", LOADS)
def test_both_take_views(loads: Any) -> None:
    """An event is a view into its message."""
    assert loads(memoryview(b'x{"a":[1]}')[1:]) == {"a": [1]}


@dataclass
class _Held:
    a: int
    b: tuple[str, ...]


def test_both_write_the_same_bytes() -> None:
    """Requests are signed over their bytes, and dataclasses travel to agent processes."""
    for value in ({"ü": [1, None, 1.5, "\n"]}, _Held(1, ("x",)), [_Held(2, ())]):
        assert codecs.dumps(value) == plain_dumps(value)


@given(st.binary(max_size=40))
def test_base64_there_and_back(data: bytes) -> None:
    """Either reads what the other wrote."""
    assert codecs.b64encode(data) == base64.b64encode(data)
    assert codecs.b64decode(codecs.b64encode(data).decode(), None, True) == data


@pytest.mark.parametrize("text", ["A", "AA=A", "A\nAA", "A A=", "ÄAAA", "AAAA=", "===="])
def test_both_refuse_what_is_no_base64(text: str) -> None:
    """No character of the data is skipped."""
    for decode in (codecs.b64decode, plain_b64decode):
        with pytest.raises(ValueError):
            decode(text, None, True)


@given(st.binary(max_size=300))
def test_both_sums_are_the_same(data: bytes) -> None:
    """Views and empty data give the same CRC, too."""
    assert codecs.crc32(memoryview(data)) == zlib.crc32(data)


def test_events_are_read_without_either() -> None:
    """No other module imports these packages."""
    program = """
import sys
sys.modules.update(orjson=None, pybase64=None, numpy=None, zlib_ng=None)
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.plan.position import TRIM_HORIZON
import kinesis_ds.agent.agent, kinesis_ds.reader.coordinator, kinesis_ds.writer.service
event = decode_event(sys.stdin.buffer.read(), TRIM_HORIZON)
print(event.records.batch.column(1).to_pylist())
"""
    event = (
        b'{"Records":[{"SequenceNumber":"1","Data":"YWI=","PartitionKey":"k",'
        b'"ApproximateArrivalTimestamp":1.5}],"ContinuationSequenceNumber":"1"}'
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=event, capture_output=True, check=False
    )
    assert done.stdout.decode().strip() == "[b'ab']", done.stderr.decode()
