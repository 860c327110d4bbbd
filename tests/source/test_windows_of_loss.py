"""Windows in which another connector loses or repeats records, and this one does not (W2 to W6).

Their numbers are those of docs/reference/comparison.md, which says what happens elsewhere. Those
that take a reshard are in test_windows_of_loss_in_resharding.py.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.reader.task import read_planned
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.micro_batches import MicroBatches, Row, read_rows
from tests.support.polling import eventually

if TYPE_CHECKING:
    import contextlib

    from kinesis_ds.plan.planned_range import PlannedRange


@pytest.fixture(params=["efo", "polling"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def shards(query: MicroBatches) -> dict[str, dict[str, Any]]:
    """What the source says of each shard that it reads."""
    found: dict[str, dict[str, Any]] = query.coordinator.statistics().get("shards", {})
    return found


def received(query: MicroBatches) -> int:
    """Records received, whether they are in a batch or not."""
    return sum(int(shard["records"]) for shard in shards(query).values())


def hear(query: MicroBatches, shard_id: str, times: int = 2) -> None:
    """Wait until Kinesis has said so often again that there is nothing new in the shard."""
    query.run_until(lambda: shard_id in shards(query), f"{shard_id} is read")
    heard = shards(query)[shard_id]["events"]
    query.run_until(
        lambda: shards(query)[shard_id]["events"] >= heard + times, f"{shard_id} is heard of"
    )


def uncommit_the_last_batch(query: MicroBatches) -> None:
    """As when the query died behind the batch's output and before its commit."""
    last = max(int(p.name) for p in (query.folder / "offsets").iterdir())
    (query.folder / "commits" / str(last)).unlink()


# --- W2: a batch without records at the tip is checkpointed as "latest" -------------------------


def test_w2_what_arrives_between_batches_is_read_in_a_shard_that_was_silent_so_far(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """W2: the query starts at latest, one shard has had no record since, and batches of the other
    take its position along. Then it has one: between two batches, or while the query is down.
    """
    kinesis = serve(shards=2)
    query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
    query.step()
    for n in range(1, 7):
        hear(query, SECOND)
        put_to(kinesis, FIRST, b"loud %d" % n)
        query.read_until(2 * n - 1)
        if n % 2:
            query.close()
            put_to(kinesis, SECOND, b"%d" % n)
            query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
        else:
            put_to(kinesis, SECOND, b"%d" % n)
        query.read_until(2 * n)

    assert [row.data for row in query.rows if row.shard == SECOND] == numbered(1, 6)
    assert len(query.data) == 12
    for offset in (query.folder / "offsets").iterdir():
        assert "LATEST" not in offset.read_text()


def test_w2_a_query_that_has_read_nothing_yet_wakes_up(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """W2: all shards are silent since the start at latest. No batch is made for that, a record that
    comes is read, and so is one that came while the query was down.
    """
    kinesis = serve(shards=2)
    query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
    query.step()
    hear(query, FIRST, 5)
    assert len(query.batches()) == 1
    query.close()

    put_to(kinesis, FIRST, b"while it was down")
    query = start_query(kinesis, consumerMode=mode, initialPosition="latest")
    query.read_until(1)
    hear(query, SECOND, 5)
    put_to(kinesis, SECOND, b"after a silence")
    assert query.read_until(2) == [b"while it was down", b"after a silence"]


# --- W3: the position counts what was received and not yet in a batch ---------------------------


@pytest.mark.parametrize("rerun", [False, True])
def test_w3_what_was_received_and_is_in_no_batch_is_read_after_a_restart(
    kinesis: KinesisServer, start_query: StartQuery, mode: str, rerun: bool
) -> None:
    """W3: at each end of the query its buffer holds records that no batch had; the batch that was
    under way is done again, or not.
    """
    for run in range(5):
        kinesis.put(STREAM, *numbered(run * 10 + 1, run * 10 + 10))
        query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="3")
        query.run_until(lambda q=query: received(q) >= 4, "more is received than a batch takes")  # type: ignore[misc]
        assert len(query.data) < (run + 1) * 10
        if rerun:
            uncommit_the_last_batch(query)
        query.close()

    query = start_query(kinesis, consumerMode=mode)
    assert query.read_until(50) == numbered(1, 50)
    assert not query.step()


# --- W4 and W5: the same range, computed more than once -----------------------------------------


class Attempts(MicroBatches):
    """Every range is read by two whole attempts, and by one before them that breaks off; between
    them, the stream goes on.

    Attributes:
        between: Called between two attempts.
        winner: Which of the whole attempts Spark keeps.
    """

    winner = 0

    def between(self) -> None:
        """Nothing, unless told."""

    def _read(self, batch: int, planned: list[Any]) -> list[list[str | None]]:
        found = []
        for each in planned:
            broken_off = read_planned(each, self.options.aws)
            next(iter(broken_off), None)
            broken_off.close()  # type: ignore[attr-defined]
            attempts = []
            for _ in range(2):
                self.between()
                attempts.append([row.to_json() for row in read_rows(each, self.options)])
            assert attempts[0] == attempts[1], f"the attempts of batch {batch} differ"
            found += attempts[self.winner]
        return found


@pytest.mark.parametrize("winner", [0, 1], ids=["first", "last"])
def test_w4_the_next_batch_begins_where_this_one_was_to_end_whichever_attempt_was_kept(
    kinesis: KinesisServer,
    ending: contextlib.ExitStack,
    tmp_path: Path,
    mode: str,
    winner: int,
) -> None:
    """W4: one attempt of a task breaks off, two finish, and each finds more in the stream than the
    one before it. Where the batch ends does not come from them.
    """
    written = 0

    def put() -> None:
        nonlocal written
        if written < 40:
            kinesis.put(STREAM, *numbered(written + 1, written + 2))
            written += 2

    def go_on() -> None:
        put()
        eventually(lambda: received(query) >= written, "the agent holds more than before")

    put()
    query = Attempts({**kinesis.options(STREAM), "consumerMode": mode}, tmp_path, kinesis.clock)
    ending.callback(query.close)
    query.winner = winner
    query.between = go_on  # type: ignore[method-assign]

    assert query.read_until(40) == numbered(1, 40)
    assert len([rows for rows in query.batches() if rows]) > 1


def ordered(planned: list[PlannedRange], query: MicroBatches) -> list[list[Row]]:
    """What each task of a batch returns."""
    return [read_rows(each, query.options) for each in planned]


def test_w5_a_batch_computed_again_has_the_same_records(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """W5: a second action, a speculative copy beside the first, a copy on a machine that does not
    reach the agent, and a lost block that is computed again when the query has long moved on.
    """
    kinesis = serve(shards=2)
    for n, shard in enumerate((FIRST, SECOND)):
        put_to(kinesis, shard, *numbered(100 * n + 1, 100 * n + 20))
    query = start_query(kinesis, consumerMode=mode)
    query.step()
    start = query.last_offset()
    query.coordinator.latest(start)
    eventually(lambda: received(query) == 40, "all records received")
    end = query.coordinator.latest(start)
    planned = query.coordinator.plan(start, end)
    assert all(each.agent is not None for each in planned)
    first = ordered(planned, query)
    assert sum(map(len, first)) == 40

    def more() -> None:
        for shard in (FIRST, SECOND):
            put_to(kinesis, shard, b"later")

    more()
    eventually(lambda: received(query) == 42, "the agent holds more than before")
    assert ordered(planned, query) == first
    with ThreadPoolExecutor(2) as pool:
        together = threading.Barrier(2)

        def copy() -> list[list[Row]]:
            together.wait(30)
            return ordered(planned, query)

        copies = [pool.submit(copy) for _ in range(2)]
        assert [copy.result() for copy in copies] == [first, first]
    elsewhere = [replace(each, agent=None) for each in planned]
    assert ordered(elsewhere, query) == first

    query.read_until(42)
    more()
    query.read_until(44)
    assert ordered(planned, query) == first


# --- W6: positions are kept where other queries find them ---------------------------------------


def test_w6_two_queries_on_one_stream_share_nothing(
    kinesis: KinesisServer, start_query: StartQuery, tmp_path: Path, mode: str
) -> None:
    """W6: their batches have the same numbers and end elsewhere; one of them is started again, and
    repeats a batch.
    """
    options = {**kinesis.options(STREAM), "consumerMode": mode}

    def other() -> MicroBatches:
        folder = tmp_path / "other"
        return MicroBatches({**options, "maxRecordsPerTrigger": "3"}, folder, kinesis.clock)

    kinesis.put(STREAM, *numbered(1, 20))
    one, two = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="7"), other()
    try:
        while len(one.data) < 14 or len(two.data) < 9:
            one.step()
            two.step()
        uncommit_the_last_batch(two)
        two.close()
        kinesis.put(STREAM, *numbered(21, 30))
        assert one.read_until(30) == numbered(1, 30)
        two = other()
        assert two.read_until(30) == numbered(1, 30)
        assert two.replayed == 1
    finally:
        two.close()
    assert one.read_until(30) == numbered(1, 30)


def test_w6_a_new_checkpoint_is_a_new_query(
    kinesis: KinesisServer, ending: contextlib.ExitStack, tmp_path: Path, mode: str
) -> None:
    """W6: with the options of the old query, its consumer's name too, it starts where it is told to
    start. The old one goes on from its own checkpoint.
    """

    def run(folder: str, **more: str) -> MicroBatches:
        options = {**kinesis.options(STREAM), "consumerMode": mode, **more}
        if mode == "efo":
            options["consumerName"] = "orders-to-lake"
        query = MicroBatches(options, tmp_path / folder, kinesis.clock)
        ending.callback(query.close)
        return query

    kinesis.put(STREAM, *numbered(1, 5))
    old = run("old", initialPosition="latest")
    old.step()
    kinesis.put(STREAM, *numbered(6, 10))
    assert old.read_until(5) == numbered(6, 10)
    old.close()

    new = run("new", initialPosition="trim_horizon")
    assert new.read_until(10) == numbered(1, 10)
    new.close()
    later = run("later", initialPosition="latest")
    later.step()
    kinesis.put(STREAM, *numbered(11, 12))
    assert later.read_until(2) == numbered(11, 12)
    later.close()
    assert run("old", initialPosition="latest").read_until(7) == numbered(6, 12)
