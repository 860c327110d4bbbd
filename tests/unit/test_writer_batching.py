"""Packing rows into requests: what is refused, how it is named, and what counts."""

from __future__ import annotations

import hashlib
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import Row

from kinesis_ds.errors import WriteError
from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.writer.batching import (
    Columns,
    Packer,
    PackingLimits,
    Request,
    arrow_columns,
    random_keys,
    row_columns,
)

LIMITS = PackingLimits(request_records=500, request_bytes=5 * MIB, record_bytes=1 * MIB)


def pack(columns: Columns, limits: PackingLimits = LIMITS) -> list[Request]:
    return list(Packer(limits, partition=7).pack([columns]))


def one(data: bytes | str | None, key: str | None = "k", hash_key: str | None = None) -> Columns:
    return Columns([data], [key], [hash_key])


def test_size_counts_the_partition_key_in_utf8() -> None:
    """A record is as large as its data and its key's bytes, not its key's characters."""
    (request,) = pack(one(b"abc", "é€"))

    assert 3 + 2 + 3 == request.size == request.records[0].size


def test_a_record_may_be_as_large_as_the_limit_with_its_key() -> None:
    """The limit is for data and key together, and itself allowed."""
    limits = PackingLimits(500, MIB, record_bytes=10)

    assert pack(one(b"x" * 9), limits)[0].size == 10
    with pytest.raises(WriteError):
        pack(one(b"x" * 10), limits)


def test_an_oversized_row_is_named_with_position_and_size() -> None:
    """The message leads to the row: partition, number within the task, size, limit."""
    columns = Columns([b"a", b"x" * (MIB + 1)], ["k", "key"], None)

    with pytest.raises(WriteError, match=r"Row 1 of partition 7 .* 1048580 bytes .* 1048576"):
        pack(columns)


def test_a_limit_that_was_raised_meanwhile_is_seen_before_a_row_is_refused() -> None:
    """The stream is asked once for a row, and only for one that the old limit refuses."""
    asked: list[int] = []

    def look_again() -> int:
        asked.append(1)
        return 20

    slices = [one(b"x" * n) for n in (9, 18, 19, 20)]
    packer = Packer(PackingLimits(1, MIB, record_bytes=10), 7, look_again=look_again)
    packed = packer.pack(slices)

    assert [next(packed).size for _ in range(2)] == [10, 19]
    with pytest.raises(WriteError, match=r"Row 3 of partition 7 .* 21 bytes .* takes 20 a record"):
        list(packed)
    assert len(asked) == 2


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
def test_a_row_that_kinesis_would_refuse_is_refused_here(columns: Columns, said: str) -> None:
    """One bad row would have Kinesis refuse the whole request it travels in."""
    with pytest.raises(WriteError, match="Row 0 of partition 7") as caught:
        pack(columns)

    assert said in str(caught.value)


@pytest.mark.parametrize("hash_key", ["0", "1", str(MAX_HASH_KEY)])
def test_explicit_hash_keys_up_to_the_last_are_taken(hash_key: str) -> None:
    """The whole range 0 to 2^128-1 is valid, both ends included."""
    assert pack(one(b"", "k", hash_key))[0].records[0].entry["ExplicitHashKey"] == hash_key


def test_a_null_explicit_hash_key_is_left_out() -> None:
    """The service would refuse an empty member."""
    assert pack(one(b"d", "k"))[0].records[0].entry == {"Data": b"d", "PartitionKey": "k"}


def test_rows_without_a_key_are_spread_evenly() -> None:
    """Over 8 equal shards, 8000 rows without a key come to about 1000 each."""
    requests = pack(Columns([b"d"] * 8000, None, None))

    keys = [str(r.entry["PartitionKey"]) for q in requests for r in q.records]
    shards = Counter(hashlib.md5(k.encode(), usedforsecurity=False).digest()[0] >> 5 for k in keys)
    assert len(shards) == 8
    assert all(850 < count < 1150 for count in shards.values())


def test_null_keys_beside_given_ones_are_made_up() -> None:
    """A null is a missing key; the row beside it keeps its own."""
    packer = Packer(LIMITS, 0, random_keys(seed=1))
    (request,) = packer.pack([Columns([b"a", b"b"], [None, "mine"], None)])

    made_up, mine = (record.entry["PartitionKey"] for record in request.records)
    assert mine == "mine"
    assert len(str(made_up)) == 16


def test_a_row_larger_than_a_request_travels_alone() -> None:
    """batchMaxBytes below the record limit must not make a row unwritable."""
    limits = PackingLimits(500, request_bytes=100, record_bytes=1000)
    requests = pack(Columns([b"a" * 10, b"b" * 500, b"c" * 10], ["k"] * 3, None), limits)

    assert [len(request.records) for request in requests] == [1, 1, 1]


def test_requests_fill_up_across_slices() -> None:
    """Small Arrow batches do not make small requests."""
    slices = [Columns([b"d"] * 300, None, None) for _ in range(5)]
    requests = Packer(LIMITS, 0).pack(slices)

    assert [len(request.records) for request in requests] == [500, 500, 500]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_arrow_text_and_binary_both_become_bytes(kind: pa.DataType) -> None:
    """Data may be text, sent as UTF-8, or binary, in any of Arrow's spellings."""
    text = ["é", "", None]
    values = (
        text if "string" in str(kind) else [t.encode() if t is not None else None for t in text]
    )
    batch = pa.record_batch({"data": pa.array(values, kind)})

    (columns,) = arrow_columns([batch])

    assert columns == Columns(["é".encode(), b"", None], None, None)


def test_arrow_batches_of_large_rows_are_opened_a_few_rows_at_a_time() -> None:
    """A batch of 40 x 1 MiB never is 40 MiB of Python objects at once."""
    batch = pa.record_batch({"data": pa.array([b"x" * MIB] * 40, pa.binary())})

    slices = [len(columns.data) for columns in arrow_columns([batch])]

    assert sum(slices) == 40
    assert max(slices) <= 4


def test_empty_arrow_batches_come_to_nothing() -> None:
    """Spark may send batches without rows."""
    empty = pa.record_batch({"data": pa.array([], pa.binary())})

    assert list(Packer(LIMITS, 0).pack(arrow_columns([empty, empty]))) == []


def test_rows_give_the_same_columns_as_arrow() -> None:
    """PySpark 4.0 streams rows, with binary data as bytearray."""
    rows = [Row(data=bytearray(b"a"), partitionKey="k"), Row(data=None, partitionKey=None)]

    assert list(row_columns(rows)) == [Columns([b"a", None], ["k", None], None)]
