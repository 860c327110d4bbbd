"""Run one seed: start double, producer and engine, cause the faults, and judge the result."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from integration.chaos.engine.bare import BareEngine
from integration.chaos.engine.interface import Engine, EngineError, Job, Observed
from integration.chaos.intruder import Intruder, IntruderError
from integration.chaos.payload import Item, head_of, make_data, read_data, untag_data
from integration.chaos.schedule import (
    SINK,
    SOURCE,
    Burst,
    Freeze,
    Inject,
    Intrude,
    Kill,
    Merge,
    Outage,
    Restart,
    Scale,
    Schedule,
    Speculate,
    Split,
    StandStill,
    Step,
    dump_schedule,
)
from integration.chaos.verdict import Evidence, Stored, judge
from kinesis_ds.limits import MIB
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.testing import KinesisServer, ScaledClock, ServiceError, Settings

EngineName = Literal["bare", "spark"]

# What a connector process may take beside its buffer: the interpreter with pyarrow, gRPC and
# aiobotocore, and what is on its way between socket, buffer and task.
PROCESS_BYTES = 256 * MIB
# The pool's bound holds for what it was asked; one message larger than all of it gets through.
_LARGEST_MESSAGE = 2 * MIB
# Five to ten seconds are usual; on a machine that is busy with other things, thirty were seen.
_BARE_S = 150.0
_SPARK_S = 420.0
_LOOK_EVERY_S = 0.01
_BEFORE_S = 4.0
_PIN_S = 60.0
_SAMPLE_EVERY_S = 0.1
_SINK_EVERY_S = 0.2
# After everything has come out: time for a record to come twice.
_QUIET_S = 0.25
_SUBSCRIPTIONS_S = 20.0
_SUSPICIOUS = (" ERROR ", " CRITICAL ", "please report", "never retrieved", "never awaited")


@dataclass
class Report:
    """One run.

    Attributes:
        seconds: How long the run took, in seconds of the machine.
        done: How often each kind of step was done, and each fault happened.
    """

    seed: int
    engine: EngineName
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    written: int = 0
    batches: int = 0
    replays: int = 0
    restarts: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    rss_mib: dict[str, int] = field(default_factory=dict)
    artifacts: str | None = None

    @property
    def passed(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, **asdict(self)}


def run_seed(
    schedule: Schedule,
    engine: EngineName,
    folder: Path,
    *,
    keep: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run a schedule. Afterwards nothing of it is left, except the folder of a run that failed.

    Args:
        keep: Keep the folder of a run that passed, too.
        progress: Is called with texts that say what happens.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "schedule.json").write_text(dump_schedule(schedule) + "\n")
    report = Report(schedule.seed, engine)
    began = time.monotonic()
    try:
        _Run(schedule, engine, folder, report, progress).run()
    except EngineError as exc:
        report.problems.insert(0, str(exc))  # what else there is, comes of it
    except Exception:  # of ours: the seeds behind it are run all the same
        report.problems.append(f"the harness failed: {traceback.format_exc()}")
    report.seconds = round(time.monotonic() - began, 2)
    if report.passed and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report.artifacts = str(folder)
        (folder / "report.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    return report


def _make_engine(name: EngineName, job: Job) -> Engine:
    if name == "bare":
        return BareEngine(job)
    from integration.chaos.engine.spark import SparkEngine  # noqa: PLC0415  # imports PySpark

    return SparkEngine(job)


class _Run:
    def __init__(
        self,
        schedule: Schedule,
        engine: EngineName,
        folder: Path,
        report: Report,
        progress: Callable[[str], None],
    ) -> None:
        self._schedule = schedule
        self._name = engine
        self._folder = folder
        self._report = report
        self._progress = progress
        self._rng = random.Random(schedule.seed)
        self._written: list[Item] = []
        self._of_key: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._down = contextlib.ExitStack()
        self._intruders = contextlib.ExitStack()
        self._outages = 0
        self._down_s = 0.0
        self._sink_seen = 0.0
        self._left: list[str] = []
        self._frozen: list[object] = []
        self._log = (folder / "conductor.log").open("w")

    def run(self) -> None:
        schedule = self._schedule
        speed = 20.0 if self._name == "bare" else 1.0
        settings = Settings(
            enforce_limits=schedule.enforce_limits,
            subscription_life_s=schedule.subscription_life_s,
            event_bytes=schedule.event_bytes,
            seed=schedule.seed,
        )
        self._server = KinesisServer(settings, clock=ScaledClock(speed))
        try:
            with self._log, self._server, contextlib.ExitStack() as stack:
                stack.enter_context(self._down)
                stack.enter_context(self._intruders)
                self._server.create_stream(SOURCE, schedule.shards)
                self._server.create_stream(SINK, schedule.sink_shards)
                self._engine = _make_engine(self._name, self._job())
                stack.callback(self._engine.close)
                self._drive()
        except RuntimeError as exc:
            if isinstance(exc, EngineError):
                raise
            cause = f": {exc.__cause__!r}" if exc.__cause__ else ""
            self._report.problems.append(f"the double failed: {exc}{cause}")

    def _job(self) -> Job:
        schedule, server = self._schedule, self._server
        statistics = {"diagnosticsDirectory": str(self._folder / "statistics")}
        return Job(
            folder=self._folder,
            source={
                **server.options(SOURCE),
                "consumerName": "chaos",
                **statistics,
                **schedule.source_options,
            },
            sink={**server.options(SINK), **schedule.sink_options},
        )

    # --- the story ------------------------------------------------------------------------------

    def _drive(self) -> None:
        engine, schedule = self._engine, self._schedule
        for step in schedule.steps:
            self._at(step.at, lambda step=step: self._do(step))  # type: ignore[misc]
        limit_s = _BARE_S if self._name == "bare" else schedule.seconds + _SPARK_S
        self._wanted = True  # whether the query is to run
        latest = schedule.source_options["initialPosition"] == "latest"
        if latest:
            # Not a record of the run: to be left out. A pinned start may be a second early.
            self._server.put(SOURCE, b"0:key:0:0|too early", partition_key="key")
            time.sleep(_BEFORE_S / engine.speed)
        self._began = time.monotonic()
        engine.start()
        while latest and not engine.pinned():
            if not engine.running() or time.monotonic() - self._began > _PIN_S:
                raise EngineError(f"the start was not pinned: {engine.states()}")
            time.sleep(_LOOK_EVERY_S)
        self._began = time.monotonic()
        try:
            self._until(lambda: not self._due and self._all_out(), limit_s)
            quiet = time.monotonic() + _QUIET_S
            self._until(lambda: time.monotonic() > quiet, limit_s)
            self._intruders.close()
            self._stop()
            self._await_no_subscriptions()
        finally:
            engine.sample()
            self._judge()

    def _until(self, done: Callable[[], bool], limit_s: float) -> None:
        sampled = 0.0
        while not done():
            now = time.monotonic()
            if now - self._began > limit_s:
                raise EngineError(
                    f"did not finish within {limit_s:g} s: {len(self._written)} written, "
                    f"{self._engine.states()}; subscriptions {self._server.subscriptions()}; "
                    f"pending faults {self._server.pending_faults()}"
                )
            if self._due and self._due[0][0] <= self._now():
                heapq.heappop(self._due)[2]()
                continue
            if self._wanted and not self._engine.running():
                self._wanted = False
                self._say(f"driver is gone, back in {self._down_s:g} s")
                self._at(self._now() + self._down_s, self._start_again)
            if now - sampled > _SAMPLE_EVERY_S:
                sampled = now
                self._engine.sample()
            time.sleep(_LOOK_EVERY_S)

    def _all_out(self) -> bool:
        if not self._wanted or self._engine.delivered() < len(self._written):
            return False
        if time.monotonic() - self._sink_seen < _SINK_EVERY_S:
            return False
        self._sink_seen = time.monotonic()
        stored = self._server.records(SINK)
        heads = {head_of(record.data) for record in stored}
        return len(heads) >= len(self._written)

    def _start_again(self) -> None:
        self._say("driver starts")
        self._engine.start()
        self._wanted = True

    def _now(self) -> float:
        return (time.monotonic() - self._began) * self._engine.speed * self._engine.pace

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), what))

    def _say(self, text: str) -> None:
        self._log.write(f"{self._now():8.2f} {text}\n")
        self._log.flush()
        self._progress(text)

    # --- steps ----------------------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        if not isinstance(step, Burst):
            self._say(str(step))
        self._done[type(step).__name__] += 1
        match step:
            case Burst():
                self._put(step)
            case Kill():
                self._kill(step)
            case Restart():
                self._restart(step)
            case Split() | Merge() | Scale():
                self._reshard(step)
            case Outage():
                self._outage(step)
            case StandStill():
                self._engine.stand_still(step.seconds / self._engine.pace)
            case Freeze():
                frozen = self._engine.freeze(step.victim)
                if frozen is not None:
                    self._frozen.append(frozen)
                    self._at(self._now() + step.seconds, self._thaw)
            case Speculate():
                self._engine.speculate(step.tasks)
            case Intrude():
                self._intrude(step)
            case Inject():
                self._server.add_faults(step.fault)

    def _thaw(self) -> None:
        if self._frozen:
            self._engine.thaw(self._frozen.pop(0))

    def _stop(self) -> None:
        while self._frozen:  # who is asked to stop must be able to hear it
            self._thaw()
        self._left += self._engine.stop()

    def _put(self, burst: Burst) -> None:
        data = []
        for _ in range(burst.records):
            key = f"key-{min(self._rng.randrange(burst.keys), self._rng.randrange(burst.keys))}"
            item = Item(len(self._written), key, self._of_key[key])
            self._of_key[key] += 1
            self._written.append(item)
            data.append(make_data(item, self._rng.randint(0, 2 * burst.size)))
        self._server.put(SOURCE, *data, partition_key=_key_of)

    def _kill(self, step: Kill) -> None:
        if not self._wanted:
            self._done["Kill"] -= 1
            return
        if step.victim == "driver":
            self._down_s = step.down_s
        self._done[f"Kill {step.victim}"] += 1
        self._engine.kill(step.victim, step.moment)

    def _restart(self, step: Restart) -> None:
        if not self._wanted or not self._engine.running():
            return
        self._wanted = False
        self._stop()
        self._at(self._now() + step.down_s, self._start_again)

    def _reshard(self, step: Split | Merge | Scale) -> None:
        server, stream = self._server, step.stream
        shards = server.open_shards(stream)
        try:
            match step:
                case Split():
                    made = server.split(stream, shards[int(step.pick * len(shards))])
                case Merge():
                    pairs = self._neighbours(stream)
                    if not pairs:
                        return
                    made = server.merge(stream, *pairs[int(step.pick * len(pairs))])
                case Scale():
                    made = server.scale(stream, step.shards)
        except ServiceError as exc:
            self._say(f"not resharded: {exc}")
            return
        self._done["reshards"] += 1
        self._say(f"resharded {stream}: {made}")

    def _neighbours(self, stream: str) -> list[tuple[str, str]]:
        open_shards = set(self._server.open_shards(stream))
        shards = sorted(
            (s for s in self._server.shards(stream) if s["ShardId"] in open_shards),
            key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]),
        )
        return [(a["ShardId"], b["ShardId"]) for a, b in itertools.pairwise(shards)]

    def _intrude(self, step: Intrude) -> None:
        try:
            intruder = Intruder(self._server, step.pick)
        except IntruderError as exc:
            self._say(f"nobody intruded: {exc}")
            return
        self._done["intruded"] += 1
        self._intruders.callback(intruder.leave)
        self._at(self._now() + step.seconds, intruder.leave)

    def _outage(self, step: Outage) -> None:
        self._down.enter_context(self._server.down())

        def over() -> None:
            self._down.close()
            self._say("the endpoint is back")

        self._at(self._now() + step.seconds, over)

    # --- the judgement --------------------------------------------------------------------------

    def _await_no_subscriptions(self) -> None:
        deadline = time.monotonic() + _SUBSCRIPTIONS_S
        while (left := self._server.subscriptions()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self._left += [f"subscription {subscription}" for subscription in left]

    def _judge(self) -> None:
        server, report, tally = self._server, self._report, self._engine.tally
        self._engine.close()
        observed: Observed = self._engine.observed()
        troubles = [f"left behind: {left}" for left in self._left]
        troubles += self._memory_troubles() + self._log_troubles()
        verdict = judge(
            Evidence(
                written=self._written,
                batches=observed.batches,
                changed=observed.changed,
                stored=[_stored(record.data) for record in server.records(SINK)],
                attempts=observed.attempts,
                calls=observed.calls,
                troubles=troubles,
            )
        )
        report.problems += verdict.problems
        report.duplicates = dict(verdict.duplicates)
        report.written = len(self._written)
        report.batches = len(observed.batches)
        report.replays = tally.replays
        report.restarts = dict(tally.restarts)
        report.done = dict(sorted(self._done.items()))
        report.faults = dict(Counter(_fault_name(fault) for fault, _ in server.struck()))
        report.rss_mib = {role: rss // MIB for role, rss in sorted(tally.rss.items())}

    def _memory_troubles(self) -> list[str]:
        limit = parse_read_options(self._job().source).buffer_bytes + PROCESS_BYTES
        troubles = [
            f"{role} took {rss // MIB} MiB, more than {limit // MIB}"
            for role, rss in self._engine.tally.rss.items()
            if rss > limit
        ]
        for path in (self._folder / "statistics").rglob("source-*.json"):
            pool = json.loads(path.read_text()).get("pool", {})
            if pool and pool["peak_bytes"] > max(pool["limit_bytes"], _LARGEST_MESSAGE):
                troubles.append(f"the buffer of {path.name} held more than its bound: {pool}")
        return troubles

    def _log_troubles(self) -> list[str]:
        troubles = []
        for path in sorted((self._folder / "logs").glob("*.log")):
            # Spark calls it an error when a process of its own is killed.
            words = _SUSPICIOUS[2:] if path.name == "spark.log" else _SUSPICIOUS
            for line in path.read_text(errors="replace").splitlines():
                if any(word in line for word in words):
                    troubles.append(f"{path.name} says: {line[:300]}")
                    break
        return troubles


def _key_of(data: bytes) -> str:
    return data.split(b":", 2)[1].decode()


def _stored(tagged: bytes) -> Stored:
    data, tag = untag_data(tagged)
    return Stored(read_data(data), tag)


def _fault_name(fault: Any) -> str:
    return f"{fault.operation} {type(fault.action).__name__}"
