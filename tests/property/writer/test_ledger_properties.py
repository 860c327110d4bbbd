"""The sink's entries: what is written is read the same, and of anything else nothing is made up."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.writer.ledger_format import Entry, EntryError, decode_entry, encode_entry
from kinesis_ds.writer.results import ShardWrites
from tests.support.hostile import ANYTHING, FUZZ, damaged, object_of

NUMBERS = st.integers(0, 2**128).map(str)
COUNTS = st.integers(0, 2**63)
WRITES = st.builds(ShardWrites, st.text(), st.text(), NUMBERS, NUMBERS, COUNTS, COUNTS)
ENTRIES = st.builds(
    Entry,
    st.text(),
    COUNTS,
    st.text(),
    st.lists(WRITES, unique_by=lambda w: (w.stream, w.shard_id)).map(
        lambda writes: tuple(sorted(writes, key=lambda w: (w.stream, w.shard_id)))
    ),
    COUNTS,
)
TEXTS = object_of(
    v=st.just(b"1"),
    query=st.just(b'"q"'),
    batch=st.just(b"3"),
    target=st.just(b'"t"'),
    offsets=st.just(b'"h"'),
    skipped=st.just(b"0"),
    streams=st.sampled_from(
        [b"{}", b'{"s":{"x":{"first":"1","last":"2","records":1,"bytes":1}}}', b'{"s":{}}']
    ),
)


@given(ENTRIES, st.text())
def test_an_entry_is_read_as_it_was_written(entry: Entry, offsets: str) -> None:
    """Whatever the names and numbers."""
    assert decode_entry(encode_entry(entry, offsets)) == (entry, offsets)


@FUZZ
@given(TEXTS | damaged(TEXTS) | ANYTHING | st.binary(max_size=60))
def test_a_file_of_any_bytes_is_read_or_refused(text: bytes) -> None:
    """What is read is what the file says."""
    try:
        entry, offsets = decode_entry(text)
    except EntryError:
        return
    raw = json.loads(text)
    assert (raw["query"], raw["batch"], raw["target"], raw["offsets"]) == (
        entry.query_id, entry.batch_id, entry.target, offsets,
    )  # fmt: skip
