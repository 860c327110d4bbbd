"""The subscription's state machine under any sequence that its runner can produce."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kinesis_ds.agent.efo.machine import (
    AwaitRoom,
    Broke,
    CheckEnd,
    Close,
    EndChecked,
    Open,
    Opened,
    Progressed,
    ReachedEnd,
    RoomAgain,
    Starved,
    Subscription,
)
from kinesis_ds.agent.machine import (
    Diagnose,
    Diagnosed,
    Fail,
    Finish,
    Refused,
    ShardClosed,
    ShardState,
    Stimulus,
    Stop,
    Tick,
    WakeAt,
    Warn,
)
from kinesis_ds.errors import (
    AccessError,
    ConsumerError,
    InvalidRequestError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp
from tests.support.examples import times

PASSING = [
    TransientError("x"),
    ThrottledError("x"),
    ResourceInUseError("x"),
    ResourceInUseError("x"),
    StreamNotFoundError("x"),
    ProtocolError("x"),
]
ERRORS = st.sampled_from([*PASSING * 4, InvalidRequestError("x"), AccessError("x")])
ENDED = (ShardState.ENDED, ShardState.FAILED, ShardState.STOPPED)


class AnyRunner(RuleBasedStateMachine):
    """Plays the runner: keeps what is under way, and answers it in any order, early and late."""

    @initialize(
        position=st.sampled_from([TRIM_HORIZON, AtTimestamp(5), After("10")]),
        fail_on_data_loss=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def start(self, position: Any, fail_on_data_loss: bool, seed: int) -> None:
        """A new shard: the runner sends the first Tick."""
        self.now = 0.0
        self.machine = Subscription(
            "shard s", position, fail_on_data_loss=fail_on_data_loss, rng=random.Random(seed)
        )
        self.calling: int | None = None  # a call not answered yet
        self.streaming: int | None = None  # a connection that is open
        self.late: list[Stimulus] = []  # what executors and tasks may still say
        self.checks: list[int] = []
        self.diagnoses: list[int] = []
        self.wake: float | None = None
        self.awaiting_room = False
        self.last_open = self.last_opened = -1e9
        self.generation = 0
        self.read_to = 10
        self.terminal = 0
        self.warned = 0
        self.tell(Tick())

    def tell(self, stimulus: Stimulus) -> None:
        for instruction in self.machine.handle(stimulus, self.now):
            self.perform(instruction)

    def perform(self, instruction: object) -> None:
        match instruction:
            case Open(generation, position):
                assert self.calling is None, "a call is under way"
                assert self.streaming is None, "a connection is open"
                assert generation > self.generation
                assert self.now >= self.last_open + 1.0, "one call a second"
                assert self.now >= self.last_opened + 5.0, "five seconds after a successful call"
                assert position == self.machine.position
                self.generation, self.calling, self.last_open = generation, generation, self.now
            case Close(generation):
                assert generation == self.generation
                self.calling = self.streaming = None
            case WakeAt(when):
                assert self.now <= when <= self.now + 30.001
                self.wake = when
            case AwaitRoom():
                self.awaiting_room = True
            case CheckEnd(generation, position):
                assert self.streaming is None
                assert position == self.machine.position
                self.checks.append(generation)
            case Diagnose(generation):
                self.diagnoses.append(generation)
            case Finish() | Fail():
                self.terminal += 1
            case Warn():
                self.warned += 1
            case _:
                raise AssertionError(f"unknown instruction {instruction}")

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.5, 1.0, 4.9, 5.0, 31.0, 300.0]))
    def pass_time(self, seconds: float) -> None:
        """The clock moves; a timer that is due fires."""
        self.now += seconds
        if self.wake is not None and self.wake <= self.now:
            self.wake = None
            self.tell(Tick())

    @rule()
    def wait_for_the_timer(self) -> None:
        """Exactly when it was asked for."""
        if self.wake is not None:
            self.now = max(self.now, self.wake)
            self.wake = None
            self.tell(Tick())

    @precondition(lambda self: self.calling is not None)
    @rule()
    def answer(self) -> None:
        """The call succeeds."""
        self.streaming, self.calling = self.calling, None
        self.last_opened = self.now
        self.tell(Opened(self.generation))

    @precondition(lambda self: self.calling is not None)
    @rule(error=ERRORS)
    def refuse(self, error: Any) -> None:
        """The call fails."""
        self.calling = None
        self.tell(Refused(self.generation, error))

    @precondition(lambda self: self.streaming is not None)
    @rule(records=st.integers(0, 2), behind=st.sampled_from([0, 0, 0, 5]))
    def event(self, records: int, behind: int) -> None:
        """An event is decoded."""
        self.read_to += records
        self.tell(Progressed(self.generation, After(str(self.read_to)), records, behind))

    @precondition(lambda self: self.streaming is not None)
    @rule(children=st.booleans(), continuation=st.booleans())
    def reach_the_end(self, children: bool, continuation: bool) -> None:
        """An event says that the shard has ended, in part or in full."""
        if children or not continuation:
            self.tell(ReachedEnd(self.generation, children, has_continuation=continuation))

    @precondition(lambda self: self.streaming is not None)
    @rule(error=st.none() | ERRORS, twice=st.booleans())
    def break_off(self, error: Any, twice: bool) -> None:
        """The connection is over; sometimes two paths say so."""
        generation, self.streaming = self.generation, None
        self.tell(Broke(generation, error))
        if twice:
            self.late.append(Broke(generation, error))

    @precondition(lambda self: self.streaming is not None)
    @rule(more=st.booleans())
    def starve(self, more: bool) -> None:
        """No room for too long; an event may still be in the executor."""
        generation = self.generation
        self.tell(Starved(generation))
        assert self.streaming is None
        if more:
            self.late += [
                Progressed(generation, After(str(self.read_to)), 0, 0),
                ReachedEnd(generation, False),
            ]

    @precondition(lambda self: self.awaiting_room)
    @rule()
    def make_room(self) -> None:
        """The buffer was freed."""
        self.awaiting_room = False
        self.tell(RoomAgain())

    @rule()
    def close_the_shard(self) -> None:
        """ListShards says so, as often as it is asked."""
        self.tell(ShardClosed())

    @precondition(lambda self: self.checks)
    @rule(ended=st.sampled_from([False, False, True]), gone=st.booleans())
    def check(self, ended: bool, gone: bool) -> None:
        """GetRecords answered."""
        self.tell(EndChecked(self.checks.pop(0), ended, gone))

    @precondition(lambda self: self.diagnoses)
    @rule(error=st.sampled_from([None, None, None, ConsumerError("x")]))
    def diagnose(self, error: Any) -> None:
        """Stream, consumer and shard were looked up."""
        self.tell(Diagnosed(self.diagnoses.pop(0), error))

    @precondition(lambda self: self.late)
    @rule()
    def say_late(self) -> None:
        """What was under way when it was decided otherwise arrives at last."""
        self.tell(self.late.pop(0))

    @rule(
        stimulus=st.sampled_from(["broke", "progressed", "end", "opened", "starved"]),
        back=st.integers(1, 3),
    )
    def say_from_an_older_generation(self, stimulus: str, back: int) -> None:
        """Callbacks of a connection long replaced change nothing but a counter."""
        old = self.generation - back
        if old < 1:
            return
        before = (self.machine.state, self.machine.position, self.machine.failures)
        self.tell(
            {
                "broke": Broke(old, AccessError("x")),
                "progressed": Progressed(old, After("999999"), 1, 0),
                "end": ReachedEnd(old, has_children=True),
                "opened": Opened(old),
                "starved": Starved(old),
            }[stimulus]
        )
        assert before == (self.machine.state, self.machine.position, self.machine.failures)

    @precondition(lambda self: self.generation > 3)
    @rule()
    def stop(self) -> None:
        """The agent closes."""
        self.tell(Stop())
        if not self.terminal:
            self.terminal += 1

    @invariant()
    def never_stuck(self) -> None:
        """Every state that waits has asked for what it waits for."""
        state = self.machine.state
        if state is ShardState.WAITING:
            assert self.wake is not None, "no timer"
        elif state is ShardState.OPENING:
            assert self.calling == self.generation, "no call"
        elif state is ShardState.STREAMING:
            assert self.streaming == self.generation, "no connection"
        elif state is ShardState.PARKED:
            assert self.awaiting_room, "nobody tells of room"
            assert self.streaming is None
        elif state is ShardState.CHECKING:
            assert self.generation in self.checks, "no check"
        elif state is ShardState.DIAGNOSING:
            assert self.generation in self.diagnoses, "no diagnosis"
        else:
            assert state in ENDED
            assert self.calling is None
            assert self.streaming is None
            assert self.terminal == 1

    @invariant()
    def never_told_twice(self) -> None:
        """Contention is told at most once, a lost position and a lost shard at most once each."""
        assert self.warned <= 3


TestAnyRunner = AnyRunner.TestCase
TestAnyRunner.settings = times(4, steps=60)
