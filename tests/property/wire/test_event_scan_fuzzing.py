"""A scan finds in an event what a JSON parser finds, whatever the event contains."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import ProtocolError
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.wire import decode, event_scan
from kinesis_ds.wire.decode import Event, decode_event
from kinesis_ds.wire.event_scan import scan_event
from tests.support.hostile import ANYTHING, FUZZ, SCALARS, assert_ours, damaged, dumped

POSITIONS = st.sampled_from(
    [TRIM_HORIZON, After("4"), After("105"), AtTimestamp(1_700_000_000_002)]
)
DECODINGS = st.sampled_from([Decoding(), Decoding(metadata=True, deaggregate=True)])
NUMBERS = ["1.700000000123E9", "1700000000.25", "1700000001", "1.7e9", "17e8", "1e9"]


@pytest.fixture(autouse=True, scope="module")
def few_are_enough() -> Iterator[None]:
    """Let the scan accept events of two records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_scan, "MIN_RECORDS", 2)
        patch.setattr(event_scan, "_MAX_QUOTES", 14)
        yield


@dataclass(frozen=True)
class Written:
    """The form in which a server writes its events: the same for all records."""

    names: tuple[str, ...]
    comma: bytes
    colon: bytes

    def object(self, values: dict[str, bytes]) -> bytes:
        members = (dumped(name) + self.colon + value for name, value in values.items())
        return b"{" + self.comma.join(members) + b"}"


NAMES = ("SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey")
ORDERS = st.sampled_from(
    [
        tuple(order)
        for extra in ((), ("EncryptionType",), ("EncryptionType", "New"))
        for order in itertools.permutations((*NAMES, *extra))
    ]
)
WAYS = st.builds(
    Written, ORDERS, st.sampled_from([b",", b", ", b" ,\n"]), st.sampled_from([b":", b": "])
)


@st.composite
def written_alike(draw: st.DrawFn, *, spoilt: bool) -> bytes:
    """Draw an event whose records all have the same form; ``spoilt`` damages one place."""
    way = draw(WAYS)
    numbers = sorted(draw(st.lists(st.integers(100, 110), min_size=3, max_size=7)))
    constant = {
        "EncryptionType": draw(st.sampled_from([b'"NONE"', b'"KMS"', b"null"])),
        "New": draw(st.sampled_from([b"1.5", b'"x"', b"false", b'"{"', b'"}]"'])),
    }
    keyless = draw(st.integers(0, 9)) == 0
    records = []
    for number in numbers:
        values = {
            **constant,
            "SequenceNumber": b'"%d"' % number,
            "ApproximateArrivalTimestamp": draw(
                st.integers(1_700_000_000_000, 1_700_000_000_004).map(lambda ms: dumped(ms / 1000))
                | st.sampled_from(NUMBERS).map(str.encode)
            ),
            "Data": b'"' + base64.b64encode(draw(st.binary(max_size=7))) + b'"',
            "PartitionKey": b"null" if keyless else dumped(draw(st.text("aé}]{, 😀", max_size=6))),
        }
        records.append({name: values[name] for name in way.names})
    if spoilt:
        one = draw(st.sampled_from(records))
        name = draw(st.sampled_from([*way.names, "Another"]))
        if draw(st.booleans()):
            one[name] = draw(ANYTHING | SCALARS)
        else:
            one.pop(name, None)
    around = {
        "ContinuationSequenceNumber": b'"120"',
        "MillisBehindLatest": b"7",
        "Records": b"[" + way.comma.join(map(way.object, records)) + b"]",
    }
    if draw(st.integers(0, 5)) == 0:
        around["ChildShards"] = b'[{"ShardId":"a","ParentShards":[]}]'
    return way.object({name: around[name] for name in draw(st.permutations(sorted(around)))})


def outcome(payload: bytes, position: Position, decoding: Decoding) -> object:
    """Return the result of decoding an event in a form that can be compared."""
    try:
        event = decode_event(payload, position, decoding)
    except ProtocolError as exc:
        assert_ours(exc)
        return "refused"
    return told(event)


def told(event: Event) -> tuple[object, ...]:
    found = event.records
    records = found and (found.batch, found.first, found.last, found.end)
    return records, event.received, event.continuation, event.millis_behind, event.has_children


def assert_alike(payload: bytes, position: Position, decoding: Decoding) -> None:
    cut = outcome(payload, position, decoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "scan_event", lambda _: None)
        assert cut == outcome(payload, position, decoding)


@FUZZ
@given(written_alike(spoilt=False), POSITIONS, DECODINGS)
def test_what_is_cut_is_what_is_parsed(payload: bytes, at: Position, decoding: Decoding) -> None:
    """Members in any order, any spacing, null keys, unusual characters in keys."""
    assert_alike(payload, at, decoding)


@FUZZ
@given(written_alike(spoilt=True), POSITIONS, DECODINGS)
def test_one_record_with_anything_in_it(payload: bytes, at: Position, decoding: Decoding) -> None:
    """A record of another form is never taken for one of the same form."""
    assert_alike(payload, at, decoding)


@FUZZ
@given(damaged(written_alike(spoilt=False)), POSITIONS, DECODINGS)
def test_damaged_bytes(payload: bytes, at: Position, decoding: Decoding) -> None:
    """Changed, lost and repeated bytes: both ways give the same result or the same refusal."""
    assert_alike(payload, at, decoding)


@given(written_alike(spoilt=False), st.binary(max_size=30))
def test_a_view_into_a_larger_buffer(payload: bytes, before: bytes) -> None:
    """The payload of an event is a view into its message."""
    view = memoryview(before + payload + b'"}]')[len(before) : len(before) + len(payload)]
    whole, part = scan_event(payload), scan_event(view)
    assert (whole is None) == (part is None)
    if whole is not None and part is not None:
        assert whole[0] == part[0]
        assert whole[1].data.equals(part[1].data)
        assert whole[1].keys.equals(part[1].keys)
