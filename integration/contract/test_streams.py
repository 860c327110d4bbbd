"""The life of a stream: CREATING, ACTIVE, DELETING, and gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from integration.contract.stream import HASH_KEYS, Stream, hash_range, refused
from integration.contract.targets import Target, new_name


@pytest.fixture(scope="module")
def shared(target: Target) -> Iterator[Stream]:
    """A stream with two shards, for tests that only look at it."""
    with target.stream(2) as made:
        yield made


@pytest.fixture(scope="module")
def on_demand(target: Target) -> Iterator[Stream]:
    """A stream whose shards are the business of Kinesis."""
    with target.stream(None) as made:
        yield made


def wait_until_not_found(target: Target, ask: Callable[[], object]) -> None:
    def not_found() -> bool:
        try:
            ask()
        except target.client.exceptions.ResourceNotFoundException:
            return True
        return False

    target.wait_until(not_found, what="the end of what was deleted")


def test_new_stream_is_creating_then_active(target: Target) -> None:
    """CreateStream returns at once with the stream CREATING; it is ACTIVE later."""
    made = Stream(target, new_name())
    target.client.create_stream(StreamName=made.name, ShardCount=1)
    try:
        assert made.summary()["StreamStatus"] == "CREATING"
        made.wait_until_active()
    finally:
        target.delete(made.name)


def test_deleted_stream_is_deleting_then_not_found(target: Target, stream: Stream) -> None:
    """DeleteStream returns at once with the stream DELETING; later it is not found."""
    target.client.delete_stream(StreamName=stream.name)
    assert stream.summary()["StreamStatus"] == "DELETING"
    wait_until_not_found(target, stream.summary)


def test_name_in_use_is_refused(target: Target, shared: Stream) -> None:
    """A second stream of the same name gets ResourceInUseException."""
    with refused("ResourceInUseException"):
        target.client.create_stream(StreamName=shared.name, ShardCount=1)


def test_summary_describes_the_stream(shared: Stream) -> None:
    """A summary has the ARN, the open shards, 24 hours of retention, and the mode."""
    summary = shared.summary()
    assert summary["StreamName"] == shared.name
    assert summary["StreamARN"].endswith(f":stream/{shared.name}")
    assert summary["OpenShardCount"] == 2
    assert summary["RetentionPeriodHours"] == 24
    assert summary["StreamModeDetails"]["StreamMode"] == "PROVISIONED"


def test_summary_tells_the_record_size_limit(shared: Stream) -> None:
    """A record may have 1024 KiB unless the stream says otherwise, and the summary says which."""
    assert shared.summary()["MaxRecordSizeInKiB"] == 1024


def test_summary_counts_the_consumers(shared: Stream) -> None:
    """ConsumerCount is the number of registered consumers."""
    shared.consumer("counted")
    assert shared.summary()["ConsumerCount"] == 1


def test_arn_stands_for_the_name(target: Target, shared: Stream) -> None:
    """StreamARN names a stream as well as StreamName does."""
    described = target.client.describe_stream_summary(StreamARN=shared.arn)
    assert described["StreamDescriptionSummary"]["StreamName"] == shared.name


def test_stream_with_consumers_is_deleted_on_demand_only(target: Target, stream: Stream) -> None:
    """DeleteStream gets ResourceInUseException, or with EnforceConsumerDeletion takes all away."""
    consumer = stream.consumer("one")
    with refused("ResourceInUseException"):
        target.client.delete_stream(StreamName=stream.name)
    target.client.delete_stream(StreamName=stream.name, EnforceConsumerDeletion=True)
    wait_until_not_found(target, lambda: stream.consumer_status(consumer))


def test_streams_are_listed_after_a_name(target: Target, shared: Stream, stream: Stream) -> None:
    """ListStreams goes on behind ExclusiveStartStreamName and says whether there are more."""
    first, second = sorted([shared.name, stream.name])
    page = target.client.list_streams(Limit=1)
    assert (len(page["StreamNames"]), page["HasMoreStreams"]) == (1, True)
    page = target.client.list_streams(ExclusiveStartStreamName=first)
    found = page["StreamNames"]
    while page["HasMoreStreams"]:
        page = target.client.list_streams(ExclusiveStartStreamName=found[-1])
        found += page["StreamNames"]
    assert second in found
    assert first not in found


def test_on_demand_stream_begins_with_four_shards(on_demand: Stream) -> None:
    """An on-demand stream has 4 MB/s of write throughput at first: four shards."""
    ranges = [hash_range(shard) for shard in on_demand.open_shards()]
    assert len(ranges) == 4
    assert (ranges[0][0], ranges[-1][1]) == (0, HASH_KEYS - 1)


def test_on_demand_stream_is_not_resharded_by_hand(on_demand: Stream) -> None:
    """UpdateShardCount is for provisioned streams: others get ValidationException."""
    with refused("ValidationException"):
        on_demand.client.update_shard_count(
            StreamName=on_demand.name,
            TargetShardCount=2 * len(on_demand.open_shards()),
            ScalingType="UNIFORM_SCALING",
        )
