"""Where a query starts, for every form in which users say it."""

from __future__ import annotations

import json
import logging

import pytest

from kinesis_ds.errors import OptionError
from kinesis_ds.plan.offsets import encode_offset
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.polling import eventually


def numbers(kinesis: KinesisServer, shard_id: str = FIRST) -> list[str]:
    """Sequence numbers of a shard's records, oldest first."""
    return [str(r.sequence_number) for r in kinesis.records(STREAM) if r.shard_id == shard_id]


@pytest.mark.parametrize(
    ("kind", "first"), [("AT", 3), ("AFTER", 4)], ids=["at a record", "behind a record"]
)
@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_a_sequence_number(
    kinesis: KinesisServer, start_query: StartQuery, kind: str, first: int, mode: str
) -> None:
    """AT reads the record itself, AFTER what follows; other shards start at their oldest record."""
    kinesis.put(STREAM, *numbered(1, 6))
    position = {FIRST: f"{kind}:{numbers(kinesis)[2]}"}
    query = start_query(kinesis, initialPosition=json.dumps(position), consumerMode=mode)
    assert query.read_until(7 - first) == numbered(first, 6)


def test_each_shard_its_own(serve: Serve, start_query: StartQuery) -> None:
    """Shards that are not named start at their oldest record."""
    kinesis = serve(shards=3)
    shards = [s["ShardId"] for s in kinesis.shards(STREAM)]
    for i, shard in enumerate(shards):
        put_to(kinesis, shard, *numbered(10 * i + 1, 10 * i + 5))
    position = {
        shards[0]: f"AFTER:{numbers(kinesis, shards[0])[3]}",
        shards[1]: "LATEST",
    }
    query = start_query(kinesis, initialPosition=json.dumps(position))
    query.step()
    put_to(kinesis, shards[1], b"19")
    query.read_until(7)
    assert sorted(query.data, key=int) == [b"5", b"19", *numbered(21, 25)]


def test_the_offset_that_spark_printed(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """A new query goes on where another one stood."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    query.read_until(3)
    printed = json.dumps(encode_offset(query.last_offset()))
    query.close()
    kinesis.put(STREAM, *numbered(4, 6))
    for kind in ("offsets", "commits", "out"):
        for file in (query.folder / kind).iterdir():
            file.unlink()

    again = start_query(kinesis, initialPosition=printed)
    assert again.read_until(3) == numbered(4, 6)


def test_what_the_named_shard_came_from_is_done(serve: Serve, start_query: StartQuery) -> None:
    """Whoever names a child has read its parents; the other child starts at its oldest record."""
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 5))
    kinesis.split(STREAM, FIRST)
    child, other = [s["ShardId"] for s in kinesis.shards(STREAM)][1:]
    put_to(kinesis, child, *numbered(11, 15))
    put_to(kinesis, other, *numbered(21, 25))
    position = {child: f"AFTER:{numbers(kinesis, child)[2]}"}
    query = start_query(kinesis, initialPosition=json.dumps(position))
    query.read_until(7)
    assert sorted(query.data, key=int) == [b"14", b"15", *numbered(21, 25)]


def test_a_time(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """The first record that arrived then or later."""
    kinesis.put(STREAM, *numbered(1, 3))
    before = kinesis.records(STREAM)[-1].arrived
    eventually(lambda: kinesis.clock.wall() > before + 0.01, "a later moment")
    kinesis.put(STREAM, *numbered(4, 6))
    later = round(kinesis.records(STREAM)[3].arrived * 1000)
    query = start_query(kinesis, initialPosition=f"at_timestamp {later}")
    assert query.read_until(3) == numbered(4, 6)


def test_an_unknown_shard_is_named(serve: Serve, start_query: StartQuery) -> None:
    """With the shards that there are: it may be a position of another stream."""
    kinesis = serve(shards=2)
    position = {"shardId-000000000077": "TRIM_HORIZON"}
    with pytest.raises(OptionError) as caught:
        start_query(kinesis, initialPosition=json.dumps(position)).step()
    assert "shardId-000000000077" in str(caught.value)
    assert SECOND in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({"initialPosition": "latest"}, "mode=efo consumer=mine"),
        ({"consumerName": "new"}, "mode=efo consumer=new; if the checkpoint's consumer mine was "),
        ({"consumerMode": "polling"}, "mode=polling consumer=none; if the checkpoint's consumer "),
    ],
    ids=["position", "consumer", "mode"],
)
def test_what_the_checkpoint_knows_better_is_told(
    kinesis: KinesisServer,
    start_query: StartQuery,
    caplog: pytest.LogCaptureFixture,
    changed: dict[str, str],
    holds: str,
) -> None:
    """In one line, once; a query that begins says nothing of the kind."""
    caplog.set_level(logging.INFO, "kinesis_ds.reader")

    def told() -> list[str]:
        return [m for m in caplog.messages if "going on from the checkpoint" in m]

    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, consumerName="mine")
    query.read_until(2)
    query.close()
    assert told() == []

    kinesis.put(STREAM, *numbered(3, 4))
    options = {"consumerName": "mine", **changed}
    if "consumerMode" in changed:
        del options["consumerName"]
    query = start_query(kinesis, **options)
    assert query.read_until(4) == numbered(1, 4)
    (line,) = told()
    assert "not from initialPosition stream=orders shards=1 " + holds in line
