"""The faults of a run and their times: made from a seed, stored as JSON. Pure.

All times are seconds of the double's clock since the start, so that one schedule serves an engine
in fast time and Spark. Only faults are drawn that the connector promises to survive: no
permissions, keys or records are taken away, and every fault happens a limited number of times.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import orjson

from kinesis_ds.testing.faults import (
    Action,
    Alter,
    AnswerWith,
    CloseStream,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    FailRecords,
    Fault,
    MiscountResults,
    NoAnswer,
    OutliveTakeover,
    Pause,
    Raise,
    Refuse,
    Repeat,
    SendBytes,
    Stall,
    Trickle,
)
from kinesis_ds.testing.frames import message

SOURCE = "chaos-source"
SINK = "chaos-sink"
VERSION = 1
QUIET_SEED = 0

Victim = Literal["driver", "agent", "worker"]
Moment = Literal["now", "logged", "running", "output", "committed", "read", "written"]
"""When a victim dies. A driver: at once; when a batch has been logged, is running, has its output,
or was committed. A worker: at once; with its task's records read, or with all of them written.
"""
DRIVER_MOMENTS: tuple[Moment, ...] = ("now", "logged", "running", "output", "committed")
WORKER_MOMENTS: tuple[Moment, ...] = ("now", "read", "written")


# --- what happens -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Burst:
    """Records of about this size are put, with this many keys."""

    at: float
    records: int
    size: int
    keys: int


@dataclass(frozen=True)
class Kill:
    """A process is killed. With a driver die all its processes; it restarts ``down_s`` later."""

    at: float
    victim: Victim
    moment: Moment = "now"
    down_s: float = 0.0


@dataclass(frozen=True)
class Restart:
    """The query is stopped cleanly, and started again ``down_s`` later."""

    at: float
    down_s: float


@dataclass(frozen=True)
class Split:
    """An open shard is split; ``pick`` (0 to 1) selects it."""

    at: float
    pick: float
    stream: str = SOURCE


@dataclass(frozen=True)
class Merge:
    """Two neighbouring shards are merged, if there are two."""

    at: float
    pick: float
    stream: str = SOURCE


@dataclass(frozen=True)
class Scale:
    """UpdateShardCount is called."""

    at: float
    shards: int
    stream: str = SOURCE


@dataclass(frozen=True)
class Outage:
    """The endpoint cannot be reached for so long."""

    at: float
    seconds: float


@dataclass(frozen=True)
class StandStill:
    """No records are taken from the source for so long."""

    at: float
    seconds: float


@dataclass(frozen=True)
class Freeze:
    """A process gets no CPU for so long (SIGSTOP)."""

    at: float
    victim: Victim
    seconds: float


@dataclass(frozen=True)
class Speculate:
    """Each of the next ``tasks`` tasks runs twice at the same time."""

    at: float
    tasks: int


@dataclass(frozen=True)
class Intrude:
    """Another reader takes over an open shard, with the query's own consumer, for so long."""

    at: float
    pick: float
    seconds: float


@dataclass(frozen=True)
class Inject:
    """A fault is given to the double."""

    at: float
    fault: Fault


Step = (
    Burst
    | Kill
    | Restart
    | Split
    | Merge
    | Scale
    | Outage
    | StandStill
    | Freeze
    | Speculate
    | Intrude
    | Inject
)
_STEPS: dict[str, type] = {kind.__name__: kind for kind in Step.__args__}


@dataclass(frozen=True)
class Schedule:
    """One run.

    Attributes:
        shards, sink_shards: The number of shards of the two streams at the start.
        enforce_limits: Whether the double keeps the rate limits of the service.
        subscription_life_s: How long a subscription lasts, in seconds: short, so that renewals
            happen.
        event_bytes: The size of the double's events.
        source_options, sink_options: Options of the connector.
        steps: The faults and other steps, in the order of their times.
    """

    seed: int
    shards: int
    sink_shards: int
    enforce_limits: bool
    subscription_life_s: float
    event_bytes: int
    source_options: Mapping[str, str]
    sink_options: Mapping[str, str]
    steps: tuple[Step, ...]

    @property
    def records(self) -> int:
        return sum(s.records for s in self.steps if isinstance(s, Burst))

    @property
    def seconds(self) -> float:
        """The seconds until the last step is over."""
        ends = (s.at + getattr(s, "seconds", 0.0) + getattr(s, "down_s", 0.0) for s in self.steps)
        return max(ends, default=0.0)

    def count(self, *kinds: type) -> int:
        return sum(isinstance(s, kinds) for s in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the schedule as plain values."""
        raw = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        raw["source_options"] = dict(self.source_options)
        raw["sink_options"] = dict(self.sink_options)
        raw["steps"] = [_step_to_json(step) for step in self.steps]
        return {"v": VERSION, **raw}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Schedule:
        """Read a schedule that :meth:`to_json`, or a person, wrote.

        Raises:
            ValueError: It is not a schedule of this version, for the reason given.
        """
        members = dict(raw)
        if members.pop("v", None) != VERSION:
            raise ValueError(f"a schedule of version {VERSION} is needed")
        try:
            steps = tuple(_step_from_json(step) for step in members.pop("steps"))
            return cls(**members, steps=steps)
        except (TypeError, KeyError, AttributeError) as exc:
            raise ValueError(f"no schedule: {exc}") from exc


def dump_schedule(schedule: Schedule) -> str:
    return orjson.dumps(schedule.to_json(), option=orjson.OPT_INDENT_2).decode()


def load_schedule(text: str | bytes) -> Schedule:
    """Read a schedule from a file. Raises ValueError if it is malformed."""
    parsed = orjson.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("a schedule is a JSON object")  # noqa: TRY004  # of the text, not a type
    return Schedule.from_json(parsed)


def _step_to_json(step: Step) -> dict[str, Any]:
    raw: dict[str, Any] = {"do": type(step).__name__}
    for f in dataclasses.fields(step):
        value = getattr(step, f.name)
        raw[f.name] = value.to_json() if isinstance(value, Fault) else value
    return raw


def _step_from_json(raw: Mapping[str, Any]) -> Step:
    members = dict(raw)
    kind = _STEPS.get(members.pop("do", ""))
    if kind is None:
        raise ValueError(f"a step does one of {', '.join(_STEPS)}")
    if kind is Inject:
        members["fault"] = Fault.from_json(members["fault"])
    step: Step = kind(**members)
    return step


# --- drawing ------------------------------------------------------------------------------------


def make_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed, which is always the same. Seed 0 has no faults."""
    return _Draw(seed).schedule()


T = TypeVar("T")
_KIB = 1024


class _Draw:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"kinesis_ds chaos {VERSION} {seed}")
        self._span = self._rng.uniform(50.0, 90.0)
        self._shards = self._rng.randint(1, 5)
        # Five damaged answers in a row end a subscription for good, and four failed attempts end a
        # task: what leads there has to stay below.
        self._damage_left = 4
        self._failures_left = 2
        # Each of these costs its victim a time-out of 30 to 60 s.
        self._silence_left = 3

    def schedule(self) -> Schedule:
        rng = self._rng
        # A third of the runs moves more than the buffer holds.
        pressing = rng.random() < 0.35
        steps: list[Step] = [*self._bursts(pressing)]
        if self._seed != QUIET_SEED:
            steps += [*self._kills(), *self._reshards(), *self._hindrances()]
            steps += [self._fault() for _ in range(rng.choice((0, 4, 8, 12, 20)))]
            steps += self._storms()
        return Schedule(
            seed=self._seed,
            shards=self._shards,
            sink_shards=rng.randint(1, 4),
            enforce_limits=rng.random() < 0.4,
            subscription_life_s=round(rng.uniform(25.0, 60.0), 1),
            event_bytes=rng.choice((16 * _KIB, 128 * _KIB, 1024 * _KIB)),
            source_options={
                "fetchBufferSize": rng.choice(("1mb", "2mb")) if pressing else "64mb",
                "subscriptionIdleTimeout": f"{rng.choice((1, 5, 30))}s",
                "shardFetchInterval": f"{rng.choice((1, 3, 10))}s",
                "initialPosition": rng.choice(("trim_horizon", "trim_horizon", "latest")),
            },
            sink_options={
                "batchMaxRecords": str(rng.choice((7, 50, 500))),
                "maxInFlightRequests": str(rng.choice((1, 4, 16))),
                "maxInFlightRecords": str(rng.choice((100, 10_000))),
            },
            steps=tuple(sorted(steps, key=lambda step: step.at)),
        )

    def _when(self, since: float = 0.0, until: float = 1.0) -> float:
        return round(self._rng.uniform(since, until) * self._span, 2)

    def _bursts(self, pressing: bool) -> list[Burst]:
        rng = self._rng
        keys = rng.choice((1, 8, 40, 200))
        bursts = [Burst(0.0, rng.randint(1, 60), 40, keys)]
        for _ in range(rng.randint(8, 25)):
            size = int(rng.choice((0, 60, 400, 3000)))
            bursts.append(Burst(self._when(), rng.randint(1, 120), size, keys))
        if pressing:
            bursts += [Burst(self._when(), rng.randint(40, 120), 30_000, keys) for _ in range(3)]
            bursts.append(Burst(self._when(), 3, 400_000, keys))
        # The last records come when all else has been done to the stream.
        bursts.append(Burst(round(self._span + 1.0, 2), rng.randint(1, 60), 40, keys))
        return bursts

    def _kills(self) -> list[Step]:
        rng = self._rng
        steps: list[Step] = []
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            down_s = rng.choice((0.0, 0.0, 8.0, 20.0))
            at = self._when(0.1, 0.95)
            steps.append(Kill(at, "driver", rng.choice(DRIVER_MOMENTS), down_s))
            if down_s and rng.random() < 0.6:  # the stream changes while nobody reads it
                during = at + rng.uniform(0.2, 0.9) * down_s
                steps.append(self._reshard(round(min(during, self._span), 2)))
        steps += [Kill(self._when(0.1, 0.95), "agent") for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        steps += [
            Kill(self._when(0.1, 0.95), "worker", rng.choice(WORKER_MOMENTS))
            for _ in range(rng.choice((0, 0, 1, 2)))
        ]
        if rng.random() < 0.3:
            steps.append(Restart(self._when(0.1, 0.9), rng.choice((0.0, 10.0))))
        return steps

    def _reshards(self) -> list[Step]:
        return [
            self._reshard(self._when(0.05, 0.97))
            for _ in range(self._rng.choice((0, 1, 1, 2, 3, 5)))
        ]

    def _reshard(self, at: float) -> Step:
        rng = self._rng
        stream = SOURCE if rng.random() < 0.8 else SINK
        kind = rng.random()
        if kind < 0.45:
            return Split(at, int(rng.random() * 1000) / 1000, stream)
        if kind < 0.8:
            return Merge(at, int(rng.random() * 1000) / 1000, stream)
        return Scale(at, rng.randint(1, 6), stream)

    def _storms(self) -> list[Step]:
        """Draw one kind of step, repeated within seconds."""
        rng = self._rng
        steps: list[Step] = []
        if rng.random() < 0.15:
            since = self._when(0.1, 0.8)
            times = [round(since + rng.uniform(0.0, 15.0), 2) for _ in range(rng.randint(3, 6))]
            steps += [Kill(at, "agent") for at in times]
        if rng.random() < 0.15:
            since = self._when(0.1, 0.8)
            times = [round(since + rng.uniform(0.0, 3.0), 2) for _ in range(rng.randint(3, 6))]
            steps += [self._reshard(min(at, round(self._span, 2))) for at in times]
        if rng.random() < 0.2:
            for _ in range(rng.randint(1, 4)):
                seconds = round(rng.uniform(0.5, 15.0), 1)
                steps.append(
                    Intrude(self._when(0.1, 0.95), int(rng.random() * 1000) / 1000, seconds)
                )
        return [step for step in steps if step.at <= self._span]

    def _hindrances(self) -> list[Step]:
        rng = self._rng
        steps: list[Step] = []
        if rng.random() < 0.3:
            steps.append(Outage(self._when(0.1, 0.9), round(rng.uniform(1.0, 25.0), 1)))
        if rng.random() < 0.4:
            steps.append(StandStill(self._when(0.1, 0.9), round(rng.uniform(3.0, 40.0), 1)))
        if rng.random() < 0.3:
            victim: Victim = rng.choice(("agent", "agent", "worker", "driver"))
            steps.append(Freeze(self._when(0.1, 0.9), victim, round(rng.uniform(2.0, 30.0), 1)))
        if rng.random() < 0.3:
            steps.append(Speculate(self._when(0.1, 0.9), rng.randint(1, 6)))
        return steps

    # --- faults ---------------------------------------------------------------------------------

    def _fault(self) -> Inject:
        make = self._rng.choices(
            (self._in_stream, self._subscribe_call, self._control_call, self._read_call, self._put),
            weights=(10, 4, 3, 3, 5),
        )[0]
        return Inject(self._when(0.0, 0.97), make())

    def _some_shard(self) -> str | None:
        # Ids of shards that a reshard makes are known beforehand: they count up.
        if self._rng.random() < 0.4:
            return None
        return f"shardId-{self._rng.randrange(self._shards + 4):012d}"

    def _in_stream(self) -> Fault:
        rng = self._rng
        action = self._affordable(self._stream_action)
        # A takeover follows when the agent is killed or loses its connection; once is enough.
        times = 1 if isinstance(action, (Stall, Corrupt, Pause)) else rng.randint(1, 4)
        return Fault(
            action,
            stream=SOURCE,
            shard=self._some_shard(),
            event=rng.choice((0, 1, 1, 1, 2, 3, 5)) if not isinstance(action, Alter) else 1,
            after_s=rng.choice((0.0, 0.0, 0.1, 5.0)),
            times=times,
        )

    def _stream_action(self) -> Action:
        rng = self._rng
        kinds: tuple[Callable[[], Action], ...] = (
            lambda: Cut(rng.choice((0, 1, 11, 12, 40, 100, 1000)), properly=rng.random() < 0.5),
            lambda: Corrupt(rng.choice((-1, 0, 9, 20, 90))),
            Stall,
            CloseStream,
            lambda: Raise(
                rng.choice(
                    (
                        "InternalFailureException",
                        "KMSThrottlingException",
                        "LimitExceededException",
                        "ResourceInUseException",
                    )
                ),
                "chaos",
            ),
            lambda: SendBytes(message(b"{}", event_type="Chaos", message_type="event")),
            lambda: Repeat(rng.randint(1, 3)),
            lambda: Trickle(rng.choice((100, 1000, 4000))),
            lambda: OutliveTakeover(rng.randint(1, 3)),
            lambda: Alter(drop=["ContinuationSequenceNumber"]),
            lambda: Alter(drop=["ChildShards"]),
            lambda: Alter(put={"ContinuationSequenceNumber": "0"}, drop=[]),
            lambda: Alter(drop=["ContinuationSequenceNumber", "ChildShards"]),
            lambda: Pause(round(rng.uniform(1.0, 60.0), 1)),
        )
        return rng.choice(kinds)()

    def _affordable(self, draw: Callable[[], Action]) -> Action:
        while True:
            action = draw()
            match action:
                case Corrupt():
                    left = self._damage_left = self._damage_left - 1
                case MiscountResults() | AnswerWith(status=200):
                    left = self._failures_left = self._failures_left - 1
                case Stall() | NoAnswer() | Pause():
                    left = self._silence_left = self._silence_left - 1
                case _:
                    left = 0
            if left >= 0:
                return action

    def _hindered(self) -> Action:
        """Draw a fault that can happen to any call."""
        rng = self._rng
        performed = rng.random() < 0.5
        kinds: tuple[Callable[[], Action], ...] = (
            lambda: Refuse("LimitExceededException", "chaos"),
            lambda: Refuse("InternalFailure", "chaos", 500),
            lambda: Refuse("ServiceUnavailable", "chaos", 503),
            lambda: AnswerWith(b"<html>busy</html>", 503, "text/html"),
            lambda: NoAnswer(performed),
            lambda: Disconnect(performed),
            lambda: Delay(round(rng.uniform(1.0, 50.0), 1), performed),
        )
        return rng.choice(kinds)()

    def _subscribe_call(self) -> Fault:
        rng = self._rng

        def draw() -> Action:
            if rng.random() < 0.3:
                return Refuse("ResourceInUseException", "chaos")
            if rng.random() < 0.1:
                return AnswerWith(b'{"message": "busy"}')
            return self._hindered()

        action = self._affordable(draw)
        return Fault(action, stream=SOURCE, shard=self._some_shard(), times=_times(rng, action, 3))

    def _control_call(self) -> Fault:
        rng = self._rng
        operation = rng.choice(("ListShards", "ListShards", "DescribeStreamSummary"))
        if rng.random() < 0.3:
            operation = "DescribeStreamConsumer"

        def draw() -> Action:
            if rng.random() < 0.15:
                return AnswerWith(b'{"message": "busy"}')
            return self._hindered()

        action = self._affordable(draw)
        return Fault(action, operation, SOURCE, times=_times(rng, action, 3))

    def _read_call(self) -> Fault:
        rng = self._rng
        operation = rng.choice(("GetRecords", "GetShardIterator"))

        def draw() -> Action:
            if rng.random() < 0.3:
                return Refuse("ProvisionedThroughputExceededException", "chaos")
            if rng.random() < 0.1 and operation == "GetRecords":
                return Refuse("ExpiredIteratorException", "chaos")
            return self._hindered()

        action = self._affordable(draw)
        return Fault(action, operation, SOURCE, times=_times(rng, action, 5))

    def _put(self) -> Fault:
        rng = self._rng

        def draw() -> Action:
            kind = rng.random()
            if kind < 0.4:
                return FailRecords(
                    rng.choice(("ProvisionedThroughputExceededException", "InternalFailure")),
                    "chaos",
                    first=rng.randint(0, 3),
                    every=rng.randint(1, 5),
                    count=rng.choice((None, 1, 10)),
                )
            if kind < 0.5:
                return MiscountResults(rng.choice((-1, 1)))
            if kind < 0.55:
                return AnswerWith(b"{}")
            return self._hindered()

        action = self._affordable(draw)
        return Fault(action, "PutRecords", SINK, times=_times(rng, action, 5))


def _times(rng: random.Random, action: Action, most: int) -> int:
    if isinstance(action, (NoAnswer, MiscountResults)):
        return 1
    if isinstance(action, AnswerWith) and action.status < 500:
        return 1
    return rng.randint(1, most)
