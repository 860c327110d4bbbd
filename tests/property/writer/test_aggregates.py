"""Whatever rows the sink aggregates, readers get them back: ours, and the one of AWS."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.testing.hashing import hash_of
from kinesis_ds.wire.deaggregate import parse_aggregate
from kinesis_ds.writer.aggregating import Aggregator, user_records
from kinesis_ds.writer.records import Block, Record, plain
from tests.support.aggregates import User, aggregate, tag_field
from tests.support.other_reader import by_the_other_reader, tags_by_the_other_reader

KEYS = st.sampled_from(["a", "b", "key", "né"]) | st.text(
    min_size=1, max_size=256, alphabet=st.characters(codec="utf-8")
)
HASH_KEYS = st.integers(0, 3).map(str) | st.integers(0, MAX_HASH_KEY).map(str)
DATA = st.binary(max_size=40) | st.integers(100, 400).map(bytes)
USERS = st.lists(st.builds(User, KEYS, DATA, st.none() | HASH_KEYS), max_size=30)
# AWS's reader gives the first explicit hash key to records that have none, as soon as any record of
# the aggregate has one.
ALIKE = st.lists(st.builds(User, KEYS, DATA), max_size=30) | st.lists(
    st.builds(User, KEYS, DATA, HASH_KEYS), max_size=30
)
PREFIXES = st.none() | st.text(min_size=1, max_size=25, alphabet=st.characters(codec="utf-8"))
SIZES = st.integers(1, 600)
COUNTS = st.integers(1, 12)
STREAM_LIMIT = 450  # some records fit it only without an id


def records_of(users: list[User], first_row: int = 0) -> list[Record]:
    """Return these rows as records; those larger than the stream takes are left out."""
    plains = (
        plain(u.data, u.key, u.hash_key, len(u.data) + len(u.key.encode()), first_row + 3 * i)
        for i, u in enumerate(users)
    )
    return [record for record in plains if record.size <= STREAM_LIMIT]


def aggregated(
    records: list[Record],
    most: int,
    count: int,
    prefix: str | None,
    *,
    at_once: int = 1,
    stream_limit: int = STREAM_LIMIT,
) -> list[Record]:
    aggregator = Aggregator(most, count, stream_limit, prefix)
    blocks = [Block.of(records[at : at + at_once]) for at in range(0, len(records), at_once)]
    out = [closed for block in blocks for closed in aggregator.add(block, 0.0)]
    last = aggregator.close()
    return out if last is None else [*out, last]


def size_of(records: list[Record], prefix: str | None) -> int:
    """Return their size as an aggregate, by an encoder that knows nothing of ours."""
    users = []
    for i, r in enumerate(records):
        tags = b""
        if prefix is not None:
            tags = tag_field(b"kinesis_ds.id.1", prefix.encode()) if i == 0 else b""
            tags += tag_field(b"r", b"%d" % r.row)
        users.append(User(r.partition_key, r.data, r.explicit_hash_key, tags))
    return len(aggregate(*users)) + len(records[0].partition_key.encode())


def parts_of(records: list[Record], out: list[Record]) -> list[tuple[Record, list[Record]]]:
    """Each record that came out, with those that went into it, by count."""
    parts, start = [], 0
    for record in out:
        parts.append((record, records[start : start + record.rows]))
        start += record.rows
    assert start == len(records)
    return parts


@given(USERS, SIZES, COUNTS, PREFIXES, st.integers(0, 2**40))
def test_our_reader_gets_back_what_went_in(
    users: list[User], most: int, count: int, prefix: str | None, first_row: int
) -> None:
    """Each row once, in order, with its keys and its id; and taken apart, it is the same again."""
    records = records_of(users, first_row)
    for record, inside in parts_of(records, aggregated(records, most, count, prefix)):
        found = parse_aggregate(record.data, None, ids=True) if record.keys else None
        if found is None:
            assert repr([record]) == repr(inside)
            assert prefix is None or size_of(inside, prefix) > STREAM_LIMIT
            continue
        assert found.data == [r.data for r in inside]
        assert found.partition_keys == [r.partition_key for r in inside]
        assert found.explicit_hash_keys == [r.explicit_hash_key for r in inside]
        assert found.ids == [None if prefix is None else f"{prefix}/{r.row}" for r in inside]
        for user, wanted in zip(user_records(record), inside, strict=True):
            if prefix is None:
                wanted.row = record.row
            assert repr(user) == repr(wanted)


@given(USERS, SIZES, COUNTS, PREFIXES)
def test_limits_are_kept_and_used(
    users: list[User], most: int, count: int, prefix: str | None
) -> None:
    """Sizes are exact to the byte; no aggregate is larger than it may be, and none was closed that
    the next record would still have fitted into.
    """
    records = records_of(users)
    limit = min(most, STREAM_LIMIT)
    parts = parts_of(records, aggregated(records, most, count, prefix))
    for i, (record, inside) in enumerate(parts):
        assert record.size == len(record.data) + len(record.partition_key.encode())
        assert record.size <= STREAM_LIMIT
        assert record.window_bytes == sum(r.size for r in inside)
        assert (record.row, record.partition_key) == (inside[0].row, inside[0].partition_key)
        if record.keys:
            assert record.size == size_of(inside, prefix)
            assert sorted(record.keys) == sorted({r.partition_key for r in inside})
            assert record.explicit_hash_key == (
                inside[0].explicit_hash_key or str(hash_of(inside[0].partition_key))
            )
        assert record.rows <= count
        assert record.rows == 1 or record.size <= limit
        if record.rows < count and i + 1 < len(parts):
            assert size_of([*inside, parts[i + 1][1][0]], prefix) > limit


@given(
    st.lists(
        st.builds(User, KEYS, st.binary(max_size=40) | st.just(b"x" * 200), st.none()),
        max_size=120,
    ),
    st.integers(100, 4000),
    st.integers(1, 60),
    st.integers(2, 120),
)
def test_rows_come_to_the_same_in_blocks_and_one_by_one(
    users: list[User], most: int, count: int, at_once: int
) -> None:
    """To the byte: what is made a column at a time is what is made row by row."""
    records = records_of(users)

    made = aggregated(records, most, count, None, at_once=at_once, stream_limit=MIB)
    assert repr(made) == repr(aggregated(records, most, count, None, stream_limit=MIB))


@given(ALIKE, SIZES, COUNTS, PREFIXES)
def test_another_reader_gets_back_what_went_in(
    users: list[User], most: int, count: int, prefix: str | None
) -> None:
    """It passes over the tags, which are what the format says tags are."""
    records = records_of(users)
    for record, inside in parts_of(records, aggregated(records, most, count, prefix)):
        found = by_the_other_reader(record.data)
        if not record.keys:
            assert found is None
            continue
        assert found == [User(r.partition_key, r.data, r.explicit_hash_key) for r in inside]
        rows = [[] if prefix is None else [("r", str(r.row))] for r in inside]
        if prefix is not None:
            rows[0].insert(0, ("kinesis_ds.id.1", prefix))
        assert tags_by_the_other_reader(record.data) == rows
