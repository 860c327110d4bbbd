"""Decoding: JSON to Arrow, what is dropped, and what is refused."""

from __future__ import annotations

import datetime
import tracemalloc
from typing import Any

import orjson
import pyarrow as pa
import pytest

from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.decoding import PLAIN, Decoding
from kinesis_ds.plan.position import TRIM_HORIZON, After, At, AtTimestamp, Position
from kinesis_ds.wire.decode import (
    Records,
    decode_event,
    decode_records,
    label_protocol_errors,
    sequence_numbers,
)
from kinesis_ds.wire.schema import METADATA_SCHEMA, RECORD_SCHEMA
from tests.support.aggregates import (
    User,
    aggregate,
    bytes_field,
    sealed,
    tag_field,
    user_field,
)
from tests.support.builders import ARRIVED_S, event, number, record

ARRIVED_MS = int(ARRIVED_S * 1000)


def numbers_of(items: list[dict[str, Any]], position: Position) -> list[int]:
    decoded = decode_records(items, position)
    return sequence_numbers(decoded.batch) if decoded else []


def test_a_record_is_decoded_in_full() -> None:
    """Every column has the value the service sent; times are exact to the millisecond."""
    decoded = decode_records(
        [record(number(1), b"\x00\xffbytes", "schlüssel", 1_700_000_000.123)], TRIM_HORIZON
    )

    assert decoded is not None
    assert decoded.batch.schema == RECORD_SCHEMA
    assert decoded.batch.to_pylist() == [
        {
            "partitionKey": "schlüssel",
            "data": b"\x00\xffbytes",
            "sequenceNumber": number(1),
            "approximateArrivalTimestamp": datetime.datetime(
                2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.timezone.utc
            ),
        }
    ]
    assert (decoded.first, decoded.last) == (int(number(1)), int(number(1)))


def test_a_record_without_partition_key_has_null() -> None:
    """Streams that distribute records themselves have none."""
    decoded = decode_records([record(1, key=None)], TRIM_HORIZON)

    assert decoded is not None
    assert decoded.batch.column("partitionKey").to_pylist() == [None]


def test_padded_numbers_are_kept_as_they_came_and_compared_as_integers() -> None:
    """The text goes to the user; the order does not depend on its length."""
    decoded = decode_records([record("009"), record("0010"), record("11")], After("9"))

    assert decoded is not None
    assert decoded.batch.column("sequenceNumber").to_pylist() == ["0010", "11"]
    assert (decoded.first, decoded.last) == (10, 11)


def test_data_may_be_empty() -> None:
    """A record without data is a record."""
    decoded = decode_records([record(1, b"")], TRIM_HORIZON)

    assert decoded is not None
    assert decoded.batch.column("data").to_pylist() == [b""]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        pytest.param(TRIM_HORIZON, [3, 5, 8], id="the beginning drops nothing"),
        pytest.param(After("0"), [3, 5, 8], id="before all"),
        pytest.param(After("2"), [3, 5, 8], id="between, before all"),
        pytest.param(After("3"), [5, 8], id="the first was read"),
        pytest.param(After("4"), [5, 8], id="a number that no record has"),
        pytest.param(After("5"), [8], id="all but the last"),
        pytest.param(After("8"), [], id="all"),
        pytest.param(After("99"), [], id="behind all"),
    ],
)
def test_after_drops_what_was_read(position: Position, expected: list[int]) -> None:
    """Records that a server sends again are dropped by order, not by equality (F19)."""
    assert numbers_of([record(n) for n in (3, 5, 8)], position) == expected


@pytest.mark.parametrize(
    ("offset_ms", "expected"),
    [
        pytest.param(-1, [1, 2, 3], id="before all"),
        pytest.param(0, [1, 2, 3], id="exactly the first"),
        pytest.param(1, [2, 3], id="behind the first"),
        pytest.param(500, [2, 3], id="exactly the second"),
        pytest.param(501, [3], id="behind the second, whose time falls back later"),
        pytest.param(5000, [], id="behind all"),
    ],
)
def test_at_timestamp_drops_what_arrived_earlier(offset_ms: int, expected: list[int]) -> None:
    """Some servers round the time down to a second and send older records first."""
    items = [
        record(1, arrived_s=ARRIVED_S),
        record(2, arrived_s=ARRIVED_S + 0.5),
        record(3, arrived_s=ARRIVED_S + 1),
    ]

    assert numbers_of(items, AtTimestamp(ARRIVED_MS + offset_ms)) == expected


def test_at_timestamp_drops_from_the_front_only() -> None:
    """After the first record in time all are kept: arrival times may fall back a little."""
    items = [
        record(1, arrived_s=ARRIVED_S - 1),
        record(2, arrived_s=ARRIVED_S + 1),
        record(3, arrived_s=ARRIVED_S - 1),
    ]

    assert numbers_of(items, AtTimestamp(ARRIVED_MS)) == [2, 3]


def test_no_records_is_none() -> None:
    """An empty answer, or one without any new record, gives no batch."""
    assert decode_records([], TRIM_HORIZON) is None
    assert decode_records([record(1)], After("1")) is None


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ("SequenceNumber", None),
        ("SequenceNumber", 5),
        ("SequenceNumber", 5.0),
        ("SequenceNumber", True),
        ("SequenceNumber", ""),
        ("SequenceNumber", "x"),
        ("SequenceNumber", "-1"),
        ("SequenceNumber", "+1"),
        ("SequenceNumber", " 1"),
        ("SequenceNumber", "1_0"),
        ("SequenceNumber", "\u0663"),
        ("SequenceNumber", "\u00b2"),
        ("SequenceNumber", "9" * 5000),
        ("SequenceNumber", ["1"]),
        ("Data", None),
        ("Data", 1),
        ("Data", "!!!!"),
        ("Data", "abc"),
        ("Data", "ab=c"),
        ("Data", "YQ==\n"),
        ("Data", "ä"),
        ("Data", ["YQ=="]),
        ("ApproximateArrivalTimestamp", None),
        ("ApproximateArrivalTimestamp", "now"),
        ("ApproximateArrivalTimestamp", 1e300),
        ("ApproximateArrivalTimestamp", -1e300),
        ("ApproximateArrivalTimestamp", [1]),
        ("ApproximateArrivalTimestamp", True),
        ("PartitionKey", 1),
        ("PartitionKey", ["k"]),
        ("PartitionKey", {}),
    ],
)
@pytest.mark.parametrize("neighbour", [True, False], ids=["second of two", "alone"])
def test_a_malformed_member_is_a_protocol_error(
    changes: str, value: object, *, neighbour: bool
) -> None:
    """No value passes that a checkpoint could not store, and no other error is raised."""
    items = [record(1)] if neighbour else []
    items.append({**record(2), changes: value})

    with pytest.raises(ProtocolError, match="could not be decoded"):
        decode_records(items, TRIM_HORIZON)


@pytest.mark.parametrize("missing", ["SequenceNumber", "Data", "ApproximateArrivalTimestamp"])
def test_a_missing_member_is_a_protocol_error(missing: str) -> None:
    """A record that lacks a required member is refused."""
    item = record(1)
    del item[missing]

    with pytest.raises(ProtocolError, match=rf"KeyError: '{missing}'"):
        decode_records([item], TRIM_HORIZON)


@pytest.mark.parametrize("item", [None, 1, "x", [], [1]])
def test_a_record_that_is_no_object_is_a_protocol_error(item: Any) -> None:
    """A list of anything but records is refused."""
    with pytest.raises(ProtocolError):
        decode_records([item], TRIM_HORIZON)


def test_records_out_of_order_are_refused() -> None:
    """Order within a shard is a promise: wrong order is an error, and is not sorted silently."""
    with pytest.raises(ProtocolError, match="out of order"):
        decode_records([record(2), record(1)], TRIM_HORIZON)


def test_a_protocol_error_does_not_repeat_the_whole_record() -> None:
    """The text of the error stays short, however long the data is."""
    with pytest.raises(ProtocolError) as caught:
        decode_records([record("x" * 10_000)], TRIM_HORIZON)
    assert len(str(caught.value)) < 300


# --- events -------------------------------------------------------------------------------------


def test_an_event_is_decoded_in_full() -> None:
    """An event gives records, continuation, distance from the tip, and children."""
    decoded = decode_event(event([record(1), record(2)], 7, behind_ms=1500), After("1"))

    assert decoded.records is not None
    assert sequence_numbers(decoded.records.batch) == [2]
    assert (decoded.received, decoded.continuation) == (2, "7")
    assert (decoded.millis_behind, decoded.has_children) == (1500, False)


def test_the_last_event_of_a_shard() -> None:
    """It has no continuation and names the children."""
    decoded = decode_event(event([], None, children=["a", "b"]), TRIM_HORIZON)

    assert (decoded.records, decoded.received) == (None, 0)
    assert decoded.continuation is None
    assert decoded.has_children


@pytest.mark.parametrize("explicit", [{"ContinuationSequenceNumber": None}, {"ChildShards": None}])
def test_null_is_as_good_as_absent(explicit: dict[str, None]) -> None:
    """Some servers write null where others leave out the member."""
    payload = orjson.dumps({"Records": [], "MillisBehindLatest": None, **explicit})

    decoded = decode_event(payload, TRIM_HORIZON)
    assert (decoded.continuation, decoded.has_children, decoded.millis_behind) == (None, False, 0)


def test_a_memoryview_is_decoded_without_a_copy() -> None:
    """The payload is a slice of the frame."""
    assert decode_event(memoryview(event([record(1)], 1)), TRIM_HORIZON).received == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"Records":null}',
        b'{"Records":1}',
        b'{"Records":0}',
        b'{"Records":"abc"}',
        b'{"Records":""}',
        b'{"Records":{}}',
        b'{"Records":{"a":1}}',
        b'{"Records":[1]}',
        b'{"Records":[],"ContinuationSequenceNumber":5}',
        b'{"Records":[],"ContinuationSequenceNumber":""}',
        b'{"Records":[],"ContinuationSequenceNumber":"-5"}',
        b'{"Records":[],"ContinuationSequenceNumber":"1_0"}',
        '{"Records":[],"ContinuationSequenceNumber":"\u00b2"}'.encode(),
        '{"Records":[],"ContinuationSequenceNumber":"\u0663"}'.encode(),
        b'{"Records":[],"ContinuationSequenceNumber":"' + b"9" * 5000 + b'"}',
        b'{"Records":[],"ContinuationSequenceNumber":["5"]}',
        b'{"Records":[],"MillisBehindLatest":"soon"}',
        b'{"Records":[],"MillisBehindLatest":[1]}',
        b'{"Records":[],"MillisBehindLatest":1e999}',
        b'{"Records":[],"MillisBehindLatest":1e308}',
        b'{"Records":[],"MillisBehindLatest":"5"}',
        b'{"Records":[],"MillisBehindLatest":true}',
        b'{"Records":[],"MillisBehindLatest":{}}',
        b'{"Records":[],"ChildShards":1}',
        b'{"Records":[],"ChildShards":false}',
        b'{"Records":[],"ChildShards":"shardId-1"}',
        b'{"Records":[],"ChildShards":{"ShardId":"shardId-1"}}',
        b'{"Records":[],"ChildShards":[null]}',
        b'{"Records":[],"ChildShards":[{}]}',
        b'{"Records":[],"ChildShards":[{"ShardId":1}]}',
        b'{"Records":[],"ContinuationSequenceNumber":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"[" * 5000,
        b'{"Records":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_a_malformed_event_is_a_protocol_error(payload: bytes) -> None:
    """Nothing is skipped silently, and no other error can stop the decoding of a shard."""
    with pytest.raises(ProtocolError):
        decode_event(payload, TRIM_HORIZON)


def test_a_text_for_an_arrival_time_is_not_multiplied() -> None:
    """Python would repeat the text a thousand times in the comparison, and run out of memory."""
    item = {**record(1), "ApproximateArrivalTimestamp": "9" * 100_000}
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="arrival time"):
            decode_records([item], AtTimestamp(1))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_sequence_numbers_of_a_slice() -> None:
    """A slice of a batch gives only its own numbers."""
    decoded = decode_records([record(n) for n in (1, 2, 3)], TRIM_HORIZON)

    assert decoded is not None
    assert isinstance(decoded.batch, pa.RecordBatch)
    assert sequence_numbers(decoded.batch.slice(1, 1)) == [2]


def test_the_end_is_the_last_record_with_its_arrival() -> None:
    """The end has the number of the last record as it came, and its arrival time."""
    decoded = decode_records([record(1), record("0012", arrived_s=ARRIVED_S + 1.5)], TRIM_HORIZON)

    assert decoded is not None
    assert (decoded.end.sequence_number, decoded.end.seen_ms) == ("0012", ARRIVED_MS + 1500)


def test_an_error_is_told_with_its_shard() -> None:
    """The shard is put before the message, and the remedy is kept."""
    with pytest.raises(ProtocolError) as caught, label_protocol_errors("shard 7 of stream orders"):
        raise ProtocolError("What happened.", "What to do.")

    assert (
        str(caught.value)
        == "[KINESIS_PROTOCOL] shard 7 of stream orders: What happened. What to do."
    )


# --- aggregates ---------------------------------------------------------------------------------

APART = Decoding(deaggregate=True)
THREE = aggregate(User("a", b"1"), User("b", b"2", "77"), User("a", b"3"))
NOWHERE = Decoding((5, 5), deaggregate=True)  # no key of these tests belongs to this shard


def rows_of(decoded: Records | None) -> list[tuple[str | None, bytes, str]]:
    assert decoded is not None
    columns = [decoded.batch.column(i).to_pylist() for i in range(3)]
    return list(zip(*columns, strict=True))


def test_an_aggregate_becomes_its_user_records() -> None:
    """User records stay in order, between the aggregate's neighbours, with its number and time."""
    items = [record(1, b"before"), record(2, THREE, "x", ARRIVED_S + 1), record(3, b"behind")]
    decoded = decode_records(items, TRIM_HORIZON, APART)

    assert rows_of(decoded) == [
        ("key", b"before", "1"),
        ("a", b"1", "2"),
        ("b", b"2", "2"),
        ("a", b"3", "2"),
        ("key", b"behind", "3"),
    ]
    assert decoded is not None
    assert (decoded.first, decoded.last, decoded.end, decoded.misplaced) == (1, 3, After("3"), 0)
    assert decoded.batch.schema == RECORD_SCHEMA
    arrived = [time.timestamp() for time in decoded.batch.column(3).to_pylist()]
    assert arrived == [ARRIVED_S, *[ARRIVED_S + 1] * 3, ARRIVED_S]


@pytest.mark.parametrize("others", [0, 99, 500])
def test_an_aggregate_is_found_among_few_and_many(others: int) -> None:
    """Few records and many records are searched in different ways."""
    items = [record(n, b"plain") for n in range(1, others + 1)] + [record(others + 1, THREE)]

    assert [row[1] for row in rows_of(decode_records(items, TRIM_HORIZON, APART))] == [
        *[b"plain"] * others,
        b"1",
        b"2",
        b"3",
    ]


def test_unless_asked_for_aggregates_stay_as_they_were_put() -> None:
    """``deaggregate=false`` changes nothing in a record, not even in a malformed one."""
    broken = sealed(b"\xff")
    items = [record(1, THREE), record(2, broken)]

    assert [row[1] for row in rows_of(decode_records(items, TRIM_HORIZON, PLAIN))] == [
        THREE,
        broken,
    ]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (After("1"), [b"1", b"2", b"3", b"4"]),
        (After("2"), [b"4"]),
        (At("2"), [b"1", b"2", b"3", b"4"]),
        (At("3"), [b"4"]),
        (AtTimestamp(ARRIVED_MS + 1), [b"4"]),
        (AtTimestamp(ARRIVED_MS), [b"0", b"1", b"2", b"3", b"4"]),
    ],
)
def test_a_position_never_parts_an_aggregate(position: Position, expected: list[bytes]) -> None:
    """A position counts Kinesis records; all user records of an aggregate share its number."""
    items = [record(1, b"0"), record(2, THREE), record(3, b"4", arrived_s=ARRIVED_S + 1)]

    assert [row[1] for row in rows_of(decode_records(items, position, APART))] == expected


def test_an_aggregate_of_another_shard_leaves_no_row_but_moves_on() -> None:
    """All its user records were sent again elsewhere; the position still moves past it (F59)."""
    decoded = decode_records([record(7, THREE), record("08", THREE)], After("1"), NOWHERE)

    assert decoded is not None
    assert decoded.batch.num_rows == 0
    assert decoded.batch.schema == RECORD_SCHEMA
    assert (decoded.first, decoded.last, decoded.misplaced) == (7, 8, 6)
    assert (decoded.end.sequence_number, decoded.end.seen_ms) == ("08", ARRIVED_MS)


def test_first_and_last_count_records_without_rows() -> None:
    """First and last number include records of which no row is left."""
    decoded = decode_records([record(1, THREE), record(2), record(3, THREE)], After("0"), NOWHERE)

    assert decoded is not None
    assert sequence_numbers(decoded.batch) == [2]
    assert (decoded.first, decoded.last, decoded.end) == (1, 3, After("3"))


def test_a_plain_record_is_never_misplaced() -> None:
    """Kinesis itself has put it into this shard."""
    assert rows_of(decode_records([record(1, b"x")], TRIM_HORIZON, NOWHERE)) == [("key", b"x", "1")]


def test_a_malformed_aggregate_names_its_record_and_the_remedy() -> None:
    """The sequence number in the message lets the user find the record."""
    broken = sealed(bytes_field(1, b"k") + user_field(1, b"d"))

    with pytest.raises(ProtocolError) as caught:
        decode_records([record(1), record(2, broken)], TRIM_HORIZON, APART)
    assert "sequence number 2 is malformed" in str(caught.value)
    assert "deaggregate=false" in str(caught.value)


@pytest.mark.parametrize("key", [True, 1, ["k"]])
def test_an_aggregate_is_a_record_like_any_other(key: object) -> None:
    """Its own partition key is not used, but must be a valid one."""
    with pytest.raises(ProtocolError, match="could not be decoded"):
        decode_records([{**record(1, THREE), "PartitionKey": key}], TRIM_HORIZON, APART)


def test_what_was_read_already_cannot_fail_again() -> None:
    """Only records after the position are taken apart."""
    broken = sealed(b"\xff")

    assert rows_of(decode_records([record(1, broken), record(2)], After("1"), APART))


# --- metadata -----------------------------------------------------------------------------------

METADATA = Decoding((0, MAX_HASH_KEY), deaggregate=True, metadata=True)


def metadata_of(decoded: Records | None) -> list[tuple[int, str | None, str]]:
    assert decoded is not None
    assert decoded.batch.schema == METADATA_SCHEMA
    columns = [decoded.batch.column(i).to_pylist() for i in (4, 5, 6)]
    return list(zip(*columns, strict=True))


def test_metadata_of_plain_records() -> None:
    """Sub-sequence number 0, no explicit hash key, and the encryption that Kinesis names."""
    items = [
        record(1),
        {**record(2), "EncryptionType": "KMS"},
        {**record(3), "EncryptionType": "NONE"},
        {**record(4), "EncryptionType": None},
    ]

    expected = [(0, None, "NONE"), (0, None, "KMS"), (0, None, "NONE"), (0, None, "NONE")]
    assert metadata_of(decode_records(items, TRIM_HORIZON, METADATA)) == expected


def test_metadata_of_user_records() -> None:
    """User records are numbered, with their own hash keys and the encryption of the aggregate."""
    items = [record(1), {**record(2, THREE), "EncryptionType": "KMS"}, record(3)]

    assert metadata_of(decode_records(items, TRIM_HORIZON, METADATA)) == [
        (0, None, "NONE"),
        (0, None, "KMS"),
        (1, "77", "KMS"),
        (2, None, "KMS"),
        (0, None, "NONE"),
    ]


def test_a_user_record_keeps_its_number_where_others_are_left_out() -> None:
    """The two numbers of a user record are the same whichever shard it is read from."""
    decoding = Decoding((77, 77), deaggregate=True, metadata=True)

    assert metadata_of(decode_records([record(2, THREE)], TRIM_HORIZON, decoding)) == [
        (1, "77", "NONE")
    ]


def test_metadata_without_rows() -> None:
    """The schema is the same if all rows were left out."""
    decoding = Decoding((5, 5), deaggregate=True, metadata=True)

    assert metadata_of(decode_records([record(2, THREE)], TRIM_HORIZON, decoding)) == []


def test_metadata_of_an_aggregate_that_stays_whole() -> None:
    """It has the metadata of a plain record."""
    decoding = Decoding(metadata=True)

    assert metadata_of(decode_records([record(2, THREE)], TRIM_HORIZON, decoding)) == [
        (0, None, "NONE")
    ]


def test_record_ids_come_with_the_metadata() -> None:
    """The last column has the ids; it is null in plain records and in aggregates of others."""
    tagged = aggregate(
        User("a", b"1", None, tag_field(b"kinesis_ds.id.1", b"q/0/1") + tag_field(b"r", b"4")),
        User("b", b"2", None, tag_field(b"r", b"6")),
    )
    items = [record(1), record(2, tagged), record(3, THREE)]

    decoded = decode_records(items, TRIM_HORIZON, METADATA)
    assert decoded is not None
    assert decoded.batch.schema.names[-1] == "recordId"
    assert decoded.batch.column("recordId").to_pylist() == [
        None,
        "q/0/1/4",
        "q/0/1/6",
        None,
        None,
        None,
    ]
    for without in (Decoding(metadata=True), Decoding((5, 5), deaggregate=True, metadata=True)):
        decoded = decode_records(items, TRIM_HORIZON, without)
        assert decoded is not None
        assert decoded.batch.column("recordId").null_count == decoded.batch.num_rows


@pytest.mark.parametrize("kind", ["AES", "none", "", 0, False, 1, [], ["KMS"], {"a": 1}])
@pytest.mark.parametrize("decoding", [PLAIN, METADATA], ids=["plain", "metadata"])
def test_an_unknown_encryption_is_refused(kind: object, decoding: Decoding) -> None:
    """Otherwise data that Kinesis did not decrypt would be returned as if they were plain."""
    items = [record(1), {**record(2), "EncryptionType": kind}]

    with pytest.raises(ProtocolError, match="encryption type") as caught:
        decode_records(items, TRIM_HORIZON, decoding)
    assert repr(kind) in str(caught.value)
