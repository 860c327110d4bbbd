"""The proof: whatever happens, a batch is the same rows each time that it is read.

Every batch of a run is read by a first run, by a retry, by a second action over the same plan, by a
speculative copy in another process at the same time, from an agent that breaks off, from Kinesis,
after it was planned again, as a straggler when it has been committed, and when the run is over from
nothing but the offsets. All of them must be the same (``tests/support/replay.py``), and all batches
together must hold every record exactly once.

The schedules are drawn by seeds. ``REPLAY_FIRST`` and ``REPLAY_SEEDS`` set the first and how many
the soak runs; a seed that failed is in its output, and can be run alone with them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from kinesis_ds.testing import CloseStream, Cut, Fault, KinesisServer, Repeat, Settings
from tests.fault.conftest import Serve
from tests.support.agents import FIRST, STREAM
from tests.support.fast import fast_network
from tests.support.polling import eventually
from tests.support.replay import Proof, Run, hurry

RETURNS = "returns"
BOTH = (STREAM, RETURNS)
SEEDS = (1, pytest.param(2, marks=pytest.mark.long))

# Short lives: subscriptions are renewed, and events small, so that ranges are of many pieces.
SETTINGS = Settings(
    subscription_life_s=40.0, event_bytes=2_000, stretch_s=300.0, enforce_limits=False
)

# A server that sends an event twice, and connections that break at and inside of events.
FAULTS = (
    Fault(Repeat(), event=1),
    Fault(Cut(byte=50), event=2),
    Fault(CloseStream(), event=3),
)

TRIGGERS = ("processing", "processing", "processing", "available now", "once")
LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxRecordsPerTrigger": "9"},
    {"maxBytesPerTrigger": "150b"},
    {"maxRecordsPerTrigger": "30", "maxBytesPerTrigger": "100b"},
)
DEATHS = ("offsets", "planned", "out", "commits", None)
WAYS = (
    "speculative copy",
    "retry",
    "second action",
    "unpickled",
    "agent gone",
    "agent breaks off",
    "from Kinesis",
    "planned again",
    "run again",
    "straggler",
    "planned later",
    "after the run",
)


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """A process of its own, which knows of a task what is shipped to it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), hurry) as pool:
        yield pool


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of this process."""
    hurry(monkeypatch.setattr)


@pytest.fixture(params=["efo", "polling"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class MakeRun(Protocol):
    def __call__(
        self, seed: int = 0, *, shards: int = 1, thorough: bool = True, **options: str
    ) -> DrawnRun: ...


@pytest.fixture
def make_run(
    serve: Serve, ending: contextlib.ExitStack, tmp_path: Path, executor: Executor, mode: str
) -> MakeRun:
    """Starts a double with two streams; queries over them are in one proof."""

    def make(seed: int = 0, *, shards: int = 1, thorough: bool = True, **options: str) -> DrawnRun:
        kinesis = serve(SETTINGS, shards=shards)
        kinesis.create_stream(RETURNS, 1)
        proof = Proof(executor, thorough)
        options = {"streamName": ",".join(BOTH), "consumerMode": mode, **options}
        options = {**kinesis.options(STREAM), **options}
        return DrawnRun(kinesis, seed, options, tmp_path / str(seed), proof)

    return make


class DrawnRun(Run):
    """A run over the double, of which every choice can be drawn."""

    def __init__(
        self,
        kinesis: KinesisServer,
        seed: int,
        options: dict[str, str],
        folder: Path,
        proof: Proof,
    ) -> None:
        super().__init__(kinesis, seed, options, folder, proof, kinesis.clock, fast_network)
        self.kinesis = kinesis

    # --- what is drawn ----------------------------------------------------------------------------

    def write(self) -> None:
        """A little of everything, and at least one record that will be read."""
        rng, written = self.rng, self.written
        for stream in self.streams:
            written.plain(stream, rng.randint(1, 25))
            if rng.random() < 0.5:
                written.together(stream, rng.randint(1, 12), misplaced=rng.choice([0, 0.3, 1]))
            if rng.random() < 0.1:
                written.plain(stream, 3, size=300_000)
            written.plain(stream, rng.randint(1, 5))

    def reshard(self) -> None:
        """A split, a merge, or a new count of shards."""
        stream = self.rng.choice(self.streams)
        here = sorted(
            (int(s["HashKeyRange"]["StartingHashKey"]), s["ShardId"])
            for s in self.kinesis.shards(stream)
            if "EndingSequenceNumber" not in s["SequenceNumberRange"]
        )
        shards = [shard for _, shard in here]
        how = self.rng.choice(["split", "merge", "scale"])
        if how == "split" and len(shards) < 4:
            self.kinesis.split(stream, self.rng.choice(shards))
        elif how == "merge" and len(shards) > 1:
            at = self.rng.randrange(len(shards) - 1)
            self.kinesis.merge(stream, shards[at], shards[at + 1])
        elif how == "scale":
            others = [n for n in range(1, 5) if n != len(shards) and len(shards) <= 2 * n]
            self.kinesis.scale(stream, self.rng.choice([n for n in others if n <= 2 * len(shards)]))

    def session(self) -> None:
        """One run of the query, with a trigger, limits and an end of its own."""
        rng = self.rng
        trigger = rng.choice(TRIGGERS)
        # A query may change its mode when it is started again.
        other = {"consumerMode": rng.choice(["efo", "polling"])} if rng.random() < 0.2 else {}
        with self.query(**rng.choice(LIMITS), **other) as query:
            death = rng.choice(DEATHS)
            if death is not None:
                query.dies_at = (death, rng.randint(0, 3))
            if not self.proof.batches:
                query.step()  # pins the start: what `latest` means
            for _ in range(rng.randint(1, 3)):
                self.write()
                if rng.random() < 0.3:
                    self.kinesis.add_faults(*FAULTS)
                if rng.random() < 0.5:
                    self.reshard()
                    self.write()
                if trigger == "processing":
                    goal = self.proof.rows + rng.randint(1, max(1, self.missing()))
                    query.run_until(lambda goal=goal: self.proof.rows >= goal, f"{goal} rows")
            if trigger == "available now":
                query.available_now()
            if trigger == "once":
                query.once()


def play(make_run: MakeRun, seed: int, *, thorough: bool) -> DrawnRun:
    """A run whose every choice is drawn by the seed."""
    rng = random.Random(seed)
    options = {
        "initialPosition": rng.choice(["trim_horizon", "trim_horizon", "latest"]),
        "includeMetadata": rng.choice(["true", "false"]),
        "maxPartitions": rng.choice(["1", "2", "64"]),
    }
    print(f"seed {seed}: {options}")  # noqa: T201  # pytest shows it where the test fails
    run = make_run(seed, thorough=thorough, shards=rng.randint(1, 3), **options)
    run.write()
    for _ in range(rng.randint(3, 5)):
        run.session()
    run.check()
    return run


def test_every_way_to_read_a_batch(make_run: MakeRun) -> None:
    """One run that has it all: killed in every place, resharded while it reads and while it is
    down, batches cut short by limits, batches of either trigger that ends, records left out of
    aggregates, whole aggregates left out.
    """
    run = make_run(7, shards=2, includeMetadata="true")
    written = run.written
    run.write()
    for place in DEATHS:
        with run.query(maxRecordsPerTrigger="60") as query:
            query.dies_at = (place, 1) if place is not None else None
            written.plain(STREAM, 60)
            written.together(STREAM, 25, misplaced=0.3)
            written.together(STREAM, 3, misplaced=1)
            if place == "planned":
                run.kinesis.split(STREAM, FIRST)
            written.plain(STREAM, 30)
            run.read_on(query)
            assert place is None, "it was to be killed"
        run.write()
        run.kinesis.add_faults(*FAULTS)
        if place == "out":
            run.kinesis.merge(STREAM, *run.kinesis.open_shards(STREAM)[-2:])
            run.write()
    with run.query() as query:
        query.once()
        run.kinesis.scale(STREAM, 4)
        run.write()
        assert run.missing() > 0
    with run.query(maxBytesPerTrigger="250b") as query:
        assert query.available_now() > 1
    assert run.missing() == 0
    run.write()
    run.check()

    assert run.proof.readings.keys() == set(WAYS)


def test_an_agent_that_is_closed_while_a_task_streams(make_run: MakeRun, mode: str) -> None:
    """The rest of the range comes from Kinesis: nothing twice, nothing left out."""
    small = {"maxRecordsPerFetch": "5"} if mode == "polling" else {}
    run = make_run(streamName=STREAM, thorough=False, **small)
    with run.query() as query:
        query.step()
        # More than what is on its way between an agent and a task that stands still.
        run.written.plain(STREAM, 100, size=500_000)

        def held() -> bool:
            query.coordinator.latest(query.last_offset())
            return bool(query.coordinator.statistics()["pool"]["used_records"] == 100)

        eventually(held, "100 records held")
        query.step()
        before = len(run.kinesis.calls.calls("GetRecords"))
        run.proof.again_later(query.reader.stop)
        assert len(run.kinesis.calls.calls("GetRecords")) > before
    run.check()


def test_agents_that_go_on_where_a_time_was_the_end(make_run: MakeRun) -> None:
    """What lies before the time they began at is not theirs, though a number says nothing of it."""
    run = make_run(streamName=STREAM, thorough=False)
    run.written.plain(STREAM, 20)
    with run.query() as query:
        run.read_on(query)
    run.written.plain(STREAM, 20)
    with run.query() as query:
        query.once()
    with run.query() as query:
        run.written.plain(STREAM, 20)
        query.coordinator.latest(query.last_offset())  # the agents begin at the end of `once`
        run.proof.planned_later(query.reader)
    run.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens(make_run: MakeRun, seed: int) -> None:
    """Restarts, kills in every place, reshards, every trigger, limits, aggregates, two streams."""
    play(make_run, seed, thorough=False)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_whatever_happens_for_long(make_run: MakeRun) -> None:
    """The same with other seeds each time, and every batch read in every way."""
    first = int(os.environ.get("REPLAY_FIRST", random.SystemRandom().randrange(10**6)))
    for seed in range(first, first + int(os.environ.get("REPLAY_SEEDS", "30"))):
        play(make_run, seed, thorough=True)
