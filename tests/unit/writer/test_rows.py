"""The rows of a task: what is refused, how it is named, what counts, and where each one goes."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from kinesis_ds.errors import WriteError
from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.writer.records import Record
from kinesis_ds.writer.rows import RowChecker
from kinesis_ds.writer.slices import RowSlice, arrow_slices, row_slices

ORDERS = StreamId("orders")


class Limits:
    """The record limits of streams, and how often somebody looked."""

    def __init__(self, now: int = MIB, then: int | None = None) -> None:
        self.now = now
        self.then = then
        self.looks = 0

    def record_bytes(self, stream: StreamId) -> int:
        return self.now

    def current_record_bytes(self, stream: StreamId) -> int:
        self.looks += 1
        self.now = self.then or self.now
        return self.now


def checker(
    limits: Limits | None = None, stream: StreamId | None = ORDERS, **options: Any
) -> RowChecker:
    sizes = {"piece_records": 500, "piece_bytes": MIB}
    return RowChecker(limits or Limits(), 7, stream, **{**sizes, **options})


def records(columns: RowSlice, limits: Limits | None = None, **options: Any) -> list[Record]:
    return [
        r for piece in checker(limits, **options).pieces([columns]) for r in piece.block.records
    ]


def one(data: bytes | str | None, key: str | None = "k", hash_key: str | None = None) -> RowSlice:
    return RowSlice([data], [key], [hash_key])


def test_size_counts_the_partition_key_in_utf8() -> None:
    """A record is as large as its data and its key's bytes, not its key's characters."""
    (piece,) = checker().pieces([one(b"abc", "é€")])

    (record,) = piece.block.records
    assert 3 + 2 + 3 == piece.block.size == record.size == record.window_bytes


def test_a_record_may_be_as_large_as_the_limit_with_its_key() -> None:
    """The limit is for data and key together, and itself allowed."""
    assert records(one(b"x" * 9), Limits(10))[0].size == 10
    with pytest.raises(WriteError):
        records(one(b"x" * 10), Limits(10))


def test_an_oversized_row_is_named_with_position_and_size() -> None:
    """The message leads to the row: partition, number within the task, size, limit, remedies."""
    columns = RowSlice([b"a", b"x" * (MIB + 1)], ["k", "key"], None)

    with pytest.raises(WriteError, match=r"Row 1 of partition 7 .* 1048580 bytes") as caught:
        records(columns)
    for said in ("stream orders takes 1048576 a record", "onOversizedRecord=skip"):
        assert said in str(caught.value)


def test_oversized_rows_are_left_out_where_the_user_wants_it() -> None:
    """They are counted, and the rows behind them keep their numbers."""
    rows = checker(Limits(10), skip_oversized=True)
    slices = [RowSlice([b"a", b"x" * 20, b"b"], ["k"] * 3, None), one(b"y" * 11), one(b"c")]
    kept = [r for piece in rows.pieces(slices) for r in piece.block.records]

    assert [(r.data, r.row) for r in kept] == [(b"a", 0), (b"b", 2), (b"c", 4)]
    assert rows.skipped == 2


def test_a_limit_that_was_raised_meanwhile_is_seen_before_a_row_is_refused() -> None:
    """The stream is asked once for a row, and only for one that the old limit refuses."""
    limits = Limits(10, then=20)
    pieces = checker(limits).pieces([one(b"x" * n) for n in (9, 18, 19, 20)])

    assert [next(pieces).block.size for _ in range(2)] == [10, 19]
    with pytest.raises(WriteError, match=r"Row 3 of partition 7 .* 21 bytes .* takes 20 a record"):
        list(pieces)
    assert limits.looks == 2


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (one(None), "data is null"),
        (one(b"", ""), "partitionKey has 0 characters"),
        (one(b"", "k" * 257), "partitionKey has 257 characters"),
        (one(b"", "k", "-1"), "explicitHashKey is '-1'"),
        (one(b"", "k", "0x1"), "explicitHashKey"),
        (one(b"", "k", ""), "explicitHashKey"),
        (one(b"", "k", "٣"), "explicitHashKey"),
        (one(b"", "k", "007"), "explicitHashKey"),
        (one(b"", "k", str(MAX_HASH_KEY + 1)), "explicitHashKey"),
        (one(b"", "k", "9" * 500), "explicitHashKey"),
    ],
)
def test_a_row_that_kinesis_would_refuse_is_refused_here(columns: RowSlice, said: str) -> None:
    """One bad row would have Kinesis refuse the whole request it travels in."""
    with pytest.raises(WriteError, match="Row 0 of partition 7") as caught:
        records(columns)

    assert said in str(caught.value)


@pytest.mark.parametrize("hash_key", ["0", "1", str(MAX_HASH_KEY), None])
def test_explicit_hash_keys_up_to_the_last_are_taken(hash_key: str | None) -> None:
    """The whole range 0 to 2^128-1 is valid, both ends included; null is none."""
    assert records(one(b"", "k", hash_key))[0].explicit_hash_key == hash_key


def test_rows_without_a_key_are_spread_evenly() -> None:
    """Over 8 equal shards, 8000 rows without a key come to about 1000 each."""
    keys = [r.partition_key for r in records(RowSlice([b"d"] * 8000, None, None))]

    shards = Counter(hashlib.md5(k.encode(), usedforsecurity=False).digest()[0] >> 5 for k in keys)
    assert len(shards) == 8
    assert all(850 < count < 1150 for count in shards.values())


def test_rows_that_are_put_together_share_a_key() -> None:
    """One for each slice: an aggregate goes to one shard, and slices to all of them."""
    slices = [RowSlice([b"d"] * 3, [None, "mine", None], None) for _ in range(50)]
    pieces = list(checker(shared_keys=True).pieces(slices))

    for piece in pieces:
        first, mine, third = piece.block.keys
        assert (mine, first) == ("mine", third)
    assert len({piece.block.keys[0] for piece in pieces}) == 50


def test_null_keys_beside_given_ones_are_made_up() -> None:
    """A null is a missing key; the row beside it keeps its own."""
    columns = RowSlice([b"a", b"b"], [None, "mine"], None)
    made_up, mine = records(columns)

    assert mine.partition_key == "mine"
    assert len(made_up.partition_key) == 16


def test_pieces_are_small_and_a_large_row_is_one_by_itself() -> None:
    """A piece never exceeds its part of the window, unless a single row does."""
    columns = RowSlice([b"a" * 9, b"b" * 9, b"c" * 500, b"d" * 9], ["k"] * 4, None)
    pieces = [len(p.block) for p in checker(piece_bytes=20).pieces([columns])]
    assert pieces == [2, 1, 1]
    pieces = [len(p.block) for p in checker(piece_records=3).pieces([columns])]
    assert pieces == [3, 1]


def test_each_row_goes_to_the_stream_that_it_names() -> None:
    """By name or ARN, else to the query's; the rows of a stream keep their order and numbers."""
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
    names = ["a", None, arn, "a", None]
    slices = [
        RowSlice([b"0", b"1", b"2", b"3", b"4"], ["k"] * 5, None, names),
        RowSlice([b"5"], ["k"], None, ["a"]),
    ]
    found = [
        (piece.stream.label, [(r.data, r.row) for r in piece.block.records])
        for piece in checker().pieces(slices)
    ]

    assert found == [
        ("a", [(b"0", 0), (b"3", 3)]),
        ("orders", [(b"1", 1), (b"4", 4)]),
        (arn, [(b"2", 2)]),
        ("a", [(b"5", 5)]),
    ]


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (None, "its stream is null, and the query names none"),
        ("", "its stream is '', expected"),
        ("a b", "its stream is 'a b', expected 1 to 128 letters"),
        ("a,b", "expected one stream"),
        ("arn:aws:s3:::x", "expected arn:<partition>:kinesis"),
    ],
)
def test_a_row_that_names_no_stream_is_named(stream: str | None, said: str) -> None:
    """With its number, before anything of its slice is sent."""
    columns = RowSlice([b"a", b"b"], ["k", "k"], None, ["ok", stream])

    with pytest.raises(WriteError, match="Row 1 of partition 7") as caught:
        list(checker(stream=None).pieces([columns]))
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_arrow_text_and_binary_both_become_bytes(kind: pa.DataType) -> None:
    """Data may be text, sent as UTF-8, or binary, in any of Arrow's spellings."""
    text = ["é", "", None]
    values = (
        text if "string" in str(kind) else [t.encode() if t is not None else None for t in text]
    )
    batch = pa.record_batch({"data": pa.array(values, kind)})

    (columns,) = arrow_slices([batch])

    assert columns == RowSlice(["é".encode(), b"", None], None, None)


def test_arrow_batches_of_large_rows_are_opened_a_few_rows_at_a_time() -> None:
    """A batch of 40 x 1 MiB never is 40 MiB of Python objects at once."""
    batch = pa.record_batch({"data": pa.array([b"x" * MIB] * 40, pa.binary())})

    slices = [len(columns.data) for columns in arrow_slices([batch])]

    assert sum(slices) == 40
    assert max(slices) <= 4


def test_empty_arrow_batches_come_to_nothing() -> None:
    """Spark may send batches without rows."""
    empty = pa.record_batch({"data": pa.array([], pa.binary())})

    assert list(checker().pieces(arrow_slices([empty, empty]))) == []


def test_rows_give_the_same_columns_as_arrow() -> None:
    """PySpark 4.0 streams rows, with binary data as bytearray."""
    rows = [Row(data=bytearray(b"a"), partitionKey="k"), Row(data=None, partitionKey=None)]

    assert list(row_slices(rows)) == [RowSlice([b"a", None], ["k", None], None)]


def test_columns_are_found_whatever_their_case() -> None:
    """The check of the schema takes DATA, so both kinds of rows have to find it."""
    wanted = [RowSlice([b"a"], ["k"], None, ["orders"])]
    batch = pa.record_batch({"DATA": [b"a"], "Stream": ["orders"], "PARTITIONKEY": ["k"]})

    assert list(arrow_slices([batch])) == wanted
    assert (
        list(row_slices([Row(DATA=bytearray(b"a"), Stream="orders", PARTITIONKEY="k")])) == wanted
    )
