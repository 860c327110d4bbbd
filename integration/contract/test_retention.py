"""How long records stay, and what is left of a shard when they are gone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from integration.contract.stream import INVALID, Stream, hash_range, refused
from integration.contract.targets import Target

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture(scope="module")
def shared(target: Target) -> Iterator[Stream]:
    """A stream for tests that leave no time to pass."""
    with target.stream() as made:
        yield made


def set_retention(stream: Stream, hours: int) -> None:
    now = stream.summary()["RetentionPeriodHours"]
    change = (
        stream.client.increase_stream_retention_period
        if hours > now
        else stream.client.decrease_stream_retention_period
    )
    change(StreamName=stream.name, RetentionPeriodHours=hours)
    stream.wait_until_active()


def test_retention_is_raised_and_lowered(shared: Stream) -> None:
    """The period can be made longer, and shorter again, down to 24 hours."""
    for hours in (48, 8760, 24):
        set_retention(shared, hours)
        assert shared.summary()["RetentionPeriodHours"] == hours


@pytest.mark.parametrize("hours", [23, 0], ids=["23", "0"])
def test_retention_below_a_day_is_refused(shared: Stream, hours: int) -> None:
    """The minimum is 24 hours."""
    with refused(*INVALID):
        shared.client.decrease_stream_retention_period(
            StreamName=shared.name, RetentionPeriodHours=hours
        )


def test_retention_over_a_year_is_refused(shared: Stream) -> None:
    """The maximum is 8760 hours."""
    with refused(*INVALID):
        shared.client.increase_stream_retention_period(
            StreamName=shared.name, RetentionPeriodHours=8761
        )


def test_increase_does_not_decrease(shared: Stream) -> None:
    """IncreaseStreamRetentionPeriod takes no period that is shorter than the one there is."""
    set_retention(shared, 72)
    with refused(*INVALID):
        shared.client.increase_stream_retention_period(
            StreamName=shared.name, RetentionPeriodHours=48
        )
    set_retention(shared, 24)


def test_decrease_does_not_increase(shared: Stream) -> None:
    """DecreaseStreamRetentionPeriod takes no period that is longer than the one there is."""
    with refused(*INVALID):
        shared.client.decrease_stream_retention_period(
            StreamName=shared.name, RetentionPeriodHours=48
        )


@pytest.mark.takes(DAY)
def test_records_are_gone_after_the_retention_period(target: Target, stream: Stream) -> None:
    """TRIM_HORIZON, and a time long ago, are then the oldest record that is left."""
    shard = stream.put(b"old")["ShardId"]
    target.pass_time(DAY - HOUR)
    stream.put(b"new")
    assert stream.read_from(shard) == [b"old", b"new"]
    target.pass_time(HOUR + 60)
    assert stream.read_from(shard) == [b"new"]
    long_ago = datetime.datetime(2014, 1, 1, tzinfo=datetime.timezone.utc)
    assert stream.read_from(shard, "AT_TIMESTAMP", Timestamp=long_ago) == [b"new"]


@pytest.mark.takes(DAY)
def test_a_longer_period_keeps_records(target: Target, stream: Stream) -> None:
    """Records that were there when the period was raised stay for as long as it says."""
    shard = stream.put(b"kept")["ShardId"]
    set_retention(stream, 48)
    target.pass_time(DAY + HOUR)
    assert stream.read_from(shard) == [b"kept"]
    target.pass_time(DAY)
    assert stream.read_from(shard) == []


@pytest.mark.takes(DAY)
def test_a_shorter_period_takes_records_away(target: Target, stream: Stream) -> None:
    """Records that are older than the new period cannot be read any more."""
    set_retention(stream, 48)
    shard = stream.put(b"old")["ShardId"]
    target.pass_time(DAY + HOUR)
    assert stream.read_from(shard) == [b"old"]
    set_retention(stream, 24)
    target.pass_time(60)
    assert stream.read_from(shard) == []


@pytest.mark.takes(DAY)
def test_raising_the_period_does_not_bring_records_back(target: Target, stream: Stream) -> None:
    """What was older than the period before stays inaccessible."""
    shard = stream.put(b"old")["ShardId"]
    target.pass_time(DAY + HOUR)
    set_retention(stream, 48)
    assert stream.read_from(shard) == []


@pytest.mark.takes(DAY)
def test_expired_shard_is_not_listed(target: Target, stream: Stream) -> None:
    """A closed shard is not listed any more when all that it had has expired."""
    (parent,) = stream.open_shards()
    stream.put(hash_key=hash_range(parent)[0])
    children = stream.split(parent)
    assert parent["ShardId"] in {shard["ShardId"] for shard in stream.shards()}
    target.pass_time(DAY + HOUR)
    assert {shard["ShardId"] for shard in stream.shards()} == {c["ShardId"] for c in children}


@pytest.mark.takes(DAY)
def test_trim_horizon_filter_leaves_out_the_expired(target: Target, stream: Stream) -> None:
    """AT_TRIM_HORIZON gives the children once their parent is out of the retention period."""
    (parent,) = stream.open_shards()
    children = {child["ShardId"] for child in stream.split(parent)}
    target.pass_time(DAY + HOUR)
    oldest = stream.shards(ShardFilter={"Type": "AT_TRIM_HORIZON"})
    assert {shard["ShardId"] for shard in oldest} == children
