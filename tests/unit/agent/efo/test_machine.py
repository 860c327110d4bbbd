"""One shard's subscription, as a script of what happens when, and what is to be done."""

from __future__ import annotations

import random

import pytest

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
    Instruction,
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
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.plan.position import TRIM_HORIZON, After, AtTimestamp, Position

IN_USE = ResourceInUseError("in use")
NETWORK = TransientError("reset")
THROTTLED = ThrottledError("slow down")
NOT_FOUND = StreamNotFoundError("not there")
DAMAGED = ProtocolError("damaged")
INVALID = InvalidRequestError("StartingSequenceNumber is invalid")
INVALID.code = "InvalidArgumentException"
DENIED = AccessError("denied")
START = After("100")


class Script:
    """A subscription and the moments at which things happen to it."""

    def __init__(self, position: Position = START, *, fail_on_data_loss: bool = True) -> None:
        self.machine = Subscription(
            "shard s", position, fail_on_data_loss=fail_on_data_loss, rng=random.Random(1)
        )

    def at(self, now: float, stimulus: Stimulus) -> list[Instruction]:
        return self.machine.handle(stimulus, now)

    def opening(self, now: float = 0.0) -> Script:
        """Tick: the call is under way."""
        (opened,) = self.at(now, Tick())
        assert opened == Open(self.machine.generation, self.machine.position)
        return self

    def streaming(self, now: float = 0.0) -> Script:
        """Tick and Opened: events may come."""
        self.opening(now)
        assert self.at(now, Opened(self.machine.generation)) == []
        assert self.machine.state is ShardState.STREAMING
        return self

    def event(
        self, now: float, position: str = "200", records: int = 1, behind: int = 0
    ) -> list[Instruction]:
        return self.at(now, Progressed(self.machine.generation, After(position), records, behind))

    def due(self, instructions: list[Instruction]) -> float:
        """The one WakeAt among the instructions."""
        (wake,) = (i for i in instructions if isinstance(i, WakeAt))
        assert self.machine.state is ShardState.WAITING
        return wake.when


# --- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(5), START])
def test_the_first_call_is_made_at_once_and_from_the_given_position(position: Position) -> None:
    """A new subscription opens generation 1 where it was told to start."""
    assert Script(position).at(0.0, Tick()) == [Open(1, position)]


def test_a_tick_before_its_time_asks_for_another() -> None:
    """Timers may be early; nothing is opened before it is due."""
    script = Script().streaming(0.0)
    due = script.due(script.at(1.0, Broke(1, None)))

    assert script.at(due - 0.001, Tick()) == [WakeAt(due)]
    assert script.at(due, Tick()) == [Open(2, START)]


@pytest.mark.parametrize("state", ["opening", "streaming"])
def test_a_tick_opens_nothing_while_a_call_is_under_way(state: str) -> None:
    """A second activation while the first is pending or alive is without effect (F11)."""
    script = getattr(Script(), state)()

    assert script.at(100.0, Tick()) == []
    assert script.machine.generation == 1


@pytest.mark.parametrize(
    ("refused_at", "due"),
    [
        pytest.param(0.2, 1.2, id="answered soon"),
        pytest.param(7.0, 8.0, id="answered late: it may have got there late"),
    ],
)
def test_one_call_a_second(refused_at: float, due: float) -> None:
    """The service allows one SubscribeToShard a second for a consumer and shard (F8).

    It counts from when a call gets there. A second after the answer is never too early.
    """
    script = Script().opening(0.0)

    assert script.due(script.at(refused_at, Refused(1, IN_USE))) == due


@pytest.mark.parametrize(
    ("broke_at", "due"),
    [
        pytest.param(0.5, 5.0, id="broken at once"),
        pytest.param(4.9, 5.0, id="broken just before"),
        pytest.param(300.0, 300.0, id="expired after five minutes"),
    ],
)
def test_five_seconds_after_a_successful_call(broke_at: float, due: float) -> None:
    """A call within five seconds of a successful one would be refused, so it is not made (F8)."""
    script = Script().streaming(0.0)
    script.event(0.1)

    assert script.due(script.at(broke_at, Broke(1, None))) == due


def test_the_five_seconds_count_from_the_answer() -> None:
    """A call that took long to be answered succeeded late."""
    script = Script().opening(0.0)
    script.at(3.0, Opened(1))
    script.event(3.1)

    assert script.due(script.at(3.2, Broke(1, None))) == 8.0


# --- position -----------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(5), START])
def test_without_an_event_the_start_stays(position: Position) -> None:
    """An error before the first event leaves the initial position (F20, F25)."""
    script = Script(position).streaming(0.0)
    due = script.due(script.at(9.0, Broke(1, NETWORK)))

    assert script.at(due, Tick()) == [Open(2, position)]


def test_a_new_call_goes_on_behind_what_was_buffered() -> None:
    """The position is that of the last event decoded and buffered, records or not (F18, F24)."""
    script = Script().streaming(0.0)
    script.event(1.0, "200")
    script.event(6.0, "250", records=0)
    due = script.due(script.at(300.0, Broke(1, None)))

    assert script.at(due, Tick()) == [Open(2, After("250"))]


def test_an_event_decoded_after_the_connection_was_given_up_still_counts() -> None:
    """Its records are in the buffer; resuming before them would read them again (F17)."""
    script = Script().streaming(0.0)
    script.at(10.0, Starved(1))
    assert script.event(10.1, "300") == []
    due = script.due(script.at(11.0, RoomAgain()))

    assert script.at(due, Tick()) == [Open(2, After("300"))]


# --- expiry and renewal -------------------------------------------------------------------------


def test_expiry_is_normal() -> None:
    """Five minutes are over: open again at once, no failure, no warning (F13)."""
    script = Script().streaming(0.0)
    script.event(299.0)

    assert script.at(300.0, Broke(1, None)) == [WakeAt(300.0)]
    assert script.machine.failures == 0
    script.at(300.0, Tick())
    assert script.machine.renewals == 1


def test_opened_and_closed_without_an_event_backs_off() -> None:
    """A server that accepts and closes at once is not hammered, and each time less often (F4)."""
    script = Script()
    now, waits = 0.0, []
    for generation in range(1, 9):
        script.streaming(now)
        due = script.due(script.at(now + 0.01, Broke(generation, None)))
        waits.append(due - now)
        now = due

    assert waits[0] == 5.0
    assert all(wait >= 5.0 for wait in waits)
    assert max(waits) > 15.0
    assert max(waits) <= 30.02


def test_progress_and_nothing_else_forgets_failures() -> None:
    """A successful call is no progress: only an event resets the back-off (F4)."""
    script = Script()
    now = 0.0
    for _ in range(2):
        script.opening(now)
        now = script.due(script.at(now, Refused(script.machine.generation, NETWORK)))
    script.streaming(now)
    assert script.machine.failures == 2
    script.event(now)
    assert script.machine.failures == 0


# --- refusals and breaks ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NETWORK, THROTTLED, DAMAGED])
def test_passing_failures_wait_longer_each_time(error: KinesisConnectorError) -> None:
    """Back-off doubles with jitter, and stays under its cap (F45, F51)."""
    script = Script()
    now, waits = 0.0, []
    for _ in range(4):
        script.opening(now)
        instructions = script.at(now, Refused(script.machine.generation, error))
        if instructions == [Diagnose(script.machine.generation)]:
            instructions = script.at(now, Diagnosed(script.machine.generation, None))
        waits.append(script.due(instructions) - now)
        now += waits[-1]

    for failures, wait in enumerate(waits, 1):
        assert max(1.0, 2.0**failures / 2) <= wait <= 2.0**failures


def test_throttling_is_waited_out_for_ever_and_never_diagnosed() -> None:
    """A limit says nothing about the consumer; the cap of the wait is half a minute."""
    script = Script()
    now = 0.0
    for _ in range(50):
        script.opening(now)
        wait = script.due(script.at(now, Refused(script.machine.generation, THROTTLED))) - now
        assert wait <= 30.0
        now += wait


def test_every_third_network_failure_looks_for_the_cause() -> None:
    """A dead network and a deleted consumer look alike, so it is asked now and then."""
    script = Script()
    now, diagnosed = 0.0, []
    for attempt in range(1, 10):
        script.opening(now)
        generation = script.machine.generation
        instructions = script.at(now, Refused(generation, NETWORK))
        if instructions == [Diagnose(generation)]:
            diagnosed.append(attempt)
            instructions = script.at(now, Diagnosed(generation, None))
        now = script.due(instructions)

    assert diagnosed == [3, 6, 9]


def test_in_use_is_waited_out_at_the_floor_without_escalation() -> None:
    """The rightful owner gets in within a second, however often it was refused (F5, F6)."""
    script = Script()
    for second in range(60):
        script.opening(float(second))
        assert (
            script.due(script.at(float(second), Refused(script.machine.generation, IN_USE)))
            == second + 1.0
        )
    assert script.machine.failures == 0


def test_long_contention_is_told_once() -> None:
    """One warning after half a minute names the likely cause (F5, F39)."""
    script = Script()
    warnings = []
    for second in range(120):
        script.opening(float(second))
        told = script.at(float(second), Refused(script.machine.generation, IN_USE))
        warnings += [(second, w.text) for w in told if isinstance(w, Warn)]

    ((second, text),) = warnings
    assert second == 30
    assert "same consumerName" in text


def test_an_ordinary_hand_over_is_not_told() -> None:
    """A few refusals at a restart, and then success: no warning, also not at the next restart."""
    script = Script()
    for start in (0, 1000):
        for second in range(start, start + 20):
            script.opening(float(second))
            assert len(script.at(float(second), Refused(script.machine.generation, IN_USE))) == 1
        script.streaming(start + 20.0)
        script.at(start + 500.0, Broke(script.machine.generation, None))


def test_a_subscription_taken_over_is_not_taken_back_at_once() -> None:
    """In-stream ResourceInUse: another's call just succeeded, its five seconds are kept (F7)."""
    script = Script().streaming(0.0)
    script.event(100.0)

    assert script.due(script.at(100.0, Broke(1, IN_USE))) == 105.0


def test_two_owners_that_take_over_from_each_other_are_told() -> None:
    """Each opens and makes progress, and yet the contention is told, once (F7, F39)."""
    script = Script()
    now, told = 0.0, []
    for turn in range(10):
        script.streaming(now)
        script.event(now + 1)
        instructions = script.at(now + 6, Broke(script.machine.generation, IN_USE))
        told += [(turn, i.text) for i in instructions if isinstance(i, Warn)]
        now = script.due(instructions)

    ((turn, text),) = told
    assert turn == 2
    assert "taken over 3 times" in text
    assert "same consumerName" in text


def test_a_full_life_forgets_take_overs() -> None:
    """Restarts of a query, weeks apart, do not add up to a warning."""
    script = Script()
    now = 0.0
    for _ in range(6):
        script.streaming(now)
        now = script.due(script.at(now + 100, Broke(script.machine.generation, IN_USE)))
        script.streaming(now)
        instructions = script.at(now + 300, Broke(script.machine.generation, None))
        assert not [i for i in instructions if isinstance(i, Warn)]
        now = script.due(instructions)


@pytest.mark.parametrize("when", ["opening", "streaming"])
def test_not_found_is_looked_into(when: str) -> None:
    """Stream, consumer or shard may be gone; which of them is not said, so it is asked (F32)."""
    script = getattr(Script(), when)()
    stimulus = Refused(1, NOT_FOUND) if when == "opening" else Broke(1, NOT_FOUND)

    assert script.at(1.0, stimulus) == [Diagnose(1)]
    assert script.machine.state is ShardState.DIAGNOSING


def test_a_diagnosis_that_finds_the_cause_ends_the_subscription_with_it() -> None:
    """A deleted consumer is an error with its name, not the end of the shard (F32)."""
    gone = ConsumerError("the consumer is gone")
    script = Script().opening()
    script.at(1.0, Refused(1, NOT_FOUND))

    assert script.at(2.0, Diagnosed(1, gone)) == [Close(1), Fail(gone)]
    assert script.machine.state is ShardState.FAILED


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_shard_that_expired_unread_is_data_loss(*, fail_on_data_loss: bool) -> None:
    """An error by default; else the shard counts as read, with a warning (its children go on)."""
    lost = DataLossError("the shard is gone.")
    script = Script(fail_on_data_loss=fail_on_data_loss).opening()
    script.at(1.0, Refused(1, NOT_FOUND))
    instructions = script.at(2.0, Diagnosed(1, lost))

    if fail_on_data_loss:
        assert instructions == [Close(1), Fail(lost)]
    else:
        close, finish, warning = instructions
        assert (close, finish) == (Close(1), Finish())
        assert "Going on without it" in str(warning)


def test_a_diagnosis_that_finds_nothing_waits_and_tries_again() -> None:
    """Everything is there: the failure was passing."""
    script = Script().opening()
    script.at(0.0, Refused(1, NOT_FOUND))

    assert 1.0 <= script.due(script.at(0.0, Diagnosed(1, None))) <= 2.0


@pytest.mark.parametrize("error", [DENIED, ConsumerError("x"), InternalError("x")])
@pytest.mark.parametrize("when", ["opening", "streaming"])
def test_what_will_not_pass_fails_at_once(error: KinesisConnectorError, when: str) -> None:
    """Denied access is not retried for ever (F45)."""
    script = getattr(Script(), when)()
    stimulus = Refused(1, error) if when == "opening" else Broke(1, error)

    assert script.at(1.0, stimulus) == [Close(1), Fail(error)]
    assert script.machine.state is ShardState.FAILED


def test_a_position_that_is_gone_is_data_loss() -> None:
    """With failOnDataLoss, shard, position and remedy are named (F21)."""
    script = Script().opening()

    close, failed = script.at(1.0, Refused(1, INVALID))
    assert close == Close(1)
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, DataLossError)
    for said in ("shard s", "AFTER:100", "failOnDataLoss=false"):
        assert said in str(failed.error)


def test_a_position_that_is_gone_goes_on_at_the_oldest_record() -> None:
    """A warning, the paced loop, and TRIM_HORIZON, never 'now' (F22, F23)."""
    script = Script(fail_on_data_loss=False).opening(0.0)

    instructions = script.at(0.1, Refused(1, INVALID))
    assert script.due(instructions) == 1.1
    (warning,) = (i for i in instructions if isinstance(i, Warn))
    assert "AFTER:100 is gone" in warning.text
    assert script.at(1.1, Tick()) == [Open(2, TRIM_HORIZON)]


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(5)])
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_refused_start_without_a_number_is_not_data_loss(
    position: Position, *, fail_on_data_loss: bool
) -> None:
    """The request itself is wrong then, and falling back would go round in circles."""
    script = Script(position, fail_on_data_loss=fail_on_data_loss).opening()

    assert script.at(1.0, Refused(1, INVALID)) == [Close(1), Fail(INVALID)]


@pytest.mark.parametrize("code", ["ValidationException", "UnknownOperationException", ""])
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_call_that_is_refused_for_its_form_is_not_data_loss(
    code: str, *, fail_on_data_loss: bool
) -> None:
    """An endpoint without SubscribeToShard has lost nothing; reading all again would not help."""
    error = InvalidRequestError("unknown operation")
    error.code = code
    script = Script(fail_on_data_loss=fail_on_data_loss).opening()

    assert script.at(1.0, Refused(1, error)) == [Close(1), Fail(error)]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_an_unknown_exception_in_the_stream_is_not_data_loss(*, fail_on_data_loss: bool) -> None:
    """The position was accepted when the call was; what comes later is told as it is (F46)."""
    script = Script(fail_on_data_loss=fail_on_data_loss).streaming()

    assert script.at(1.0, Broke(1, INVALID)) == [Close(1), Fail(INVALID)]


def test_damaged_streams_are_given_up_after_five() -> None:
    """An endpoint that sends something else every time is told, not tried for ever (F47)."""
    script = Script()
    now = 0.0
    for generation in range(1, 5):
        script.streaming(now)
        now = script.due(script.at(now, Broke(generation, DAMAGED)))
    script.streaming(now)

    assert script.at(now, Broke(5, DAMAGED)) == [Close(5), Fail(DAMAGED)]


def test_one_damaged_frame_after_a_long_outage_is_no_reason_to_give_up() -> None:
    """Failures of another kind do not count towards giving up on the protocol."""
    script = Script()
    now = 0.0
    for _ in range(20):
        script.opening(now)
        generation = script.machine.generation
        instructions = script.at(now, Refused(generation, THROTTLED))
        now = script.due(instructions)
    script.streaming(now)

    script.due(script.at(now, Broke(script.machine.generation, DAMAGED)))


def test_progress_forgets_damage() -> None:
    """A frame damaged now and then, with events between, never adds up."""
    script = Script()
    now = 0.0
    for generation in range(1, 20):
        script.streaming(now)
        script.event(now)
        now = script.due(script.at(now, Broke(generation, DAMAGED)))


# --- generations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stale",
    [
        Opened(1),
        Refused(1, DENIED),
        Progressed(1, After("999"), 1, 0),
        ReachedEnd(1, has_children=True),
        Broke(1, DENIED),
        Starved(1),
        EndChecked(1, ended=True),
        Diagnosed(1, DENIED),
    ],
    ids=lambda s: type(s).__name__,
)
def test_what_an_older_generation_says_is_dropped_and_counted(stale: Stimulus) -> None:
    """Late callbacks neither move the position, nor fail, nor end anything (F9, F14)."""
    script = Script().streaming(0.0)
    script.event(1.0, "200")
    due = script.due(script.at(300.0, Broke(1, None)))
    script.streaming(due)

    assert script.at(due + 1, stale) == []
    assert script.machine.stale == 1
    assert script.machine.state is ShardState.STREAMING
    assert script.machine.position == After("200")


@pytest.mark.parametrize(
    "again", [Broke(1, NETWORK), Broke(1, None), Starved(1), ReachedEnd(1, has_children=True)]
)
def test_the_first_of_several_endings_wins(again: Stimulus) -> None:
    """Several error paths may fire for one failure; one new call follows (F10)."""
    script = Script().streaming(0.0)
    script.event(0.1)
    due = script.due(script.at(1.0, Broke(1, NETWORK)))

    assert script.at(1.1, again) == []
    assert script.machine.failures == 1
    assert script.at(due, Tick()) == [Open(2, After("200"))]


@pytest.mark.parametrize(
    "impossible", [Opened(0), Refused(0, NETWORK), EndChecked(0, ended=True), Diagnosed(0, None)]
)
def test_an_impossible_stimulus_is_an_internal_error(impossible: Stimulus) -> None:
    """An answer to a question that nobody asked is told with the state, for a report."""
    with pytest.raises(InternalError, match=r"cannot happen in <Subscription shard s waiting"):
        Script().at(0.0, impossible)


# --- the end of the shard -----------------------------------------------------------------------


def test_the_end_with_children_is_the_end() -> None:
    """A null continuation and child shards: read to the end (F29, F30)."""
    script = Script().streaming(0.0)
    script.event(1.0)

    assert script.at(2.0, ReachedEnd(1, has_children=True)) == [Close(1), Finish()]
    assert script.machine.state is ShardState.ENDED


def test_the_end_without_children_is_verified() -> None:
    """A null continuation alone is asked about before the shard counts as drained (F33)."""
    script = Script().streaming(0.0)
    script.event(1.0)

    assert script.at(2.0, ReachedEnd(1, has_children=False)) == [
        Close(1),
        CheckEnd(1, After("200")),
    ]
    assert script.at(3.0, EndChecked(1, ended=True)) == [Close(1), Finish()]


def test_children_with_a_continuation_are_verified() -> None:
    """Child shards named while there is still a way on: asked about as well (F33)."""
    script = Script().streaming(0.0)
    script.event(1.0)
    both = ReachedEnd(1, has_children=True, has_continuation=True)

    assert script.at(2.0, both) == [Close(1), CheckEnd(1, After("200"))]
    due = script.due(script.at(3.0, EndChecked(1, ended=False)))
    assert script.at(due, Tick()) == [Open(2, After("200"))]


@pytest.mark.parametrize(
    ("has_children", "state"), [(True, ShardState.ENDED), (False, ShardState.WAITING)]
)
def test_a_shard_that_nobody_knows_any_more_has_ended_if_its_children_were_named(
    has_children: bool,
    state: ShardState,
) -> None:
    """Gone alone is no evidence: it may be the stream or the consumer that is gone (F32)."""
    script = Script().streaming(0.0)
    script.at(2.0, ReachedEnd(1, has_children=has_children, has_continuation=has_children))
    script.at(3.0, EndChecked(1, ended=False, gone=True))

    assert script.machine.state is state


def test_an_end_is_asked_for_behind_the_records_that_came_with_it() -> None:
    """Before them GetRecords finds just these, again and again, and the shard never ends (F33)."""
    script = Script().streaming(0.0)
    script.event(1.0)
    reached = ReachedEnd(1, has_children=False, position=After("300"))

    assert script.at(2.0, reached) == [Close(1), CheckEnd(1, After("300"))]
    due = script.due(script.at(3.0, EndChecked(1, ended=False)))
    assert script.at(due, Tick()) == [Open(2, After("300"))]


def test_an_end_that_may_not_be_asked_for_is_an_error() -> None:
    """The shard would never end, and its children would wait for ever (F45)."""
    script = Script().streaming(0.0)
    script.at(2.0, ReachedEnd(1, has_children=False))

    assert script.at(3.0, EndChecked(1, ended=False, denied=DENIED)) == [Close(1), Fail(DENIED)]


def test_an_end_that_is_not_confirmed_is_read_on() -> None:
    """More may come: subscribe again at the last position, never at null (F29)."""
    script = Script().streaming(0.0)
    script.event(1.0)
    script.at(2.0, ReachedEnd(1, has_children=False))
    due = script.due(script.at(3.0, EndChecked(1, ended=False)))

    assert due == 5.0
    assert script.at(due, Tick()) == [Open(2, After("200"))]


@pytest.mark.parametrize("error", [None, NETWORK, THROTTLED, IN_USE])
def test_a_closed_shard_whose_connection_breaks_is_checked(
    error: KinesisConnectorError | None,
) -> None:
    """Some servers just break off at the end of a shard."""
    script = Script().streaming(0.0)
    script.event(1.0)
    assert script.at(2.0, ShardClosed()) == []

    assert script.at(3.0, Broke(1, error)) == [CheckEnd(1, After("200"))]


@pytest.mark.parametrize("error", [DENIED, NOT_FOUND, INVALID])
def test_a_closed_shard_still_fails_for_reasons(error: KinesisConnectorError) -> None:
    """What will not pass is no evidence of an end."""
    script = Script().streaming(0.0)
    script.at(2.0, ShardClosed())

    assert not [i for i in script.at(3.0, Broke(1, error)) if isinstance(i, CheckEnd)]


def test_a_shard_found_closed_after_its_connection_broke_is_checked() -> None:
    """ListShards tells of the end only after the break; the check does not wait for another one."""
    script = Script().streaming(0.0)
    script.event(1.0)
    script.due(script.at(2.0, Broke(1, NETWORK)))

    assert script.at(2.5, ShardClosed()) == [CheckEnd(1, After("200"))]
    assert script.at(2.6, ShardClosed()) == []


def test_a_shard_found_closed_before_it_was_opened_is_read() -> None:
    """A closed shard holds records: nothing is checked before they are read."""
    script = Script()

    assert script.at(0.0, ShardClosed()) == []
    assert script.at(0.0, Tick()) == [Open(1, START)]


def test_a_closed_shard_idle_at_the_tip_is_checked() -> None:
    """Some servers never send the end: five silent seconds at the tip, and it is asked for."""
    script = Script().streaming(0.0)
    script.at(0.0, ShardClosed())
    assert script.event(1.0, "200", records=5) == []
    assert script.event(5.9, "200", records=0) == []

    assert script.event(6.0, "200", records=0) == [Close(1), CheckEnd(1, After("200"))]


@pytest.mark.parametrize(
    ("records", "behind"),
    [pytest.param(1, 0, id="records come"), pytest.param(0, 1, id="not at the tip")],
)
def test_a_closed_shard_that_is_still_read_is_not_checked(records: int, behind: int) -> None:
    """Neither while records come, nor while the tip is not reached."""
    script = Script().streaming(0.0)
    script.at(0.0, ShardClosed())

    for now in range(1, 100):
        assert script.event(float(now), str(200 + now), records, behind) == []


def test_an_open_shard_idle_at_the_tip_is_left_alone() -> None:
    """Silence in an open shard is normal."""
    script = Script().streaming(0.0)

    for now in range(1, 300):
        assert script.event(float(now), "200", records=0) == []


def test_the_silence_counts_from_when_the_shard_was_found_closed() -> None:
    """A shard quiet for an hour gets its five seconds: records may be under way."""
    script = Script().streaming(0.0)
    script.event(100.0, "200", records=0)
    script.at(101.0, ShardClosed())

    assert script.event(105.0, "200", records=0) == []
    assert script.event(106.0, "200", records=0) == [Close(1), CheckEnd(1, After("200"))]


def test_an_event_decoded_while_the_end_is_checked_moves_the_position() -> None:
    """If the end is not confirmed, reading goes on behind it."""
    script = Script().streaming(0.0)
    script.at(0.0, ReachedEnd(1, has_children=False))
    script.event(0.1, "300")
    due = script.due(script.at(1.0, EndChecked(1, ended=False)))

    assert script.at(due, Tick()) == [Open(2, After("300"))]


# --- no room ------------------------------------------------------------------------------------


def test_a_starved_subscription_is_given_back_until_there_is_room() -> None:
    """The connection is closed, and opened again on demand under the same rules (F40)."""
    script = Script().streaming(0.0)
    script.event(1.0)

    assert script.at(31.0, Starved(1)) == [Close(1), AwaitRoom()]
    assert script.machine.state is ShardState.PARKED
    assert script.at(500.0, Tick()) == []
    assert script.at(501.0, RoomAgain()) == [WakeAt(501.0)]
    assert script.at(501.0, Tick()) == [Open(2, After("200"))]


def test_room_at_once_still_keeps_the_five_seconds() -> None:
    """Parking and resuming is no way around the service's rule."""
    script = Script().streaming(0.0)
    script.at(1.0, Starved(1))

    assert script.due(script.at(1.0, RoomAgain())) == 5.0


def test_being_starved_is_no_failure() -> None:
    """A slow consumer of ours says nothing about the service (F2)."""
    script = Script().streaming(0.0)
    script.at(31.0, Starved(1))

    assert script.machine.failures == 0


@pytest.mark.parametrize("state", ["opening", "streaming"])
def test_room_nobody_waits_for_is_passed_over(state: str) -> None:
    """A late message about room changes nothing."""
    script = getattr(Script(), state)()
    if state == "streaming":
        assert script.at(1.0, RoomAgain()) == []
        assert script.machine.state is ShardState.STREAMING


# --- terminal states ----------------------------------------------------------------------------

EVERYTHING: list[Stimulus] = [
    Tick(),
    Opened(1),
    Refused(1, NETWORK),
    Progressed(1, After("999"), 1, 0),
    ReachedEnd(1, has_children=True),
    Broke(1, NETWORK),
    Starved(1),
    RoomAgain(),
    ShardClosed(),
    EndChecked(1, ended=True),
    Diagnosed(1, NETWORK),
    Stop(),
    Opened(7),
]


def ended() -> Script:
    script = Script().streaming()
    script.at(1.0, ReachedEnd(1, has_children=True))
    return script


def failed() -> Script:
    script = Script().opening()
    script.at(1.0, Refused(1, DENIED))
    return script


def stopped() -> Script:
    script = Script().streaming()
    script.at(1.0, Stop())
    return script


@pytest.mark.parametrize("make", [ended, failed, stopped])
@pytest.mark.parametrize("stimulus", EVERYTHING, ids=repr)
def test_nothing_happens_after_the_end(make: object, stimulus: Stimulus) -> None:
    """Ended, failed and stopped subscriptions ignore whatever comes late (F14)."""
    script = make()  # type: ignore[operator]
    before = repr(script.machine)

    assert script.at(1000.0, stimulus) == []
    assert repr(script.machine) == before


def parked() -> Script:
    script = Script().streaming()
    script.at(1.0, Starved(1))
    return script


def checking() -> Script:
    script = Script().streaming()
    script.at(1.0, ReachedEnd(1, has_children=False))
    return script


def diagnosing() -> Script:
    script = Script().opening()
    script.at(1.0, Refused(1, NOT_FOUND))
    return script


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Script, []),
        (lambda: Script().opening(), [Close(1)]),
        (lambda: Script().streaming(), [Close(1)]),
        (parked, []),
        (checking, []),
        (diagnosing, []),
    ],
    ids=["waiting", "opening", "streaming", "parked", "checking", "diagnosing"],
)
def test_stop_ends_every_state_at_once(make: object, expected: list[Instruction]) -> None:
    """A stopped subscription closes what is open and waits for nothing more (F15)."""
    script = make()  # type: ignore[operator]

    assert script.at(2.0, Stop()) == expected
    assert script.machine.state is ShardState.STOPPED


def test_repr_tells_shard_state_and_position() -> None:
    """What a log line needs."""
    script = Script().streaming()

    assert repr(script.machine) == (
        "<Subscription shard s streaming generation=1 at AFTER:100 failures=0 stale=0>"
    )
