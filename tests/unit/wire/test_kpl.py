"""The aggregate format: what is an aggregate, what is none, and what is neither."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest

from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.testing.hashing import hash_of
from kinesis_ds.wire.deaggregate import Aggregate, MalformedAggregateError, parse_aggregate
from kinesis_ds.wire.kpl import MAGIC
from tests.support.aggregates import (
    User,
    aggregate,
    bytes_field,
    number_field,
    sealed,
    tag_field,
    user_field,
    varint,
)

KEY = bytes_field(1, b"key")
HALF = (MAX_HASH_KEY + 1) // 2
LOWER, UPPER = (0, HALF - 1), (HALF, MAX_HASH_KEY)
# Keys by the half of the hash range that they belong to.
LOW = next(k for k in map(str, range(100)) if hash_of(k) < HALF)
HIGH = next(k for k in map(str, range(100)) if hash_of(k) >= HALF)


def rows(found: Aggregate | None) -> list[tuple[str, str | None, bytes, int]]:
    assert found is not None
    return list(
        zip(
            found.partition_keys,
            found.explicit_hash_keys,
            found.data,
            found.sub_numbers,
            strict=True,
        )
    )


def test_the_bytes_of_the_documented_format() -> None:
    """Spelled out, so that encoder and decoder cannot be wrong together."""
    message = bytes.fromhex(
        "0a0161"  # partition_key_table: "a"
        "0a036b6579"  # partition_key_table: "key"
        "12023432"  # explicit_hash_key_table: "42"
        "1a07 0801 1a03 646f67"  # records: key 1, data "dog"
        "1a06 0800 1000 1a00"  # records: key 0, hash key 0, no data
    )
    record = (
        bytes.fromhex("f3899ac2") + message + hashlib.md5(message, usedforsecurity=False).digest()
    )

    assert rows(parse_aggregate(record, None)) == [("key", None, b"dog", 0), ("a", "42", b"", 1)]


def test_user_records_come_in_order_with_their_own_keys() -> None:
    """Keys are shared, and any record may have an explicit hash key or none."""
    users = [
        User("a", b"1"),
        User("schlüssel", b"\x00\xff", "0"),
        User("a", b"", str(MAX_HASH_KEY)),
        User("", b"4"),
    ]

    assert rows(parse_aggregate(aggregate(*users), None)) == [
        (user.key, user.hash_key, user.data, i) for i, user in enumerate(users)
    ]


def test_an_aggregate_of_nothing_holds_nothing() -> None:
    """Keys that no record uses are no records."""
    assert rows(parse_aggregate(sealed(KEY), None)) == []


def test_fields_of_a_newer_format_are_passed_over() -> None:
    """Tags are in the format and used by nobody; more may come."""
    tag = bytes_field(4, bytes_field(1, b"name") + bytes_field(2, b"value"))
    user = number_field(1, 0) + tag + bytes_field(3, b"data") + number_field(9, 7)

    message = number_field(8, 1) + bytes_field(3, user) + KEY + bytes_field(12, b"more")
    assert rows(parse_aggregate(sealed(message), None)) == [("key", None, b"data", 0)]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"plain",
        MAGIC,
        MAGIC[:3],
        MAGIC + b"and a text of some length behind it",
        b"." + aggregate(User("k", b"d")),
        aggregate(User("k", b"d")) + b".",
        aggregate(User("k", b"d"))[:-1],
        MAGIC[:-1] + b"\xc3" + aggregate(User("k", b"d"))[4:],
        MAGIC + aggregate(User("k", b"d"))[4:-1] + b"?",
        sealed(b""),
    ],
)
def test_without_mark_and_sum_it_is_a_plain_record(record: bytes) -> None:
    """Bytes that happen to begin like an aggregate are the user's own; so is a message of no
    bytes, which the KCL does not take for one either.
    """
    assert parse_aggregate(record, None) is None
    assert parse_aggregate(record, LOWER) is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        pytest.param(b"\xff", "not the message", id="no protocol buffer"),
        pytest.param(b"\x0a\x05key", "not the message", id="cut off"),
        pytest.param(b"\x0a" + b"\xff" * 10, "not the message", id="a length without end"),
        pytest.param(b"\x0a" + varint(2**63 - 1), "not the message", id="a length beyond all"),
        pytest.param(KEY + bytes_field(3, b"\x08"), "not the message", id="a record cut off"),
        pytest.param(KEY + user_field(0, None), "without its key or", id="no data"),
        pytest.param(KEY + user_field(None, b"d"), "without its key or", id="no key"),
        pytest.param(b"\x0b" * 5000, "not the message", id="groups in groups"),
        pytest.param(
            KEY + bytes_field(3, number_field(1, 0) + number_field(3, 1)),
            "without its key or",
            id="data of another type",
        ),
        pytest.param(user_field(0, b"d"), "a partition key that is not there", id="no key table"),
        pytest.param(KEY + user_field(1, b"d"), "a partition key that is not", id="no such key"),
        pytest.param(
            KEY + user_field(2**64 - 1, b"d"), "a partition key that is not", id="a huge index"
        ),
        pytest.param(
            KEY + user_field(2**32, b"d"), "a partition key that is not", id="an index of 33 bits"
        ),
        pytest.param(
            KEY + user_field(0, b"d", 0), "an explicit hash key that is not", id="no hash table"
        ),
        pytest.param(
            KEY + bytes_field(2, b"7") + user_field(0, b"d", 1),
            "an explicit hash key that is not",
            id="no such hash key",
        ),
        pytest.param(
            bytes_field(1, b"\xff\xfe") + user_field(0, b"d"), "no UTF-8", id="key no UTF-8"
        ),
        pytest.param(
            bytes_field(1, b"\xed\xa0\x80") + user_field(0, b"d"), "no UTF-8", id="half a surrogate"
        ),
        pytest.param(
            bytes_field(1, b"x" * 257) + user_field(0, b"d"), "257 characters", id="a long key"
        ),
        *(
            pytest.param(
                KEY + bytes_field(2, hash_key) + user_field(0, b"d", 0),
                "no number from 0 to",
                id=f"hash key {hash_key[:10]!r}",
            )
            for hash_key in (
                b"",
                b"x",
                b"-1",
                b"+1",
                b" 1",
                b"1_0",
                b"0x1",
                b"1.0",
                "٣".encode(),
                b"%d" % (MAX_HASH_KEY + 1),
                b"9" * 5000,
            )
        ),
    ],
)
def test_marked_and_summed_up_rightly_it_must_be_an_aggregate(message: bytes, said: str) -> None:
    """Nobody writes mark and sum by accident. A guess would be a gap, or a row that is none."""
    for hash_range in (None, LOWER, (0, MAX_HASH_KEY)):
        with pytest.raises(MalformedAggregateError, match=said):
            parse_aggregate(sealed(message), hash_range)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            bytes_field(1, "漢".encode() * 256) + user_field(0, b"") * 100_000, id="a long key"
        ),
        pytest.param(KEY + user_field(0, b"") * 1_200_000, id="empty records"),
        pytest.param(
            b"".join(bytes_field(1, b"%0256d" % i) for i in range(200))
            + b"".join(user_field(i % 200, b"") for i in range(400_000)),
            id="long keys by turns",
        ),
    ],
)
def test_a_few_bytes_cannot_stand_for_all_memory(message: bytes) -> None:
    """What is stored once is repeated in each row: that is bounded before it is done."""
    record = sealed(message)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedAggregateError, match="stand for"):
            parse_aggregate(record, None)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "users",
    [
        pytest.param([User("k", b"")], id="the smallest"),
        pytest.param([User("k" * 256, b"") for _ in range(10)], id="long keys"),
        pytest.param([User("k", b"%d" % i) for i in range(20_000)], id="numbers"),
        pytest.param([User("0b9f" * 9, b"1") for _ in range(30_000)], id="a flag an identifier"),
        pytest.param([User(f"{i:036}", b"x" * 30) for i in range(12_000)], id="full to a MiB"),
    ],
)
def test_what_producers_write_is_never_too_much(users: list[User]) -> None:
    """The bound is far from anything that saves space."""
    assert len(rows(parse_aggregate(aggregate(*users), None))) == len(users)


# --- the hash range -----------------------------------------------------------------------------

IN, OUT = User(LOW, b"in"), User(HIGH, b"out")


@pytest.mark.parametrize(
    ("users", "hash_range", "kept"),
    [
        pytest.param([IN, IN], LOWER, [0, 1], id="all belong here"),
        pytest.param([OUT, OUT], LOWER, [], id="all belong elsewhere"),
        pytest.param([IN, OUT, IN], LOWER, [0, 2], id="one belongs elsewhere"),
        pytest.param([IN, OUT, IN], UPPER, [1], id="the other shard"),
        pytest.param([IN, OUT], None, [0, 1], id="not known"),
        pytest.param([IN, OUT], (0, MAX_HASH_KEY), [0, 1], id="the only shard"),
        pytest.param([User(HIGH, b"", "5"), OUT], LOWER, [0], id="the explicit key decides"),
        pytest.param([User(LOW, b"", str(HALF)), IN], LOWER, [1], id="and against the other"),
        pytest.param(
            [User("k", b"", str(n)) for n in (9, 10, 20, 21)], (10, 20), [1, 2], id="both ends"
        ),
        pytest.param(
            [User("k", b"", str(n)) for n in (0, 1)], (0, 0), [0], id="the narrowest range"
        ),
        pytest.param([User("k", b"")], (hash_of("k"), hash_of("k")), [0], id="exactly its hash"),
        pytest.param([User("k", b"")], (hash_of("k") + 1, MAX_HASH_KEY), [], id="one below"),
        pytest.param([User("k", b"")], (0, hash_of("k") - 1), [], id="one above"),
        pytest.param([User("k", b"", "007")], (7, 7), [0], id="leading zeros"),
    ],
)
def test_what_belongs_to_another_shard_is_left_out(
    users: list[User], hash_range: tuple[int, int] | None, kept: list[int]
) -> None:
    """F59: the KPL sends those again, and only those for sure. Who stays keeps its number."""
    found = parse_aggregate(aggregate(*users), hash_range)

    assert rows(found) == [(users[i].key, users[i].hash_key, users[i].data, i) for i in kept]
    assert found is not None
    assert found.misplaced == len(users) - len(kept)


def test_a_key_that_is_not_used_misplaces_nothing() -> None:
    """Neither in the table of keys nor where an explicit hash key stands before it."""
    message = bytes_field(1, HIGH.encode()) + bytes_field(1, LOW.encode()) + user_field(1, b"d")
    found = parse_aggregate(sealed(message), LOWER)

    assert rows(found) == [(LOW, None, b"d", 0)]
    assert found is not None
    assert found.misplaced == 0


def test_a_malformed_user_record_is_told_even_among_misplaced_ones() -> None:
    """What is left out is known to be sound, so that nothing is left out by a guess."""
    message = bytes_field(1, HIGH.encode()) + user_field(0, b"out") + user_field(5, b"what?")

    with pytest.raises(MalformedAggregateError):
        parse_aggregate(sealed(message), LOWER)


# --- record ids -----------------------------------------------------------------------------------

PREFIX = tag_field(b"kinesis_ds.id.1", b"query/7/0")
# Well made, and no business of ours.
FOREIGN = tag_field(b"trace", b"abc") + tag_field(b"r2", b"5") + bytes_field(4, bytes_field(1, b""))


def row(number: int) -> bytes:
    return tag_field(b"r", b"%d" % number)


def ids(*tags: bytes) -> list[str | None] | None:
    """Of the user records of an aggregate with these tags, which are as they were in any case."""
    data = aggregate(*[User("k", b"%d" % i, None, each) for i, each in enumerate(tags)])
    found = parse_aggregate(data, None, ids=True)
    assert found is not None
    assert found.data == [b"%d" % i for i in range(len(tags))]
    return found.ids


def test_the_bytes_of_a_record_id() -> None:
    """Spelled out: streams hold them for as long as they hold records."""
    message = bytes.fromhex(
        "0a0161"  # partition_key_table: "a"
        "1a2b 0800 1a00"  # records: key 0, no data
        "221b 0a0f 6b696e657369735f64732e69642e31 1208 712d69642f332f30"  # "q-id/3/0"
        "2208 0a0172 1203 313233"  # "r": "123"
        "1a0c 0800 1a00 2206 0a0172 1201 39"  # "r": "9"
    )

    found = parse_aggregate(sealed(message), None, ids=True)
    assert found is not None
    assert found.ids == ["q-id/3/0/123", "q-id/3/0/9"]


def test_ids_are_looked_for_only_where_they_are_wanted() -> None:
    """Who does not want them does not pay for them."""
    found = parse_aggregate(aggregate(User("k", b"", None, PREFIX + row(1))), None)

    assert found is not None
    assert found.ids is None


def test_an_id_is_the_prefix_and_the_row() -> None:
    """Whatever other tags there are, and wherever they stand."""
    assert ids(PREFIX + row(0), row(3), row(10**18)) == [
        "query/7/0/0",
        "query/7/0/3",
        f"query/7/0/{10**18}",
    ]
    assert ids(row(1) + FOREIGN + PREFIX, FOREIGN + row(2) + FOREIGN) == [
        "query/7/0/1",
        "query/7/0/2",
    ]


def test_who_is_left_out_takes_no_id_away() -> None:
    """The first user record says the prefix even where it belongs to another shard."""
    data = aggregate(
        User(LOW, b"1", None, PREFIX + row(1)), User(HIGH, b"2", None, row(2)), User(LOW, b"3")
    )
    upper, lower = parse_aggregate(data, UPPER, ids=True), parse_aggregate(data, LOWER, ids=True)

    assert upper is not None
    assert upper.ids == ["query/7/0/2"]
    assert lower is not None
    assert lower.ids == ["query/7/0/1", None]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="no tag"),
        pytest.param(FOREIGN, id="tags of others"),
        pytest.param(tag_field(b"kinesis_ds.id.2", b"query/7/0"), id="a later version"),
        pytest.param(tag_field(b"kinesis_ds.id.1", b""), id="empty"),
        pytest.param(tag_field(b"kinesis_ds.id.1", b"x" * 101), id="too long"),
        pytest.param(tag_field(b"kinesis_ds.id.1", b"x" * 200), id="a length of two bytes"),
        pytest.param(tag_field(b"kinesis_ds.id.1", b"\xff\xfe"), id="no UTF-8"),
        pytest.param(PREFIX + PREFIX, id="twice"),
        pytest.param(bytes_field(4, bytes_field(1, b"kinesis_ds.id.1")), id="no value"),
        pytest.param(bytes_field(4, PREFIX[2:-1]), id="cut short"),
        pytest.param(number_field(4, 7), id="a number"),
        pytest.param(bytes_field(4, b"\xff\xff"), id="no message"),
    ],
)
def test_without_a_prefix_that_is_one_nobody_has_an_id(first: bytes) -> None:
    """Rows alone say nothing, and what others put into tags is no error."""
    assert ids(first + row(0), PREFIX + row(1), row(2)) == [None] * 3


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"", id="no tag"),
        pytest.param(tag_field(b"r", b""), id="empty"),
        pytest.param(tag_field(b"r", b"-1"), id="negative"),
        pytest.param(tag_field(b"r", b"1e3"), id="no digits"),
        pytest.param(tag_field(b"r", "٣".encode()), id="other digits"),
        pytest.param(tag_field(b"r", b"1" * 20), id="too long"),
        pytest.param(tag_field(b"r", b"1") * 2, id="twice"),
        pytest.param(tag_field(b"r", b"1") * 3, id="three times"),
        pytest.param(tag_field(b"R", b"1"), id="another key"),
        pytest.param(bytes_field(4, bytes_field(1, b"r")), id="no value"),
        pytest.param(bytes_field(4, bytes_field(1, b"r") + b"\x12"), id="no length"),
        pytest.param(bytes_field(4, bytes_field(1, b"r") + b"\x12\x02" + b"1"), id="cut short"),
        pytest.param(bytes_field(4, row(1)[2:] + bytes_field(3, b"")), id="more behind it"),
        pytest.param(number_field(4, 7), id="a number"),
    ],
)
def test_a_row_that_is_none_is_no_id(tags: bytes) -> None:
    """Of that user record; the others keep theirs."""
    assert ids(PREFIX + row(0), tags, row(2)) == ["query/7/0/0", None, "query/7/0/2"]
