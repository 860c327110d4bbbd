"""Taking aggregates apart: what is an aggregate, what is a plain record, and what is an error."""

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
    """The bytes are written out, so that encoder and decoder cannot both be wrong."""
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
    """Records share keys, and each may have an explicit hash key or none."""
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
    """Keys that no user record uses give no rows."""
    assert rows(parse_aggregate(sealed(KEY), None)) == []


def test_fields_of_a_newer_format_are_passed_over() -> None:
    """Unknown fields and tags are ignored."""
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
    """Bytes that only begin like an aggregate are user data.

    So is an aggregate with an empty message, as in the KCL.
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
    """Mark and checksum are no accident: then a malformed content is an error, never a guess."""
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
    """A key that is stored once is repeated in each row: the total is limited beforehand."""
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
    """The limit is far above anything that a real producer writes."""
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
    """F59: the KPL sends exactly these user records again. The others keep their numbers."""
    found = parse_aggregate(aggregate(*users), hash_range)

    assert rows(found) == [(users[i].key, users[i].hash_key, users[i].data, i) for i in kept]
    assert found is not None
    assert found.misplaced == len(users) - len(kept)


def test_a_key_that_is_not_used_misplaces_nothing() -> None:
    """Only the key that decides counts: not an unused one, not one with an explicit hash key."""
    message = bytes_field(1, HIGH.encode()) + bytes_field(1, LOW.encode()) + user_field(1, b"d")
    found = parse_aggregate(sealed(message), LOWER)

    assert rows(found) == [(LOW, None, b"d", 0)]
    assert found is not None
    assert found.misplaced == 0


def test_a_malformed_user_record_is_told_even_among_misplaced_ones() -> None:
    """User records that are left out are checked too."""
    message = bytes_field(1, HIGH.encode()) + user_field(0, b"out") + user_field(5, b"what?")

    with pytest.raises(MalformedAggregateError):
        parse_aggregate(sealed(message), LOWER)
