"""The coordinator, as far as it needs no stream."""

from __future__ import annotations

import pytest

from kinesis_ds.aws.streams import StreamInfo
from kinesis_ds.errors import InternalError, OffsetError
from kinesis_ds.offsets import InitialOffset, SourceOffset, StreamOffset, encode_offset
from kinesis_ds.options import parse_read_options
from kinesis_ds.position import After
from kinesis_ds.reader.coordinator import Coordinator, _check_identity
from kinesis_ds.reader.stream import KinesisStreamReader
from kinesis_ds.testing import ManualClock

OPTIONS = parse_read_options({"streamName": "orders"})
BASE = StreamOffset("orders", "arn:orders", 5, "consumer", {"s": After("1")})


def coordinator() -> Coordinator:
    return Coordinator(OPTIONS, ManualClock())


def test_the_batch_that_pins_the_start_holds_nothing() -> None:
    """Start positions and consumer are in the checkpoint before a record is read."""
    assert coordinator().plan(InitialOffset(), SourceOffset({BASE.arn: BASE})) == []
    assert coordinator().plan(InitialOffset(), InitialOffset()) == []


def test_a_commit_before_anything_was_read_is_without_effect() -> None:
    """Spark may commit a batch of the run before."""
    coordinator().commit(SourceOffset({BASE.arn: BASE}))
    coordinator().commit(InitialOffset())


def test_closing_what_was_never_opened_is_fine() -> None:
    """Close is idempotent and needs no connection (F15)."""
    closing = coordinator()
    closing.close()
    closing.close()


def test_statistics_before_anything_name_the_stream() -> None:
    """Counters may be asked for at any time."""
    assert coordinator().statistics() == {"kind": "source", "stream": "orders"}


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            StreamInfo("other", "arn:other", 5, "ACTIVE", None),
            "belongs to the stream arn:orders, and the query reads arn:other",
        ),
        (StreamInfo("orders", "arn:orders", 6, "ACTIVE", None), "deleted and created again"),
    ],
)
def test_a_checkpoint_of_another_stream_is_refused(info: StreamInfo, said: str) -> None:
    """Neither another stream's positions nor those of a stream before are continued."""
    with pytest.raises(OffsetError, match=said):
        _check_identity(BASE, info)


def test_a_checkpoint_of_this_stream_is_accepted() -> None:
    """Same ARN, same creation."""
    _check_identity(BASE, StreamInfo("orders", "arn:orders", 5, "ACTIVE", None))


def test_the_readers_initial_offset_is_constant_and_needs_no_network() -> None:
    """PySpark asks for it whenever it likes."""
    reader = KinesisStreamReader(OPTIONS)

    assert reader.initialOffset() == encode_offset(InitialOffset()) == reader.initialOffset()
    reader.stop()
    reader.stop()


def test_a_partition_of_another_source_is_refused() -> None:
    """What is not a range of a shard cannot be read."""
    with pytest.raises(InternalError, match="is not a range"):
        KinesisStreamReader(OPTIONS).read(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call", [lambda r: r.partitions({"v": 9}, {"v": 9}), lambda r: r.commit({"v": 9})]
)
def test_errors_reach_spark_without_our_frames(call: object) -> None:
    """The user sees the sentence that matters, not the way to it."""
    with pytest.raises(OffsetError) as caught:
        call(KinesisStreamReader(OPTIONS))  # type: ignore[operator]

    assert caught.value.__cause__ is None
    assert "offset format 9" in str(caught.value)
