"""The rows of a task, for any rows and any limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.plan.stream import StreamId
from kinesis_ds.writer.rows import RowChecker
from kinesis_ds.writer.slices import RowSlice

STREAMS = ["orders", "clicks", "views"]
ROW = st.tuples(
    st.binary(max_size=60),
    st.none() | st.text(min_size=1, max_size=12),
    st.none() | st.sampled_from(STREAMS),
)


class Limits:
    def record_bytes(self, stream: StreamId) -> int:
        return 100

    current_record_bytes = record_bytes


@given(
    slices=st.lists(st.lists(ROW, max_size=10), max_size=5),
    routed=st.booleans(),
    piece_records=st.integers(1, 7),
    piece_bytes=st.integers(1, 200),
)
def test_every_row_is_in_one_piece_of_its_stream_in_order(
    slices: list[list[tuple[bytes, str | None, str | None]]],
    routed: bool,
    piece_records: int,
    piece_bytes: int,
) -> None:
    """With its number, key and size; and no piece is larger than it may be."""
    default = StreamId("orders")
    columns = [
        RowSlice(
            [data for data, _, _ in rows],
            [key for _, key, _ in rows],
            None,
            [stream for _, _, stream in rows] if routed else None,
        )
        for rows in slices
    ]
    reader = RowChecker(Limits(), 0, default, piece_records=piece_records, piece_bytes=piece_bytes)
    pieces = list(reader.pieces(columns))

    rows = [row for part in slices for row in part]
    for stream in STREAMS:
        wanted = [
            (number, data)
            for number, (data, _, named) in enumerate(rows)
            if ((named or "orders") if routed else "orders") == stream
        ]
        got = [r for piece in pieces if piece.stream.name == stream for r in piece.block.records]
        assert [(record.row, record.data) for record in got] == wanted
        for record in got:
            key = rows[record.row][1]
            assert key is None or record.partition_key == key
            assert record.size == len(record.data) + len(record.partition_key.encode())
    for piece in pieces:
        assert 1 <= len(piece.block) <= piece_records
        assert piece.block.size == sum(record.size for record in piece.block.records)
        assert piece.block.size <= piece_bytes or len(piece.block) == 1
