"""A stored position whose records have expired while nobody read (F21, F22)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import pytest

from kinesis_ds.errors import DataLossError
from kinesis_ds.testing import KinesisServer, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, STREAM, numbered, outcomes, starts, subscribe_calls
from tests.support.micro_batches import MicroBatches

pytestmark = pytest.mark.fault


def read_three_then_lose_two(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """A checkpoint behind record 3; of 4 to 7, put while the query is down, 4 and 5 expire."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    kinesis.put(STREAM, *numbered(4, 7))
    kinesis.trim(STREAM, FIRST, kinesis.records(STREAM)[4].sequence_number)


def test_it_fails_by_default_and_says_what_to_do(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F21: shard, position and option are named; nothing is read, and nothing is tried for ever."""
    read_three_then_lose_two(kinesis, start_query)
    query = start_query(kinesis)
    before = len(subscribe_calls(kinesis))

    with pytest.raises(DataLossError) as caught:
        query.read_until(4)
    for said in (FIRST, STREAM, starts(subscribe_calls(kinesis))[-1][-56:], "failOnDataLoss=false"):
        assert said in str(caught.value)
    assert query.data == numbered(1, 3)
    assert outcomes(subscribe_calls(kinesis)[before:]) == {"InvalidArgumentException"}


def test_with_the_users_leave_it_goes_on_at_the_oldest_record(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: one warning, then all that is left, never 'now'; and the next restart is clean."""
    read_three_then_lose_two(kinesis, start_query)
    with caplog.at_level(logging.WARNING):
        query = start_query(kinesis, failOnDataLoss="false")
        assert query.read_until(5) == [*numbered(1, 3), *numbered(6, 7)]
    query.close()
    kinds = [start.partition(":")[0] for start in starts(subscribe_calls(kinesis))]
    assert kinds[-2:] == ["AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"]
    assert len([r for r in caplog.records if "is gone" in r.message]) == 1

    kinesis.put(STREAM, *numbered(8, 8))
    assert start_query(kinesis).read_until(6)[-1:] == numbered(8, 8)


@pytest.mark.parametrize("expired", ["refuse", "oldest"])
def test_nothing_lost_is_no_loss(
    serve: Serve, start_query: StartQuery, expired: Literal["refuse", "oldest"]
) -> None:
    """F21: the records up to the position have expired, those behind it are there."""
    kinesis = serve(Settings(expired_position=expired))
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.trim(STREAM, FIRST, kinesis.records(STREAM)[2].sequence_number)

    assert start_query(kinesis).read_until(5) == numbered(1, 5)


def logged_and_not_read(kinesis: KinesisServer, start_query: StartQuery, **options: str) -> None:
    """A checkpoint whose last batch holds records 4 to 7 and was not committed."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, **options)
    query.read_until(3)
    kinesis.put(STREAM, *numbered(4, 7))
    while query.step():
        pass
    query.run_until(lambda: len(query.rows) == 7, "all records")
    last = max(int(p.name) for p in (query.folder / "offsets").iterdir())
    for kind in ("commits", "out"):
        (query.folder / kind / str(last)).unlink()
    query.close()
    lost = 7 - len(query.rows)
    assert lost
    records = kinesis.records(STREAM)
    kinesis.trim(STREAM, FIRST, records[-2].sequence_number)


def test_a_repeated_batch_that_has_expired_fails_by_default(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F21: the task that is to read the batch again says so; the batch never ends short."""
    logged_and_not_read(kinesis, start_query)
    query = start_query(kinesis)

    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        query.read_until(7)
    assert len(query.rows) < 7


def test_a_repeated_batch_that_has_expired_gives_what_is_left(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: and the query goes on behind it."""
    logged_and_not_read(kinesis, start_query)
    query = start_query(kinesis, failOnDataLoss="false")
    before = query.data
    kinesis.put(STREAM, *numbered(8, 8))

    query.run_until(lambda: query.data[-1:] == numbered(8, 8), "record 8")
    assert query.data == [*before, *numbered(7, 8)]
    assert "is gone" in caplog.text


def test_a_shard_that_fell_out_of_the_stream_is_told(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F21: a closed shard, not read to its end, is listed no more when the query comes back."""
    read_three_then_lose_two(kinesis, start_query)
    kinesis.split(STREAM, FIRST)
    kinesis.forget_shard(STREAM, FIRST)

    with pytest.raises(DataLossError, match=f"{FIRST}.*no longer in the stream"):
        start_query(kinesis).read_until(4)


def test_a_shard_that_fell_out_of_the_stream_is_left_behind_with_the_users_leave(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F22: with a warning; its children are read from their oldest record, and are not 'now'."""
    read_three_then_lose_two(kinesis, start_query)
    kinesis.split(STREAM, FIRST)
    kinesis.put(STREAM, *numbered(8, 9))
    kinesis.forget_shard(STREAM, FIRST)

    query = start_query(kinesis, failOnDataLoss="false")
    assert query.read_until(5) == [*numbered(1, 3), *numbered(8, 9)]
    assert f"Shard {FIRST} of stream {STREAM} is in the checkpoint" in caplog.text


@pytest.mark.parametrize("leave", ["true", "false"])
def test_a_repeated_batch_of_a_shard_that_fell_out_of_the_stream(
    kinesis: KinesisServer, tmp_path: Path, start_query: StartQuery, leave: str
) -> None:
    """F21, F22: the batch went to the shard's end. It fails, or it is left behind."""
    kinesis.put(STREAM, *numbered(1, 3))
    kinesis.split(STREAM, FIRST)
    query = start_query(kinesis)
    query.run_until(lambda: len(query.rows) == 3, "the batch to the end")
    for kind in ("commits", "out"):
        for file in (tmp_path / kind).iterdir():
            if int(file.name) >= 1:
                file.unlink()
    for file in (tmp_path / "offsets").iterdir():
        if int(file.name) >= 2:
            file.unlink()
    query.close()
    kinesis.put(STREAM, *numbered(4, 5))
    kinesis.forget_shard(STREAM, FIRST)
    query = MicroBatches(
        {**kinesis.options(STREAM), "failOnDataLoss": leave}, tmp_path, kinesis.clock
    )
    try:
        if leave == "true":
            with pytest.raises(DataLossError, match=FIRST):
                query.read_until(1)
        else:
            assert query.read_until(2) == numbered(4, 5)
    finally:
        query.close()
