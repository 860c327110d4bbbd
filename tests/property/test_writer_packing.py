"""Packing, for any rows and any limits."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.writer.batching import Columns, Packer, PackingLimits

ROW = st.tuples(st.binary(max_size=60), st.none() | st.text(min_size=1, max_size=12))
LIMITS = st.builds(
    PackingLimits,
    request_records=st.integers(1, 7),
    request_bytes=st.integers(1, 200),
    record_bytes=st.just(200),
)


@given(slices=st.lists(st.lists(ROW, max_size=10), max_size=5), limits=LIMITS)
def test_packing_loses_and_reorders_nothing_and_keeps_every_limit(
    slices: list[list[tuple[bytes, str | None]]], limits: PackingLimits
) -> None:
    """Every row is in exactly one request, in order; no request is larger than it may be."""
    columns = [Columns([d for d, _ in rows], [k for _, k in rows], None) for rows in slices]
    requests = list(Packer(limits, partition=0).pack(columns))

    rows = [row for part in slices for row in part]
    records = [record for request in requests for record in request.records]
    assert [record.entry["Data"] for record in records] == [data for data, _ in rows]
    assert [record.row for record in records] == list(range(len(rows)))
    for record, (_, key) in zip(records, rows, strict=True):
        assert key is None or record.entry["PartitionKey"] == key
        sent_key = str(record.entry["PartitionKey"])
        assert record.size == len(record.entry["Data"]) + len(sent_key.encode())
    for request in requests:
        assert 1 <= len(request.records) <= limits.request_records
        assert request.size == sum(record.size for record in request.records)
        assert request.size <= limits.request_bytes or len(request.records) == 1


@given(slices=st.lists(st.lists(ROW, max_size=10), max_size=5), limits=LIMITS)
def test_no_request_could_have_taken_the_next_record(
    slices: list[list[tuple[bytes, str | None]]], limits: PackingLimits
) -> None:
    """Requests are as full as the limits allow: each ends only because the next does not fit."""
    columns = [Columns([d for d, _ in rows], [k for _, k in rows], None) for rows in slices]
    requests = list(Packer(limits, partition=0).pack(columns))

    for this, following in pairwise(requests):
        full = len(this.records) == limits.request_records
        assert full or this.size + following.records[0].size > limits.request_bytes
