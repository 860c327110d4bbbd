"""The state machine of a polled shard under any sequence that its runner can produce."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from kinesis_ds.agent.polling.machine import (
    Accepted,
    AskRoom,
    Cancel,
    Locate,
    Located,
    Polling,
    Read,
    Received,
    RoomGiven,
    TooLarge,
)
from kinesis_ds.errors import (
    AccessError,
    DataLossError,
    InvalidRequestError,
    ProtocolError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import MIB
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import TRIM_HORIZON, After, At, AtTimestamp, Position
from tests.support.examples import times

WALL_MS = 1_700_000_000_000
DAY_S = 24 * 3600.0
PERIOD_S = 0.25
BYTES_PER_S = 1 * MIB

EXPIRED = InvalidRequestError("x")
EXPIRED.code = "ExpiredIteratorException"
INVALID = InvalidRequestError("x")
INVALID.code = "InvalidArgumentException"
THROTTLED = ThrottledError("x")
THROTTLED.code = "ProvisionedThroughputExceededException"
PASSING = [TransientError("x"), THROTTLED, StreamNotFoundError("x"), ProtocolError("x"), EXPIRED]
ERRORS = st.sampled_from([*PASSING * 4, INVALID, INVALID, AccessError("x")])
ENDED = (ShardState.ENDED, ShardState.FAILED, ShardState.STOPPED)
# What stands where nothing was read with a number, before any that was.
NOWHERE = -1


def number(position: Position) -> int:
    return position.number if isinstance(position, (At, After)) else NOWHERE


class AnyRunner(RuleBasedStateMachine):
    """Plays the runner: keeps what is under way, and answers it in any order, early and late."""

    @initialize(
        position=st.sampled_from(
            [TRIM_HORIZON, AtTimestamp(5), At("11"), After("10"), After("10", WALL_MS - 3_600_000)]
        ),
        fail_on_data_loss=st.booleans(),
        retention_s=st.sampled_from([None, DAY_S]),
        seed=st.integers(0, 1000),
    )
    def start(
        self, position: Any, fail_on_data_loss: bool, retention_s: float | None, seed: int
    ) -> None:
        """A new shard: the runner sends the first Tick."""
        self.now = 0.0
        self.began_at = position
        self.fail_on_data_loss = fail_on_data_loss
        self.machine = Polling(
            "shard s",
            position,
            PollingOptions(PERIOD_S, 5000, BYTES_PER_S),
            buffer_bytes=8 * MIB,
            fail_on_data_loss=fail_on_data_loss,
            retention_s=retention_s,
            rng=random.Random(seed),
        )
        self.awaiting_room: AskRoom | None = None
        self.room: int | None = None  # reserved, and no call has it yet
        self.locating: Locate | None = None
        self.reading: Read | None = None
        self.decoding: int | None = None
        self.diagnoses: list[int] = []
        self.wake: float | None = None
        self.generation = 0
        self.answered_at = -1e9  # of the last call of either kind
        self.unpaid = 0  # bytes that came with it
        self.accepted: Position = position
        self.losses = 0
        self.terminal = 0
        self.iterators = 0
        self.made_at = 0.0  # of the iterator that goes on where the last answer ended
        self.tell(Tick())

    def tell(self, stimulus: Stimulus) -> None:
        for instruction in self.machine.handle(stimulus, self.now):
            self.perform(instruction)

    def perform(self, instruction: object) -> None:
        match instruction:
            case AskRoom(generation, nbytes, least):
                assert not self.busy(), "something is under way"
                assert generation == self.generation + 1
                assert 0 < least <= nbytes
                self.generation, self.awaiting_room = generation, instruction
                self.check_pace()
            case Locate(generation, start):
                assert self.room is not None, "room comes first"
                assert self.locating is self.reading is self.decoding is None
                assert generation == self.generation
                self.check_start(start)
                self.locating = instruction
            case Read(generation, iterator, limit):
                assert self.room is not None, "room comes first"
                assert self.locating is self.reading is self.decoding is None
                assert generation == self.generation
                assert 1 <= limit <= 5000
                assert self.now - self.made_at < 300.0, "an iterator known to have expired"
                assert iterator == f"i{self.iterators}", "not the newest iterator"
                self.room, self.reading = None, instruction
            case Cancel():
                self.awaiting_room = self.room = self.locating = self.reading = None
                self.decoding = None
            case WakeAt(when):
                assert self.now <= when <= self.now + 20.0
                self.wake = when
            case Diagnose(generation):
                assert generation == self.generation
                self.diagnoses.append(generation)
            case Finish() | Fail():
                self.terminal += 1
                if isinstance(instruction, Fail) and isinstance(instruction.error, DataLossError):
                    assert self.fail_on_data_loss
            case Warn(text):
                if "oldest record" in text:
                    assert not self.fail_on_data_loss
                    self.losses += 1
            case _:
                raise AssertionError(f"unknown instruction {instruction}")

    def busy(self) -> bool:
        under_way = (self.awaiting_room, self.room, self.locating, self.reading, self.decoding)
        return any(thing is not None for thing in under_way)

    def check_pace(self) -> None:
        """No call is nearer to the last answer than a period, and its bytes are paid for."""
        assert self.now >= self.answered_at + PERIOD_S - 1e-6, "one call a period"
        assert self.now >= self.answered_at + self.unpaid / BYTES_PER_S - 1e-6, "bytes unpaid"

    def check_start(self, start: Position) -> None:
        """A fresh iterator starts where reading stands, or before it, never behind."""
        if start == self.machine.position:
            return
        assert isinstance(self.machine.position, (At, After)), "moved without a reason"
        if start == TRIM_HORIZON:
            assert self.losses, "back to the oldest record without a word"
            return
        assert isinstance(start, AtTimestamp)
        assert isinstance(self.machine.position, After)
        seen_ms = self.machine.position.seen_ms
        assert seen_ms is not None
        assert start.ms < seen_ms, "from behind what was seen"

    def answered(self, payload: int = 0) -> None:
        self.answered_at, self.unpaid = self.now, payload

    # --- what may happen ------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.2, 1.0, 11.0, 200.0, 400.0]))
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

    @precondition(lambda self: self.awaiting_room is not None)
    @rule(share=st.sampled_from([0, 1, 2, 4]))
    def give_room(self, share: int) -> None:
        """The pool has some: all that was asked for, or less."""
        asked, self.awaiting_room = self.awaiting_room, None
        assert asked is not None
        self.room = max(asked.least, asked.nbytes * share // 4)
        now_ms = WALL_MS + round(self.now * 1000)
        self.tell(RoomGiven(self.generation, self.room, now_ms))

    @precondition(lambda self: self.locating is not None)
    @rule()
    def locate(self) -> None:
        """GetShardIterator answers; what it gives is used at once (F27)."""
        self.locating = None
        self.iterators += 1
        self.made_at = self.now
        self.tell(Located(self.generation, f"i{self.iterators}"))
        assert self.reading is not None, "not used at once"

    @precondition(lambda self: self.locating is not None)
    @rule(error=ERRORS)
    def refuse_to_locate(self, error: Any) -> None:
        """GetShardIterator fails."""
        self.locating = self.room = None
        self.answered()
        self.tell(Refused(self.generation, error))

    @precondition(lambda self: self.reading is not None)
    @rule(error=ERRORS)
    def refuse_to_read(self, error: Any) -> None:
        """GetRecords fails."""
        self.reading = None
        self.answered()
        self.tell(Refused(self.generation, error))

    @precondition(lambda self: self.reading is not None)
    @rule(size=st.integers(1, 20 * MIB))
    def overflow(self, size: int) -> None:
        """There is no room for the answer."""
        self.reading = None
        self.answered(size * 3 // 4)
        self.tell(TooLarge(self.generation, size))

    @precondition(lambda self: self.reading is not None)
    @rule()
    def receive(self) -> None:
        """GetRecords answers."""
        self.reading, self.decoding = None, self.generation
        self.answered()
        self.tell(Received(self.generation))

    @precondition(lambda self: self.decoding is not None)
    @rule(
        records=st.integers(0, 3),
        behind=st.sampled_from([0, 0, 5]),
        payload=st.integers(0, 10 * MIB),
        ends=st.sampled_from([False] * 8 + [True]),
        children=st.booleans(),
    )
    def decode(
        self, records: int, behind: int, payload: int, *, ends: bool, children: bool
    ) -> None:
        """The answer's records are in the buffer."""
        self.decoding = None
        self.unpaid = payload
        if records:
            self.accepted = After(str(number(self.accepted) + records), WALL_MS)
        elif isinstance(self.accepted, After):
            seen_ms = WALL_MS + round(self.now * 1000) - behind
            self.accepted = After(self.accepted.sequence_number, seen_ms)
        if not ends:
            self.iterators += 1
            self.made_at = self.answered_at
        self.tell(
            Accepted(
                self.generation,
                self.accepted,
                records,
                behind,
                None if ends else f"i{self.iterators}",
                payload * 4 // 3,
                payload,
                children,
            )
        )

    @precondition(lambda self: self.decoding is not None)
    @rule(error=st.sampled_from([ProtocolError("x"), ProtocolError("x"), AccessError("x")]))
    def fail_to_decode(self, error: Any) -> None:
        """The answer was senseless."""
        self.decoding = None
        self.tell(Refused(self.generation, error))

    @precondition(lambda self: self.diagnoses)
    @rule(error=st.sampled_from([None, None, None, DataLossError("gone"), AccessError("x")]))
    def diagnose(self, error: Any) -> None:
        """Stream and shard were looked up."""
        if isinstance(error, DataLossError) and not self.fail_on_data_loss:
            self.losses += 1
        self.tell(Diagnosed(self.diagnoses.pop(0), error))

    @rule()
    def close_the_shard(self) -> None:
        """ListShards says so, as often as it is asked."""
        self.tell(ShardClosed())

    @rule(stimulus=st.integers(0, 5), back=st.integers(1, 3))
    def say_from_an_older_poll(self, stimulus: int, back: int) -> None:
        """What comes from a poll long over changes nothing but a counter."""
        old = self.generation - back
        if old < 1:
            return
        before = repr(self.machine).partition("stale")[0]
        late: list[Stimulus] = [
            RoomGiven(old, 5, WALL_MS),
            Located(old, "old"),
            Received(old),
            TooLarge(old, 5),
            Accepted(old, After("999999"), 1, 0, None, 5, 5, has_children=True),
            Refused(old, AccessError("x")),
        ]
        self.tell(late[stimulus])
        assert before == repr(self.machine).partition("stale")[0]

    @precondition(lambda self: self.generation > 5)
    @rule()
    def stop(self) -> None:
        """The agent closes."""
        ended = self.machine.state in ENDED
        self.tell(Stop())
        self.terminal += not ended

    # --- what always holds ----------------------------------------------------------------------

    @invariant()
    def never_stuck(self) -> None:
        """Every state that waits has asked for what it waits for, and for nothing else."""
        expected = {
            ShardState.WAITING: self.wake is not None,
            ShardState.PARKED: self.awaiting_room is not None,
            ShardState.LOCATING: self.locating is not None,
            ShardState.READING: self.reading is not None,
            ShardState.DECODING: self.decoding is not None,
            ShardState.DIAGNOSING: self.generation in self.diagnoses,
        }
        state = self.machine.state
        if state in ENDED:
            assert not self.busy(), "something goes on"
            assert self.terminal == 1
        else:
            assert expected[state], f"nothing is coming in {state}"
            assert self.terminal == 0

    @invariant()
    def positions_are_those_of_accepted_records_and_never_go_back(self) -> None:
        """Whatever is refused, torn or dropped on the way."""
        assert self.machine.position == self.accepted
        if number(self.accepted) == number(self.began_at):
            assert self.machine.position == self.began_at or isinstance(self.began_at, After)


TestAnyRunner = AnyRunner.TestCase
TestAnyRunner.settings = times(4, steps=60)
