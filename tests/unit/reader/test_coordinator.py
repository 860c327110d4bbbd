"""The coordinator, as far as it needs no stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinesis_ds.errors import InternalError, OffsetError, StreamRecreatedError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.options.read import StreamChoice
from kinesis_ds.plan.offsets import InitialOffset, SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.source_stream import SourceStream
from kinesis_ds.reader.stream import KinesisStreamReader
from kinesis_ds.testing import ManualClock
from tests.support.builders import listing, shard

HOUR_MS = 3_600_000
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


def looked_up(info: StreamInfo, *, fail_on_data_loss: bool = True) -> SourceStream:
    options = replace(OPTIONS, fail_on_data_loss=fail_on_data_loss)
    listed = listing(shard("p", closed=True), shard("s", "p"))
    network: Any = None
    choice = StreamChoice(StreamId("orders"))
    return SourceStream(options, choice, info, listed, network, ManualClock())


CREATED_AGAIN = StreamInfo("orders", "arn:orders", 6, "ACTIVE", None)


def test_a_checkpoint_of_a_stream_created_again_is_refused() -> None:
    """The positions of a stream before are not continued."""
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        looked_up(CREATED_AGAIN).checked(BASE)


def test_with_the_users_leave_a_stream_created_again_is_read_from_its_oldest_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F22: never from now on."""
    found = looked_up(CREATED_AGAIN, fail_on_data_loss=False).checked(BASE)

    assert found == StreamOffset("orders", "arn:orders", 6, "consumer", {"p": TRIM_HORIZON})
    assert "created again" in caplog.text


def test_a_checkpoint_of_this_stream_is_accepted() -> None:
    """Same ARN, same creation."""
    info = StreamInfo("orders", "arn:orders", 5, "ACTIVE", None)
    assert looked_up(info).checked(BASE) is BASE


@pytest.mark.parametrize(
    ("ago_hours", "expected"),
    [
        (23, {"p": AtTimestamp(77 * HOUR_MS), "s": AtTimestamp(77 * HOUR_MS)}),
        (25, {"p": TRIM_HORIZON}),
    ],
)
def test_a_start_before_all_that_is_kept_is_the_oldest_record(
    ago_hours: int, expected: dict[str, Position]
) -> None:
    """A time older than the retention would look like a loss to the query when it comes back."""
    info = StreamInfo("orders", "arn:orders", 5, "ACTIVE", None, retention_hours=24)
    start = AtTimestamp(77 * HOUR_MS)

    found = looked_up(info).at_start("consumer", start, start.ms + ago_hours * HOUR_MS)
    assert found.shards == expected


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
