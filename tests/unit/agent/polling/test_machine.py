"""How one shard is polled, as a script of what happens when, and what is to be done."""

from __future__ import annotations

import itertools
import random

import pytest

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
from kinesis_ds.agent.polling.pace import IDLE_MAX_S
from kinesis_ds.errors import (
    AccessError,
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    ProtocolError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.limits import KIB, MIB
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import TRIM_HORIZON, After, At, AtTimestamp, Position

DAY_S = 24 * 3600.0
# What a clock on the wall shows while the scripts' own begins at 0.
WALL_MS = 1_700_000_000_000
START = After("100", WALL_MS)

NETWORK = TransientError("reset")
THROTTLED = ThrottledError("slow down")
THROTTLED.code = "ProvisionedThroughputExceededException"
KMS_THROTTLED = ThrottledError("slow down")
KMS_THROTTLED.code = "KMSThrottlingException"
NOT_FOUND = StreamNotFoundError("not there")
DAMAGED = ProtocolError("damaged")
INVALID = InvalidRequestError("StartingSequenceNumber is invalid")
INVALID.code = "InvalidArgumentException"
EXPIRED = InvalidRequestError("Iterator expired")
EXPIRED.code = "ExpiredIteratorException"
DENIED = AccessError("denied")


class Script:
    """A shard that is polled, and the moments at which things happen to it."""

    def __init__(
        self,
        position: Position = START,
        *,
        period_s: float = 0.2,
        max_records: int = 10_000,
        bytes_per_s: int = 2 * MIB,
        buffer_bytes: int = 256 * MIB,
        fail_on_data_loss: bool = True,
        retention_s: float | None = None,
    ) -> None:
        self.machine = Polling(
            "shard s",
            position,
            PollingOptions(period_s, max_records, bytes_per_s),
            buffer_bytes=buffer_bytes,
            fail_on_data_loss=fail_on_data_loss,
            retention_s=retention_s,
            rng=random.Random(1),
        )
        self.now = 0.0
        self.due_at = 0.0  # when the machine wants its next Tick
        self.asked = AskRoom(0, 0, 0)

    def tell(self, stimulus: Stimulus, now: float | None = None) -> list[Instruction]:
        self.now = self.now if now is None else now
        instructions = self.machine.handle(stimulus, self.now)
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                assert self.machine.state is ShardState.WAITING
                self.due_at = instruction.when
        return instructions

    @property
    def generation(self) -> int:
        return self.machine.generation

    def ask(self) -> AskRoom:
        """Tick, when it is due; the room that is asked for."""
        self.now = max(self.now, self.due_at)
        (asked,) = self.tell(Tick())
        assert isinstance(asked, AskRoom)
        self.asked = asked
        return asked

    def room(self, wall_ms: int | None = None, nbytes: int | None = None) -> list[Instruction]:
        """The room is there; all of it, unless told otherwise."""
        wall_ms = WALL_MS + round(self.now * 1000) if wall_ms is None else wall_ms
        nbytes = self.asked.nbytes if nbytes is None else nbytes
        return self.tell(RoomGiven(self.generation, nbytes, wall_ms))

    def locating(self, wall_ms: int | None = None) -> Locate:
        """A poll that needs an iterator; where it is to start."""
        self.ask()
        *_, located = self.room(wall_ms)
        assert isinstance(located, Locate)
        return located

    def reading(self) -> Read:
        """A poll, up to GetRecords."""
        self.ask()
        (did,) = self.room()
        if isinstance(did, Locate):
            (did,) = self.tell(Located(self.generation, f"fresh {self.generation}"))
        assert isinstance(did, Read)
        return did

    def answer(
        self,
        number: int | None = None,
        *,
        records: int | None = None,
        behind: int = 0,
        last: bool = False,
        children: bool = False,
        size: int = 500,
        payload: int = 100,
    ) -> list[Instruction]:
        """An answer arrives and is decoded. With ``number`` there are records up to that one."""
        assert self.tell(Received(self.generation)) == []
        position = self.machine.position if number is None else After(str(number), WALL_MS)
        return self.tell(
            Accepted(
                self.generation,
                position,
                records if records is not None else int(number is not None),
                behind,
                None if last else f"next {self.generation}",
                size,
                payload,
                children,
            )
        )

    def poll(self, number: int | None = None, *, behind: int = 0, payload: int = 100) -> float:
        """A whole poll; the pause behind it."""
        self.reading()
        self.answer(number, behind=behind, payload=payload)
        return self.due_at - self.now

    def refuse(self, error: KinesisConnectorError) -> list[Instruction]:
        return self.tell(Refused(self.generation, error))

    def expire(self) -> None:
        """A poll whose iterator has expired: the next one needs another."""
        self.reading()
        self.refuse(EXPIRED)


def failed(instructions: list[Instruction]) -> KinesisConnectorError:
    """The error that the machine ended with, behind the end of all else."""
    cancel, fail = instructions
    assert cancel == Cancel()
    assert isinstance(fail, Fail)
    return fail.error


# --- the way of a poll --------------------------------------------------------------------------


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(5), At("7"), START])
def test_the_first_poll_is_made_at_once_and_from_the_given_position(position: Position) -> None:
    """Room first, then an iterator there, then records."""
    script = Script(position)

    assert isinstance(script.ask(), AskRoom)
    assert script.room() == [Locate(1, position)]
    (read,) = script.tell(Located(1, "i"))
    assert isinstance(read, Read)
    assert read.iterator == "i"


def test_polls_go_on_with_the_next_iterator() -> None:
    """GetShardIterator is called once, and not again for as long as iterators come."""
    script = Script()
    script.poll(101)
    for n in range(102, 120):
        assert script.reading().iterator == f"next {n - 101}"
        script.answer(n)

    assert script.machine.renewals == 0
    assert script.machine.position == After("119")


def test_a_tick_before_its_time_asks_for_another() -> None:
    """Timers may be early; nothing is asked for before it is due."""
    script = Script()
    script.poll(101)
    due = script.due_at

    assert script.tell(Tick(), due - 0.001) == [WakeAt(due)]
    assert isinstance(script.ask(), AskRoom)


def test_one_call_is_under_way_at_most() -> None:
    """A Tick starts nothing while a poll waits for room, an iterator, records or the executor."""
    script = Script()
    script.ask()
    assert script.tell(Tick(), 100.0) == []
    script.room()
    assert script.tell(Tick(), 100.0) == []
    script.tell(Located(1, "i"))
    assert script.tell(Tick(), 100.0) == []
    script.tell(Received(1))
    assert script.tell(Tick(), 100.0) == []
    assert script.generation == 1


def test_the_position_moves_when_records_are_in_the_buffer() -> None:
    """Not when an answer came: it may turn out to be damaged (F18)."""
    script = Script()
    script.reading()
    script.tell(Received(1))
    assert script.machine.position == START
    script.refuse(DAMAGED)
    assert script.machine.position == START
    script.poll(101)
    assert script.machine.position == After("101")


# --- the pace -----------------------------------------------------------------------------------


@pytest.mark.parametrize("period_s", [0.2, 0.5, 2.0])
def test_behind_the_tip_polls_are_a_period_apart(period_s: float) -> None:
    """As fast as the pace allows, and no faster."""
    script = Script(period_s=period_s)

    assert script.poll(101, behind=1000) == pytest.approx(period_s)


def test_the_service_s_five_calls_a_second_are_kept_whatever_is_asked_for() -> None:
    """A period below a fifth of a second is a fifth of a second."""
    assert Script(period_s=0.0).poll(101, behind=1000) == pytest.approx(0.2)


def test_the_period_counts_from_the_answer() -> None:
    """The service counts from when a call gets there, which is not known, but before its answer."""
    script = Script()
    script.reading()
    script.tell(Received(1), 7.0)
    script.tell(Accepted(1, After("101"), 1, 5, "next", 500, 100), 7.1)

    assert script.due_at == pytest.approx(7.2)


@pytest.mark.parametrize(
    ("bytes_per_s", "payload", "pause_s"),
    [(2 * MIB, 10 * MIB, 5.0), (2 * MIB, 1 * MIB, 0.5), (1 * MIB, 3 * MIB, 3.0)],
)
def test_as_many_bytes_as_came_are_waited_out(
    bytes_per_s: int, payload: int, pause_s: float
) -> None:
    """After 10 MiB the service refuses calls for 5 s; other readers want their share sooner."""
    script = Script(bytes_per_s=bytes_per_s)

    assert script.poll(101, behind=1000, payload=payload) == pytest.approx(pause_s)


def test_near_the_tip_silence_is_polled_less_and_less_up_to_a_second() -> None:
    """A record ends that at once."""
    script = Script()
    pauses = [script.poll() for _ in range(6)]
    assert pauses[0] == pytest.approx(0.2, rel=0.1)
    assert all(0.9 * 2 * a <= 1.2 * b for a, b in itertools.pairwise(pauses[:3]))
    assert all(0.9 * IDLE_MAX_S <= pause <= IDLE_MAX_S for pause in pauses[3:])

    assert script.poll(101) == pytest.approx(0.2)


def test_a_long_period_is_no_shorter_for_silence() -> None:
    """Who asks for a poll each 5 s does not get one each second."""
    script = Script(period_s=5.0)

    assert all(script.poll() == pytest.approx(5.0) for _ in range(3))


def test_an_empty_answer_behind_the_tip_is_gone_on_from_at_once() -> None:
    """A stretch without records may have hundreds of empty answers; none of them is the tip."""
    script = Script(TRIM_HORIZON)
    for _ in range(50):
        assert script.poll(behind=3_600_000) == pytest.approx(0.2)

    assert script.machine.position == TRIM_HORIZON
    assert script.machine.renewals == 0
    script.poll(101)
    assert script.machine.position == After("101")


def test_an_empty_stretch_ends_the_idling() -> None:
    """What was quiet before does not slow down what is behind now."""
    script = Script()
    for _ in range(5):
        script.poll()

    assert script.poll(behind=1000) == pytest.approx(0.2)


# --- how much is asked for ----------------------------------------------------------------------


def test_about_a_second_s_worth_is_asked_for() -> None:
    """Other readers of the shard have their turn between two answers."""
    script = Script()
    for n in range(101, 110):
        script.reading()
        script.answer(n, records=1000, behind=1, size=1000 * 14_000, payload=1000 * 10_000)

    assert 150 <= script.reading().limit <= 210


def test_never_more_records_than_allowed_and_never_fewer_than_one() -> None:
    """Tiny records are bounded by their number, and the largest come one by one."""
    script = Script(max_records=700)
    for n in range(101, 150):
        script.reading()
        script.answer(n, records=700, behind=1, size=700 * 200)
    assert script.reading().limit == 700
    script.answer(200, records=1, behind=1, size=14 * MIB, payload=10 * MIB)
    assert script.reading().limit == 1


def test_no_answer_is_meant_to_take_more_than_a_quarter_of_the_buffer() -> None:
    """A small buffer makes small answers, not a stream of large ones that wait for it to empty."""
    script = Script(buffer_bytes=1 * MIB)
    script.reading()
    script.answer(101, records=256, behind=1, size=256 * KIB)

    assert script.reading().limit <= 256
    script.answer(102, behind=1)
    assert script.ask().nbytes <= 256 * KIB


def test_at_the_tip_little_room_is_asked_for() -> None:
    """A thousand idle shards do not reserve what a thousand busy ones would."""
    script = Script()
    for _ in range(3):
        script.poll()

    assert script.ask().nbytes <= 16 * KIB


def test_an_answer_without_room_is_asked_for_again_with_room_for_all_of_it() -> None:
    """And only when the shard's bytes are paid for: the service has counted what was dropped."""
    script = Script()
    script.reading()
    waiting = script.tell(TooLarge(1, 2 * MIB))

    assert waiting == [WakeAt(script.now + 0.75)]
    assert script.machine.position == START
    assert script.ask().nbytes >= 2 * MIB
    (read,) = script.room()
    assert isinstance(read, Read)
    assert read.iterator == "fresh 1"
    script.answer(101)
    assert script.ask().nbytes < 1 * MIB


def test_with_less_room_fewer_records_are_asked_for() -> None:
    """What can be had at once is enough for as many as fit, and for one it is waited for."""
    script = Script()
    script.reading()
    script.answer(101, records=100, behind=1, size=100 * 14_000, payload=100 * 10_000)
    asked = script.ask()
    assert asked.nbytes > 2 * MIB
    assert 14_000 <= asked.least <= 16 * KIB
    (read,) = script.room(nbytes=10 * 14_000)

    assert isinstance(read, Read)
    assert read.limit == 10


def test_records_that_turn_out_large_are_asked_for_one_by_one_if_need_be() -> None:
    """In a small buffer there may never be room for several; for one there must be, some time."""
    script = Script(buffer_bytes=1 * MIB)
    limits = []
    for _ in range(10):
        limits.append(script.reading().limit)
        script.tell(TooLarge(script.generation, 13 * MIB))

    assert limits[0] == 256
    assert all(later <= max(1, earlier // 4) for earlier, later in itertools.pairwise(limits))
    assert script.ask().least >= 13 * MIB
    assert script.machine.position == START


# --- iterators ----------------------------------------------------------------------------------


def test_an_expired_iterator_is_replaced_behind_the_last_record_read() -> None:
    """Not where the query started, nor at what Spark has committed (F26); it is no failure."""
    script = Script()
    script.poll(150, behind=5)
    script.reading()
    due = script.refuse(EXPIRED)

    assert due == [WakeAt(script.now + 0.2)]
    assert script.locating() == Locate(3, After("150"))
    assert script.machine.failures == 0
    assert script.machine.renewals == 1


def test_a_fresh_iterator_is_used_at_once() -> None:
    """It does not wait out a pause in which it may expire again (F27)."""
    script = Script(period_s=60.0)
    script.locating()

    (read,) = script.tell(Located(1, "fresh"))
    assert isinstance(read, Read)
    assert read.iterator == "fresh"


def test_an_iterator_that_got_old_waiting_for_room_is_replaced_before_it_is_used() -> None:
    """Five minutes without room: the answer to the old one is known."""
    script = Script()
    script.poll(150)
    script.ask()
    script.now += 290.0

    assert script.room() == [Locate(2, After("150"))]


def test_an_iterator_that_waited_less_is_used() -> None:
    """Each iterator saved is a call that others can make."""
    script = Script()
    script.poll(150)
    script.ask()
    script.now += 200.0
    (read,) = script.room()

    assert isinstance(read, Read)
    assert read.iterator == "next 1"


def test_iterators_that_expire_as_soon_as_they_are_made_are_not_hammered() -> None:
    """A server whose clock is wrong: pauses grow."""
    script = Script()
    for _ in range(8):
        script.reading()
        script.refuse(EXPIRED)

    assert script.due_at - script.now > 4.0
    script.poll(101)
    assert script.machine.failures == 0


def test_an_iterator_that_is_refused_is_replaced_once() -> None:
    """One that the service cannot read; a fresh one that it cannot read either is an error."""
    script = Script()
    script.poll(150)
    script.reading()
    script.refuse(INVALID)
    assert script.locating() == Locate(3, After("150"))
    script.tell(Located(3, "fresh"))

    assert failed(script.refuse(INVALID)) is INVALID


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NETWORK, THROTTLED, KMS_THROTTLED])
@pytest.mark.parametrize("while_locating", [True, False])
def test_passing_failures_wait_longer_each_time(
    error: KinesisConnectorError, *, while_locating: bool
) -> None:
    """With jitter, up to ten seconds; an answer forgets them."""
    script = Script()
    pauses = []
    for _ in range(12):
        if while_locating:
            script.locating()
        else:
            script.reading()
        did = script.refuse(error)
        if did == [Diagnose(script.generation)]:
            script.tell(Diagnosed(script.generation, None))
        pauses.append(script.due_at - script.now)

    assert pauses[0] <= 0.5
    assert 5.0 <= pauses[-1] <= 10.0
    assert all(later > earlier / 2 for earlier, later in itertools.pairwise(pauses))
    assert script.poll(101, behind=1) == pytest.approx(0.2)


def test_a_passing_failure_keeps_the_iterator() -> None:
    """It is as good as before, and a new one is one more call."""
    script = Script()
    script.poll(150)
    script.reading()
    script.refuse(THROTTLED)

    assert script.reading().iterator == "next 1"


def test_long_throttling_is_told_once() -> None:
    """With the reason that people do not think of: the shard has other readers."""
    script = Script()
    told = []
    for _ in range(30):
        script.reading()
        told += [i for i in script.refuse(THROTTLED) if isinstance(i, Warn)]

    (warning,) = told
    assert "all its readers share" in warning.text
    assert "shard s" in warning.text


def test_throttling_of_a_key_is_not_told_as_the_shard_s() -> None:
    """No other reader of the shard is to blame for it."""
    script = Script()
    told = []
    for _ in range(30):
        script.reading()
        told += [i for i in script.refuse(KMS_THROTTLED) if isinstance(i, Warn)]

    assert told == []


def test_every_third_network_failure_looks_for_the_cause_with_a_new_iterator() -> None:
    """Some servers answer 500 to an iterator of a stream that is not there any more."""
    script = Script()
    script.poll(150)
    did = []
    for _ in range(3):
        script.reading()
        did = script.refuse(NETWORK)
    assert did == [Diagnose(4)]
    script.tell(Diagnosed(4, None))

    assert script.locating() == Locate(5, After("150"))


def test_throttling_is_waited_out_for_ever_and_never_diagnosed() -> None:
    """Looking up the stream would be one more call that is too many."""
    script = Script()
    for _ in range(50):
        script.reading()
        assert not any(isinstance(i, Diagnose) for i in script.refuse(THROTTLED))


@pytest.mark.parametrize("while_locating", [True, False])
def test_not_found_is_looked_into(*, while_locating: bool) -> None:
    """It may be the stream or the shard, or a server that is not consistent yet."""
    script = Script()
    if while_locating:
        script.locating()
    else:
        script.reading()

    assert script.refuse(NOT_FOUND) == [Diagnose(1)]
    script.tell(Diagnosed(1, None))
    assert script.machine.state is ShardState.WAITING


def test_a_diagnosis_that_finds_the_cause_ends_the_shard_with_it() -> None:
    """A deleted stream is not a shard read to its end."""
    script = Script()
    script.reading()
    script.refuse(NOT_FOUND)

    assert failed(script.tell(Diagnosed(1, NOT_FOUND))) is NOT_FOUND


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_shard_that_expired_unread_is_data_loss(*, fail_on_data_loss: bool) -> None:
    """It is left behind only with the user's leave, and with a warning."""
    script = Script(fail_on_data_loss=fail_on_data_loss)
    script.reading()
    script.refuse(NOT_FOUND)
    did = script.tell(Diagnosed(1, DataLossError("the shard is gone")))

    if fail_on_data_loss:
        assert isinstance(failed(did), DataLossError)
    else:
        assert did[0] == Finish()
        assert isinstance(did[1], Warn)
        assert script.machine.state is ShardState.ENDED


@pytest.mark.parametrize("error", [DENIED, InternalError("x")])
def test_what_will_not_pass_fails_at_once(error: KinesisConnectorError) -> None:
    """Access, keys, our own faults: nothing changes by itself (F45)."""
    script = Script()
    script.reading()

    assert failed(script.refuse(error)) is error


def test_senseless_answers_are_given_up_after_five() -> None:
    """Each is asked for again with a fresh iterator; one good answer forgets them."""
    script = Script()
    for _ in range(2):
        for _ in range(4):
            script.reading()
            script.tell(Received(script.generation))
            assert isinstance(script.refuse(DAMAGED)[0], WakeAt)
        script.poll(101)
    for _ in range(4):
        script.reading()
        script.refuse(DAMAGED)
    script.reading()

    assert failed(script.refuse(DAMAGED)) is DAMAGED


# --- positions that are not known any more ------------------------------------------------------


def test_a_number_that_is_gone_is_no_loss_where_the_shard_was_seen_empty_since() -> None:
    """Nobody wrote for days, so the number expired. Reading goes on from when that was seen (F24).

    A minute earlier: clocks differ. What comes twice is dropped, as the position stays.
    """
    seen_ms = WALL_MS - 20 * 3_600_000
    script = Script(After("100", seen_ms), retention_s=DAY_S)
    script.locating()
    wait, told = script.refuse(INVALID)
    assert isinstance(wait, WakeAt)
    assert isinstance(told, Warn)
    assert "from the time in it" in told.text

    assert script.locating() == Locate(2, AtTimestamp(seen_ms - 60_000))
    script.tell(Located(2, "i"))
    script.answer(records=3)
    assert script.machine.position == After("100")
    script.poll(200)
    script.expire()
    assert script.locating() == Locate(5, After("200"))


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(After("100"), id="never seen empty"),
        pytest.param(At("100"), id="named by the user"),
        pytest.param(After("100", WALL_MS - 23_999 * 3600), id="the moment may be gone as well"),
        pytest.param(After("100", WALL_MS - 30 * 3_600_000), id="the moment is gone as well"),
    ],
)
def test_a_position_that_is_gone_is_data_loss(position: Position) -> None:
    """The error names shard, position and remedy (F21)."""
    script = Script(position)
    script.locating()
    error = failed(script.refuse(INVALID))

    assert isinstance(error, DataLossError)
    for said in ("shard s", str(position), "StartingSequenceNumber is invalid", "failOnDataLoss"):
        assert said in str(error)


def test_a_position_that_is_gone_goes_on_at_the_oldest_record() -> None:
    """One warning, never forward (F22); and what was read before is dropped, as it always is."""
    script = Script(After("100"), fail_on_data_loss=False)
    script.locating()
    told = [i for i in script.refuse(INVALID) if isinstance(i, Warn)]

    assert len(told) == 1
    assert script.machine.position == After("100")
    assert script.locating() == Locate(2, TRIM_HORIZON)
    script.refuse(NETWORK)
    assert script.locating() == Locate(3, TRIM_HORIZON)
    script.tell(Located(3, "i"))
    script.answer(500)
    script.expire()
    assert script.locating() == Locate(5, After("500"))


def test_a_moment_that_is_refused_as_well_is_data_loss() -> None:
    """A checkpoint that says something about a time to come is of no use."""
    script = Script(After("100", WALL_MS), retention_s=DAY_S)
    script.locating()
    script.refuse(INVALID)
    script.locating()

    assert isinstance(failed(script.refuse(INVALID)), DataLossError)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_position_that_got_old_waiting_for_room_is_loss_before_it_is_asked_for(
    *, fail_on_data_loss: bool
) -> None:
    """A consumer that stood still for longer than the stream keeps records. Some say that Kinesis
    then starts at the oldest record without a word (F21).
    """
    script = Script(After("100", WALL_MS), fail_on_data_loss=fail_on_data_loss, retention_s=DAY_S)
    script.poll()
    script.ask()
    script.now += 25 * 3600.0
    did = script.room()

    if fail_on_data_loss:
        assert isinstance(failed(did), DataLossError)
        return
    warning, located = did
    assert isinstance(warning, Warn)
    assert located == Locate(2, TRIM_HORIZON)


def test_the_age_of_a_start_is_the_business_of_whoever_gave_it() -> None:
    """It was looked at before the shard was begun; a second opinion would be a second warning."""
    old = After("100", WALL_MS - 25 * 3_600_000)

    assert Script(old, retention_s=DAY_S).locating() == Locate(1, old)


@pytest.mark.parametrize("retention_s", [None, DAY_S])
def test_a_young_position_is_asked_for_as_it_is(retention_s: float | None) -> None:
    """And one of a checkpoint that does not say its age is, too."""
    for position in (After("100", WALL_MS - 3_600_000), After("100")):
        assert Script(position, retention_s=retention_s).locating() == Locate(1, position)


def test_a_server_that_knows_only_the_numbers_of_records_is_not_asked_for_ever() -> None:
    """It answers ResourceNotFound, and stream and shard are there: the number is not."""
    script = Script(After("100", WALL_MS))
    for n in (1, 2, 3):
        assert script.locating().start == After("100")
        assert script.refuse(NOT_FOUND) == [Diagnose(n)]
        script.tell(Diagnosed(n, None))

    assert script.locating().start == AtTimestamp(WALL_MS - 60_000)


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(5)])
def test_a_refused_start_without_a_number_is_not_data_loss(position: Position) -> None:
    """It cannot be too old; something else is wrong with it."""
    script = Script(position, fail_on_data_loss=False)
    script.locating()

    assert failed(script.refuse(INVALID)) is INVALID


# --- the end of the shard -----------------------------------------------------------------------


@pytest.mark.parametrize("children", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_the_end_comes_behind_the_last_records(*, children: bool, closed: bool) -> None:
    """The position is behind them, and the end is believed for its evidence (F17, F30)."""
    script = Script()
    script.reading()
    if closed:
        script.tell(ShardClosed())
    did = script.answer(500, last=True, children=children)

    assert script.machine.position == After("500")
    if children or closed:
        assert did == [Finish()]
        assert script.machine.state is ShardState.ENDED
    else:
        assert isinstance(did[0], WakeAt)


def test_an_end_of_an_open_shard_is_asked_for_again() -> None:
    """An answer with its iterator cut off must not end a shard for ever (F33)."""
    script = Script()
    script.reading()
    script.answer(500, last=True)
    assert script.locating() == Locate(2, After("500"))
    script.tell(Located(2, "i"))
    script.answer(501)
    assert script.machine.state is ShardState.WAITING

    script.reading()
    script.answer(last=True)
    script.locating()
    script.tell(Located(4, "i"))
    assert script.answer(last=True) == [Finish()]


def test_a_closed_shard_is_read_to_its_end_and_not_just_to_the_tip() -> None:
    """Being listed as closed ends nothing."""
    script = Script()
    script.tell(ShardClosed())
    for n in range(101, 105):
        script.poll(n)

    assert script.machine.state is ShardState.WAITING


# --- what comes late, and the end of it all -----------------------------------------------------


@pytest.mark.parametrize(
    "stale",
    [
        RoomGiven(1, 5, WALL_MS),
        Located(1, "old"),
        Received(1),
        TooLarge(1, 5),
        Accepted(1, After("999"), 1, 0, "next", 5, 5),
        Refused(1, DENIED),
        Diagnosed(1, DENIED),
    ],
)
def test_what_an_older_poll_says_is_dropped_and_counted(stale: Stimulus) -> None:
    """Neither its records nor its errors count (F9)."""
    script = Script()
    script.poll(101)
    script.reading()

    assert script.tell(stale) == []
    assert script.machine.stale == 1
    assert script.machine.position == After("101")
    assert script.machine.state is ShardState.READING


def stopped_in(state: str) -> Script:
    script = Script()
    steps = {
        "parked": script.ask,
        "locating": script.locating,
        "reading": script.reading,
    }
    if state == "decoding":
        script.reading()
        script.tell(Received(1))
    elif state == "diagnosing":
        script.reading()
        script.refuse(NOT_FOUND)
    elif state != "waiting":
        steps[state]()
    assert script.machine.state.value == state
    return script


@pytest.mark.parametrize(
    "state", ["waiting", "parked", "locating", "reading", "decoding", "diagnosing"]
)
def test_stop_ends_every_state_at_once(state: str) -> None:
    """What is under way is cancelled, and what still comes changes nothing."""
    script = stopped_in(state)

    assert script.tell(Stop()) == [Cancel()]
    assert script.machine.state is ShardState.STOPPED
    for late in (Tick(), Located(1, "i"), Accepted(1, After("9"), 1, 0, None, 5, 5), Stop()):
        assert script.tell(late) == []
    assert script.machine.position == START


@pytest.mark.parametrize(
    "impossible",
    [Located(0, "i"), Received(0), Accepted(0, START, 0, 0, "n", 5, 5), Refused(0, NETWORK)],
)
def test_an_impossible_stimulus_is_an_internal_error(impossible: Stimulus) -> None:
    """Better said than ignored."""
    with pytest.raises(InternalError, match="cannot happen"):
        Script().tell(impossible)


def test_repr_tells_shard_state_and_position() -> None:
    """For log lines and failed tests."""
    script = Script()
    script.poll(101)

    assert "shard s waiting generation=1" in repr(script.machine)
    assert "AFTER:101" in repr(script.machine)
