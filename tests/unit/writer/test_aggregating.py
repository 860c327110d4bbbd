"""Aggregates that the sink makes: their size, their order, and what is never aggregated."""

from __future__ import annotations

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing.hashing import hash_of
from kinesis_ds.wire.deaggregate import parse_aggregate
from kinesis_ds.writer.aggregating import Aggregator, user_records
from kinesis_ds.writer.records import Block, Record, plain
from tests.support.aggregates import User, aggregate, tag_field

PREFIX = "6f0c2c1e-0000-4000-8000-aabbccddeeff/12/3"


def record_of(row: int, data: bytes = b"data", key: str = "key", at: str | None = None) -> Record:
    return plain(data, key, at, len(data) + len(key.encode()), row)


def block_of(*rows: int) -> Block:
    return Block.of([record_of(row) for row in rows])


def aggregated(
    *records: Record,
    most: int = MIB,
    users: int = 100_000,
    stream_limit: int = MIB,
    prefix: str | None = None,
) -> list[Record]:
    """Return the records that an aggregator makes of these."""
    aggregator = Aggregator(most, users, stream_limit, prefix)
    out = [closed for record in records for closed in aggregator.add(Block.of([record]), 0.0)]
    last = aggregator.close()
    return out if last is None else [*out, last]


def tags(row: int, prefix: str | None = None) -> bytes:
    before = b"" if prefix is None else tag_field(b"kinesis_ds.id.1", prefix.encode())
    return before + tag_field(b"r", b"%d" % row)


def test_what_kinesis_gets_of_an_aggregate() -> None:
    """The format's bytes; the first user record's keys, so that it lands where that one would."""
    (record,) = aggregated(
        record_of(4, b"one", "né"), record_of(7, b"two", "b"), record_of(9, b"", "né")
    )

    assert record.data == aggregate(User("né", b"one"), User("b", b"two"), User("né", b""))
    assert record.partition_key == "né"
    assert record.explicit_hash_key == str(hash_of("né"))
    assert record.size == len(record.data) + len("né".encode())
    assert (record.row, record.rows, record.window_bytes) == (4, 3, 6 + 4 + 3)
    assert record.keys == ("né", "b")
    assert (record.first_try, record.tries) == (None, 0)


def test_an_explicit_hash_key_is_the_aggregates_and_each_records_own() -> None:
    """It lands by the first one's, and the others keep theirs."""
    (record,) = aggregated(
        record_of(0, b"1", "a", "77"), record_of(1, b"2", "b", "78"), record_of(2, b"3", "a", "77")
    )
    found = parse_aggregate(record.data, None)

    assert found is not None
    assert record.explicit_hash_key == "77"
    assert found.explicit_hash_keys == ["77", "78", "77"]
    assert found.partition_keys == ["a", "b", "a"]
    assert len(record.data) == len(
        aggregate(User("a", b"1", "77"), User("b", b"2", "78"), User("a", b"3", "77"))
    )


def test_one_row_alone_is_sent_as_it_is() -> None:
    """The KPL does the same: no reader needs to take it apart."""
    only = record_of(3)

    assert repr(aggregated(only)) == repr([only])


def test_nothing_waits_and_nothing_comes_of_nothing() -> None:
    """When it is new, and again after each close."""
    aggregator = Aggregator(MIB, 10, MIB, None)
    for now in (5.0, 8.0):
        assert (aggregator.waiting, aggregator.opened_at, aggregator.close()) == (0, None, None)
        assert aggregator.add(block_of(0), now) == []
        assert aggregator.add(block_of(1), now + 1) == []
        assert (aggregator.waiting, aggregator.opened_at) == (2, now)
        assert aggregator.close() is not None


def test_an_aggregate_fills_up_to_the_byte() -> None:
    """Up to the limit it takes one more record, and one byte below it does not."""
    three = [record_of(row, b"x" * 200, f"key{row}") for row in range(3)]
    (whole,) = aggregated(*three)

    (again,) = aggregated(*three, most=whole.size)
    assert again.data == whole.data
    assert [r.rows for r in aggregated(*three, most=whole.size - 1)] == [2, 1]


def test_the_streams_limit_is_kept_where_more_was_asked_for() -> None:
    """The limit of the stream counts, whatever an option says."""
    out = aggregated(
        *[record_of(row, b"x" * 200) for row in range(20)], most=MIB, stream_limit=1_000
    )

    assert max(r.size for r in out) <= 1_000
    assert sum(r.rows for r in out) == 20


def test_a_full_aggregate_is_closed_at_once() -> None:
    """The last record it may have closes it, so that it need not wait for the next."""
    aggregator = Aggregator(MIB, 3, MIB, None)

    closed = [len(aggregator.add(block_of(row), 0.0)) for row in range(7)]

    assert closed == [0, 0, 1, 0, 0, 1, 0]
    assert aggregator.waiting == 1


def test_a_large_record_goes_alone_and_in_its_turn() -> None:
    """Behind those that came before it, and before those that come after it."""
    aggregator = Aggregator(500, 100, MIB, None)
    large = record_of(2, b"x" * 5_000)
    assert aggregator.add(block_of(0, 1), 0.0) == []

    before, alone = aggregator.add(Block.of([large]), 0.0)

    assert [u.row for u in user_records(before)] == [0, 0]  # rows are told by tags only
    assert repr(alone) == repr(large)
    assert aggregator.waiting == 0


def test_every_record_has_its_row_with_ids() -> None:
    """Each a tag with its row, the first the prefix, even a record alone; sizes to the byte."""
    both, alone = aggregated(
        record_of(9), record_of(10, key="b"), record_of(12), users=2, prefix=PREFIX
    )

    assert both.data == aggregate(
        User("key", b"data", None, tags(9, PREFIX)), User("b", b"data", None, tags(10))
    )
    assert alone.data == aggregate(User("key", b"data", None, tags(12, PREFIX)))
    assert [r.size for r in (both, alone)] == [len(r.data) + 3 for r in (both, alone)]
    assert (alone.rows, alone.window_bytes, alone.keys) == (1, 7, ("key",))


def test_an_id_costs_about_a_dozen_bytes() -> None:
    """A record; the prefix is paid for once an aggregate."""
    records = [record_of(row, b"x" * 100) for row in range(10_000, 10_400)]
    (without,) = aggregated(*records)
    (with_ids,) = aggregated(*records, prefix=PREFIX)

    assert with_ids.size - without.size < 400 * 13 + 100


def test_a_record_for_which_an_id_is_too_much_goes_without() -> None:
    """Larger than an aggregate may be, it goes alone with its id; larger than the stream takes with
    it, as the plain record that the stream does take.
    """
    fits = record_of(0, b"x" * 800)
    (tagged,) = aggregated(fits, most=500, prefix=PREFIX)
    assert tagged.size > 500

    (same,) = aggregated(fits, most=500, stream_limit=tagged.size, prefix=PREFIX)
    assert same.data == tagged.data
    (without,) = aggregated(fits, most=500, stream_limit=tagged.size - 1, prefix=PREFIX)
    assert repr(without) == repr(fits)


@pytest.mark.parametrize("prefix", ["", "x" * 101, "é" * 51])
def test_a_prefix_has_its_bounds(prefix: str) -> None:
    """Empty ones and long ones are refused when the aggregator is made."""
    with pytest.raises(ValueError, match="1 to 100 bytes"):
        Aggregator(MIB, 10, MIB, prefix)


def test_an_aggregate_taken_apart_is_the_records_it_was_made_of() -> None:
    """Keys, hash keys, sizes, and rows where they are told."""
    records = [
        record_of(5, b"1", "a", "77"),
        record_of(8, b"", "né"),
        record_of(6, b"3" * 300, "a"),
        record_of(9, b"4", "b", "0"),
    ]

    for prefix in (None, PREFIX):
        (record,) = aggregated(*records, prefix=prefix)
        found = user_records(record)
        for user, wanted in zip(found, records, strict=True):
            if prefix is None:
                wanted.row = 5
            assert repr(user) == repr(wanted)


def test_a_plain_record_is_not_taken_apart() -> None:
    """Not even one whose data are an aggregate that somebody made."""
    record = record_of(1, aggregate(User("a", b"1"), User("b", b"2")))

    assert user_records(record) == [record]


def test_taking_apart_gives_nobody_more_time() -> None:
    """How often, and since when, a row was tried outlasts its aggregates."""
    (record,) = aggregated(record_of(0), record_of(1))
    record.first_try, record.tries = 0.0, 4
    (later,) = aggregated(record_of(2), record_of(3))
    later.first_try, later.tries = 9.0, 2

    (again,) = aggregated(*user_records(record), *user_records(later), record_of(4))

    assert (again.first_try, again.tries) == (0.0, 4)
    assert {(u.first_try, u.tries) for u in user_records(again)} == {(0.0, 4)}
