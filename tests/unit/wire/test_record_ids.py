"""Record ids: the tags that hold them, and tags that hold none."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.testing.hashing import hash_of
from kinesis_ds.wire.deaggregate import parse_aggregate
from tests.support.aggregates import (
    User,
    aggregate,
    bytes_field,
    number_field,
    sealed,
    tag_field,
)

HALF = (MAX_HASH_KEY + 1) // 2
LOWER, UPPER = (0, HALF - 1), (HALF, MAX_HASH_KEY)
# Keys by the half of the hash range that they belong to.
LOW = next(k for k in map(str, range(100)) if hash_of(k) < HALF)
HIGH = next(k for k in map(str, range(100)) if hash_of(k) >= HALF)


PREFIX = tag_field(b"kinesis_ds.id.1", b"query/7/0")
# Well made, and no business of ours.
FOREIGN = tag_field(b"trace", b"abc") + tag_field(b"r2", b"5") + bytes_field(4, bytes_field(1, b""))


def row(number: int) -> bytes:
    return tag_field(b"r", b"%d" % number)


def ids(*tags: bytes) -> list[str | None] | None:
    """Return the record ids of an aggregate whose user records have these tags."""
    data = aggregate(*[User("k", b"%d" % i, None, each) for i, each in enumerate(tags)])
    found = parse_aggregate(data, None, ids=True)
    assert found is not None
    assert found.data == [b"%d" % i for i in range(len(tags))]
    return found.ids


def test_the_bytes_of_a_record_id() -> None:
    """The bytes are written out, since streams keep them as long as they keep records."""
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
    """A reader that does not want ids does not pay for them."""
    found = parse_aggregate(aggregate(User("k", b"", None, PREFIX + row(1))), None)

    assert found is not None
    assert found.ids is None


def test_an_id_is_the_prefix_and_the_row() -> None:
    """Other tags, and the order of tags, make no difference."""
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
    """The first user record gives the prefix even if it belongs to another shard."""
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
    """A row number alone is no id, and tags of other producers are no error."""
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
    """Only that user record has no id; the others keep theirs."""
    assert ids(PREFIX + row(0), tags, row(2)) == ["query/7/0/0", None, "query/7/0/2"]
