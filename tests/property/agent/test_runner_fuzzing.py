"""Good and bad messages in any order: the buffer holds the beginning of what was sent, gapless."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kinesis_ds.agent.efo.machine import Broke
from kinesis_ds.agent.machine import Diagnosed, ShardState
from kinesis_ds.errors import InternalError, ProtocolError, TransientError
from kinesis_ds.plan.position import TRIM_HORIZON, After, Position, ShardEnd
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import frame
from kinesis_ds.testing.frames import initial_message as initial_frame
from kinesis_ds.testing.frames import message as message_frame
from kinesis_ds.wire.decode import decode_event
from tests.support.builders import event, event_frame, record
from tests.support.hostile import ANYTHING, EVENT_TEXTS, damaged, rows_in
from tests.support.runner_bench import Bench

GAPS = st.lists(st.integers(1, 3), max_size=3)
PASSING = ["InternalFailureException", "KMSThrottlingException", "LimitExceededException"]


class RunnerUnderFire(RuleBasedStateMachine):
    """A server that sends its events in order, and everything that may happen to them."""

    @initialize(
        gaps=st.lists(GAPS, min_size=1, max_size=8),
        after=st.none() | st.integers(0, 3),
        end=st.booleans(),
    )
    def start(self, gaps: list[list[int]], after: int | None, end: bool) -> None:
        """A shard with some events, and a reader at its beginning or behind a record."""
        self.events: list[tuple[list[int], int]] = []  # the numbers of each, and where to go on
        at = 0
        for event_gaps in gaps:
            numbers = []
            for gap in event_gaps:
                at += gap
                numbers.append(at)
            at += not numbers  # silence moves on, too
            self.events.append((numbers, at))
        self.ends = end
        self.begin: Position = TRIM_HORIZON if after is None else After(str(after))
        self.sent = [n for numbers, _ in self.events for n in numbers if n > (after or 0)]
        self.bench = Bench(self.begin)
        self.next = 0

    # --- the connection -------------------------------------------------------------------------

    @property
    def streaming(self) -> bool:
        return self.bench.machine.state is ShardState.STREAMING

    def payload(self, i: int) -> bytes:
        numbers, on = self.events[i]
        last = self.ends and i == len(self.events) - 1
        items = [record(n, b"%d" % n) for n in numbers]
        return event(items, None if last else on, children=["child"] if last else [])

    def message(self, i: int) -> bytes:
        return message_frame(
            self.payload(i), event_type="SubscribeToShardEvent", message_type="event"
        )

    @precondition(lambda self: self.next < len(self.events))
    @rule(times=st.integers(1, 3))
    def go_on(self, times: int) -> None:
        """The next events as they are. Behind a bad one they are not used."""
        for _ in range(times):
            if self.next < len(self.events):
                self.bench.feed(self.message(self.next))
                self.next += 1

    @precondition(lambda self: self.next > 0)
    @rule(back=st.integers(1, 3))
    def repeat(self, back: int) -> None:
        """An event once more."""
        if self.next < len(self.events) or not self.ends:
            self.bench.feed(self.message(max(0, self.next - back)))

    @rule(careless=st.integers(0, 2))
    def connect_again(self, careless: int) -> None:
        """Where the connection is gone: from the position on, or from a little before."""
        machine = self.bench.machine
        if machine.state is ShardState.DIAGNOSING:
            self.bench.runner.handle(Diagnosed(machine.generation, None))
        if machine.state is not ShardState.WAITING:
            return
        self.bench.open()
        at = machine.position.number if isinstance(machine.position, After) else 0
        behind = [i for i, (_, on) in enumerate(self.events) if on > at]
        tail = len(self.events) - (1 if self.ends else 0)
        self.next = max(0, (behind[0] if behind else tail) - careless)

    @precondition(lambda self: self.streaming)
    @rule(hard=st.booleans())
    def cut(self, hard: bool) -> None:
        """The connection ends between two events, with an error or without."""
        error = TransientError("cut") if hard else None
        self.bench.runner.handle(Broke(self.bench.machine.generation, error))

    # --- accidents ------------------------------------------------------------------------------

    @precondition(lambda self: self.next < len(self.events))
    @rule(data=st.data(), bit=st.integers(0, 7))
    def damage(self, data: st.DataObject, bit: int) -> None:
        """A bit of the next event is turned on its way."""
        raw = bytearray(self.message(self.next))
        raw[data.draw(st.integers(12, len(raw) - 1))] ^= 1 << bit
        self.bench.feed(bytes(raw))
        self.next += 1

    @precondition(lambda self: self.next < len(self.events))
    @rule(data=st.data())
    def garble(self, data: st.DataObject) -> None:
        """The next event is nonsense, with right checksums."""
        good = st.just(self.payload(self.next))
        payload = data.draw(ANYTHING | EVENT_TEXTS | damaged(good))
        try:
            decode_event(payload, self.bench.buffer.available)
        except ProtocolError:
            kind = {"event_type": "SubscribeToShardEvent", "message_type": "event"}
            self.bench.feed(message_frame(payload, **kind))
            self.next += 1
        else:
            assume(False)  # another event, and true: nobody could tell

    @precondition(lambda self: self.next < len(self.events))
    @rule(headers=st.binary(max_size=12))
    def misname(self, headers: bytes) -> None:
        """The next event does not say what it is."""
        self.bench.feed(frame(self.payload(self.next), headers))
        self.next += 1

    @rule(kind=st.sampled_from(PASSING))
    def complain(self, kind: str) -> None:
        """An exception in the stream."""
        self.bench.feed(exception_frame(kind, "for a while"))

    @rule(generation=st.integers(0, 50))
    def straggle(self, generation: int) -> None:
        """A message of a connection that is gone, or that never was."""
        if generation != self.bench.machine.generation:
            self.bench.feed(event_frame([record(99)], 99), generation or -1)

    @rule()
    def chat(self) -> None:
        """Messages that hold no records."""
        self.bench.feed(initial_frame())
        self.bench.feed(message_frame(b"?", event_type="News", message_type="event"))

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def holds_a_beginning(self) -> None:
        """In order, exactly once, with the data; and nothing is missing before *available*."""
        if not hasattr(self, "bench"):
            return
        assert not isinstance(self.bench.runner.failure, InternalError)
        buffer = self.bench.buffer
        batches = buffer.read(self.begin, buffer.available)
        rows = [row for batch in batches for row in rows_in(batch)]
        held = [int(row[2]) for row in rows]
        assert held == self.sent[: len(held)]
        assert all(row[1] == row[2].encode() for row in rows)
        missing = self.sent[len(held) :]
        if isinstance(buffer.available, ShardEnd):
            assert self.ends
            assert not missing
        elif isinstance(buffer.available, After):
            assert all(n > buffer.available.number for n in missing)
        else:
            assert not held
        assert self.bench.pool.used("s") == sum(batch.nbytes for batch in batches)
        assert self.bench.pool.statistics().used_records == len(held)

    def teardown(self) -> None:
        """When the accidents are over, everything arrives."""
        if not hasattr(self, "bench") or self.bench.machine.state is ShardState.FAILED:
            return
        for _ in range(2):
            self.connect_again(0)
            self.go_on_to_the_end()
        buffer = self.bench.buffer
        assert self.bench.held(self.begin) == self.sent
        assert isinstance(buffer.available, ShardEnd) == self.ends

    def go_on_to_the_end(self) -> None:
        while self.next < len(self.events):
            self.bench.feed(self.message(self.next))
            self.next += 1


TestRunnerUnderFire = RunnerUnderFire.TestCase
