"""What users put into aggregates comes out again, and another reader finds the same.

The other reader and writer is ``aws_kinesis_agg``, which AWS publishes.
"""

from __future__ import annotations

from typing import Any

from aws_kinesis_agg.aggregator import RecordAggregator
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import TRIM_HORIZON, After, At, AtTimestamp, Position
from kinesis_ds.wire.deaggregate import parse_aggregate
from kinesis_ds.wire.decode import decode_records
from tests.support.aggregates import MAGIC, User, aggregate
from tests.support.builders import ARRIVED_S, record
from tests.support.other_reader import by_the_other_reader

KEYS = st.text(max_size=256, alphabet=st.characters(codec="utf-8")) | st.sampled_from("abc")
HASH_KEYS = st.integers(0, MAX_HASH_KEY).map(str)
DATA = st.binary(max_size=40) | st.binary(min_size=200, max_size=400)
ANY = st.builds(User, KEYS, DATA, st.none() | HASH_KEYS)
# The other reader gives the first explicit hash key to records that have none, as soon as any
# record of the aggregate has one; and the other writer takes an empty key for none.
ALIKE = st.lists(st.builds(User, KEYS, DATA), min_size=1, max_size=12) | st.lists(
    st.builds(User, KEYS, DATA, HASH_KEYS), min_size=1, max_size=12
)
RANGES = st.tuples(st.integers(0, MAX_HASH_KEY), st.integers(0, MAX_HASH_KEY)).map(
    lambda two: (min(two), max(two))
)


def users_in(data: bytes, hash_range: tuple[int, int] | None = None) -> list[User] | None:
    found = parse_aggregate(data, hash_range)
    if found is None:
        return None
    columns = (found.partition_keys, found.data, found.explicit_hash_keys)
    return [User(*each) for each in zip(*columns, strict=True)]


@given(st.lists(ANY, min_size=1, max_size=12))
def test_what_was_put_in_comes_out(users: list[User]) -> None:
    """Every key, hash key and byte comes out, in order."""
    assert users_in(aggregate(*users)) == users


@given(ALIKE)
def test_what_another_writer_aggregates_we_read(users: list[User]) -> None:
    """All user records come out, in order."""
    writer = RecordAggregator()
    for user in users:
        assert writer.add_user_record(user.key, user.data, user.hash_key) is None
    _, _, data = writer.clear_and_get().get_contents()

    assert users_in(data) == users


@given(ALIKE)
def test_what_we_take_for_an_aggregate_another_reader_does(users: list[User]) -> None:
    """The other reader finds the same user records in it."""
    data = aggregate(*users)

    assert by_the_other_reader(data) == users == users_in(data)


@given(st.binary(max_size=40), st.sampled_from([b"", MAGIC, MAGIC[:3]]), ALIKE, st.integers(0, 30))
def test_what_we_take_for_plain_another_reader_does(
    data: bytes, mark: bytes, users: list[User], cut: int
) -> None:
    """Records with the mark and without it, whole and cut short."""
    whole = aggregate(*users)
    for record_data in (mark + data, whole[: len(whole) - 1 - cut], whole + data):
        if users_in(record_data) is None:
            assert by_the_other_reader(record_data) is None


@given(st.lists(ANY, min_size=1, max_size=12), RANGES)
def test_each_user_record_belongs_to_exactly_one_shard(
    users: list[User], hash_range: tuple[int, int]
) -> None:
    """Readers of all shards together find each user record once, wherever the aggregate is."""
    low, high = hash_range
    parts: list[tuple[int, int]] = [(low, high)]
    if low > 0:
        parts.append((0, low - 1))
    if high < MAX_HASH_KEY:
        parts.append((high + 1, MAX_HASH_KEY))
    data = aggregate(*users)
    found = []
    for part in parts:
        piece = parse_aggregate(data, part)
        assert piece is not None
        assert piece.misplaced == len(users) - len(piece.data)
        assert all(part[0] <= users[n].hash <= part[1] for n in piece.sub_numbers)
        assert piece.sub_numbers == sorted(piece.sub_numbers)
        assert piece.data == [users[n].data for n in piece.sub_numbers]
        found += piece.sub_numbers
    assert sorted(found) == list(range(len(users)))


POSITIONS = st.one_of(
    st.just(TRIM_HORIZON),
    st.integers(0, 12).map(lambda n: After(str(n))),
    st.integers(1, 12).map(lambda n: At(str(n))),
    st.integers(0, 12).map(lambda n: AtTimestamp(int(ARRIVED_S * 1000) + n)),
)


@given(st.lists(st.lists(ANY, max_size=9) | DATA, max_size=10), st.data(), st.none() | RANGES)
def test_however_a_shard_is_cut_the_rows_are_the_same(
    contents: list[list[User] | bytes], data: st.DataObject, hash_range: tuple[int, int] | None
) -> None:
    """Aggregates among plain records, from any position, in pieces of any size: the rows of each
    record behind the position come together, in order, and the position ends behind the last.
    """
    items: list[dict[str, Any]] = []
    expected: list[tuple[int, str | None, bytes, int, str | None]] = []
    for i, content in enumerate(contents, start=1):
        whole = content if isinstance(content, bytes) else aggregate(*content)
        items.append(record(i, whole, "outer", ARRIVED_S + i / 1000))
        if isinstance(content, bytes) or not content:
            expected.append((i, "outer", whole, 0, None))
            continue
        for n, user in enumerate(content):
            if hash_range is None or hash_range[0] <= user.hash <= hash_range[1]:
                expected.append((i, user.key, user.data, n, user.hash_key))
    position: Position = data.draw(POSITIONS)
    first = next(
        (
            i
            for i in range(1, len(items) + 1)
            if (not isinstance(position, (At, After)) or i > position.number)
            and (not isinstance(position, AtTimestamp) or ARRIVED_S * 1000 + i >= position.ms)
        ),
        len(items) + 1,
    )
    decoding = Decoding(hash_range, deaggregate=True, metadata=True)
    found = []
    at = position
    start = 0
    while start < len(items):
        # A careless server repeats what came before.
        again = data.draw(st.integers(0, start)) if start else 0
        stop = data.draw(st.integers(start + 1, len(items)))
        decoded = decode_records(items[again:stop], at, decoding)
        start = stop
        if decoded is None:
            assert stop < first
            continue
        columns = [decoded.batch.column(i).to_pylist() for i in (2, 0, 1, 4, 5)]
        rows = [(int(number), *rest) for number, *rest in zip(*columns, strict=True)]
        assert all(decoded.first <= row[0] <= decoded.last for row in rows)
        assert decoded.end.number == decoded.last == stop
        found += rows
        at = decoded.end
    assert found == [row for row in expected if row[0] >= first]
