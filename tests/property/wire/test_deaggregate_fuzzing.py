"""Malformed aggregates end in an error, or in the rows that are in them.

They never end in another error, in a row that is not there, or in more memory than the bytes allow.
The expected rows come from the class that ``protoc`` made for the KPL, in ``aws_kinesis_agg``.
"""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise
from typing import Any

import aws_kinesis_agg.aggregator  # makes its generated modules importable
from aws_kinesis_agg import messages_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import TRIM_HORIZON, After, Position
from kinesis_ds.wire.deaggregate import MalformedAggregateError, parse_aggregate
from kinesis_ds.wire.decode import decode_event
from tests.support.aggregates import (
    MAGIC,
    User,
    bytes_field,
    message_of,
    number_field,
    sealed,
    tag_field,
    user_field,
    varint,
)
from tests.support.hostile import (
    FUZZ,
    SHORT,
    Row,
    assert_ours,
    damaged,
    object_of,
    parsed,
    records_text,
    rows_in,
    rows_of,
)

assert aws_kinesis_agg.MAGIC == MAGIC

USER = st.builds(
    User,
    st.text(max_size=5, alphabet=st.characters(codec="utf-8")),
    SHORT,
    st.none() | st.integers(0, 30).map(str) | st.just(str(MAX_HASH_KEY)),
)
GOOD = st.lists(USER, min_size=1, max_size=5).map(message_of)
NUMBERS = st.integers(0, 3) | st.sampled_from([2**31, 2**32, 2**63, 2**64 - 1, 2**70])
WRONG_FIELDS = st.one_of(
    st.builds(user_field, NUMBERS, SHORT, NUMBERS),
    st.builds(user_field, st.none() | NUMBERS, st.none() | SHORT, st.none() | NUMBERS),
    st.builds(number_field, st.integers(0, 20), NUMBERS),
    st.builds(bytes_field, st.integers(0, 20), SHORT),
    st.builds(
        bytes_field, st.sampled_from([1, 2]), st.sampled_from([b"\xff", b"9" * 40, b"x" * 300])
    ),
    st.builds(lambda tag, n: varint(tag) * n, st.integers(0, 255), st.integers(1, 300)),
    SHORT,
)
MESSAGES = st.one_of(
    GOOD,
    damaged(GOOD),
    st.lists(WRONG_FIELDS | GOOD, max_size=5).map(b"".join),
    damaged(st.lists(WRONG_FIELDS | GOOD, max_size=5).map(b"".join)),
    st.binary(max_size=60),
)
RANGES = st.sampled_from([None, (0, MAX_HASH_KEY), (0, 10), (2**127, MAX_HASH_KEY)])


def users_by_another_parser(message: bytes) -> list[User] | None:
    """Return the user records of a message as another parser finds them; None if malformed."""
    found = messages_pb2.AggregatedRecord()
    try:
        found.ParseFromString(message)
        keys = list(found.partition_key_table)
        hash_keys = list(found.explicit_hash_key_table)
        users = [
            User(
                keys[r.partition_key_index],
                r.data,
                hash_keys[r.explicit_hash_key_index]
                if r.HasField("explicit_hash_key_index")
                else None,
            )
            for r in found.records
        ]
    except (DecodeError, IndexError):
        return None
    # What is no UTF-8 it gives as bytes.
    sound = found.IsInitialized() and all(isinstance(k, str) and len(k) <= 256 for k in keys)
    for key in hash_keys:
        sound = sound and key.isascii() and key.isdigit() and len(key) < 40
        sound = sound and int(key) <= MAX_HASH_KEY
    return users if sound else None


@FUZZ
@given(MESSAGES, RANGES)
def test_a_message_of_any_bytes(message: bytes, hash_range: tuple[int, int] | None) -> None:
    """The user records are those that another parser finds, or the message is refused."""
    expected = users_by_another_parser(message)
    try:
        found = parse_aggregate(sealed(message), hash_range)
    except MalformedAggregateError as exc:
        if "stand for" not in str(exc):  # too much for its size, if sound otherwise
            assert expected is None
        return
    if not message:
        assert found is None
        return
    assert found is not None
    assert expected is not None
    low, high = hash_range or (0, MAX_HASH_KEY)
    kept = [i for i, user in enumerate(expected) if low <= user.hash <= high]
    assert found.sub_numbers == kept
    assert found.misplaced == len(expected) - len(kept)
    columns = (found.partition_keys, found.data, found.explicit_hash_keys)
    assert [User(*each) for each in zip(*columns, strict=True)] == [expected[i] for i in kept]


@FUZZ
@given(damaged(MESSAGES.map(sealed)))
def test_an_aggregate_that_had_an_accident(data: bytes) -> None:
    """The checksum is wrong then, so it is a plain record."""
    whole = data.startswith(MAGIC) and sealed(data[4:-16]) == data and len(data) > 20
    try:
        assert (parse_aggregate(data, None) is not None) == whole
    except MalformedAggregateError:
        assert whole


TAGS = st.one_of(
    st.builds(
        tag_field,
        st.sampled_from([b"kinesis_ds.id.1", b"r", b"x"]),
        st.sampled_from([b"q/1/2", b"7", b"x" * 100, b"\xff"]) | SHORT,
    ),
    st.builds(bytes_field, st.just(4), SHORT),
    damaged(st.just(tag_field(b"r", b"77"))),
    damaged(st.just(tag_field(b"kinesis_ds.id.1", b"q/1/2"))),
)
TAGGED = st.builds(
    lambda key, tags: bytes_field(1, b"key") + user_field(key, b"d", None, b"".join(tags)),
    st.just(0),
    st.lists(TAGS, max_size=5),
)


@FUZZ
@given(st.lists(TAGGED, min_size=1, max_size=4).map(b"".join), RANGES)
def test_no_tag_makes_a_difference_but_to_ids(
    message: bytes, hash_range: tuple[int, int] | None
) -> None:
    """With ids or without, an aggregate gives the same rows or the same error."""

    def outcome(ids: bool) -> tuple[object, ...]:
        try:
            found = parse_aggregate(sealed(message), hash_range, ids=ids)
        except MalformedAggregateError as exc:
            return (str(exc),)
        assert found is not None
        if ids:
            assert found.ids is not None
            assert len(found.ids) == len(found.data)
            for each in found.ids:
                assert each is None or re.fullmatch(r"(?s).{1,100}/[0-9]{1,19}", each)
        return (found.partition_keys, found.data, found.sub_numbers, found.misplaced)

    assert outcome(ids=True) == outcome(ids=False)


@given(st.lists(WRONG_FIELDS | GOOD | TAGGED, min_size=1, max_size=3), st.integers(1, 20_000))
def test_memory_is_bounded_by_the_bytes(fields: list[bytes], times: int) -> None:
    """A field that is repeated very often needs no more memory than its bytes allow."""
    data = sealed(b"".join(fields) * min(times, 100_000 // (len(b"".join(fields)) + 1) + 1))
    tracemalloc.start()
    try:
        parse_aggregate(data, (0, 10), ids=True)
    except MalformedAggregateError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 300 * len(data) + MIB


EVENTS = object_of(
    Records=records_text(data=MESSAGES.map(sealed) | damaged(GOOD.map(sealed)) | SHORT),
    ContinuationSequenceNumber=st.integers(0, 99).map(lambda n: b'"%d"' % n),
)
POSITIONS = st.just(TRIM_HORIZON) | st.integers(0, 70).map(lambda n: After(str(n)))


@FUZZ
@given(EVENTS, POSITIONS, RANGES)
def test_an_event_of_aggregates(
    payload: bytes, position: Position, hash_range: tuple[int, int] | None
) -> None:
    """Either each record of an event is decoded whole, or none is."""
    try:
        decoded = decode_event(payload, position, Decoding(hash_range, deaggregate=True))
    except ProtocolError as exc:
        assert_ours(exc)
        return
    items = [
        item
        for item in parsed(payload)["Records"]
        if not isinstance(position, After) or int(item["SequenceNumber"]) > position.number
    ]
    found = decoded.records
    assert (found is None) == (not items)
    if found is not None:
        assert rows_in(found.batch) == [row for item in items for row in apart(item, hash_range)]
        assert found.end.sequence_number == items[-1]["SequenceNumber"]
        numbers = [int(row[2]) for row in rows_in(found.batch)]
        assert all(a <= b for a, b in pairwise(numbers))


def apart(item: Any, hash_range: tuple[int, int] | None) -> list[Row]:
    """Return the rows of a record that may be an aggregate."""
    ((key, data, number, arrived),) = rows_of(item)
    message = data[4:-16]
    if len(data) <= 20 or data != sealed(message):
        return [(key, data, number, arrived)]
    users = users_by_another_parser(message)
    assert users is not None
    low, high = hash_range or (0, MAX_HASH_KEY)
    return [(u.key, u.data, number, arrived) for u in users if low <= u.hash <= high]
