"""The runner's decoding: what becomes of one message, and where reading goes on behind it."""

from __future__ import annotations

import pytest

from kinesis_ds.agent.efo import runner as runner_module
from kinesis_ds.agent.machine import ShardState
from kinesis_ds.errors import AccessError, InternalError
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import frame
from kinesis_ds.testing.frames import initial_message as initial_frame
from kinesis_ds.testing.frames import message as message_frame
from tests.support.builders import ARRIVED_S, event, event_frame, record
from tests.support.runner_bench import Bench

ARRIVED = AtTimestamp(int(ARRIVED_S * 1000))
LATER = AtTimestamp(ARRIVED.ms + 1)


# --- where to go on -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "first", "numbers", "continuation", "expected"),
    [
        pytest.param(TRIM_HORIZON, "0", [5], "5", After("5"), id="the last record"),
        pytest.param(TRIM_HORIZON, "0", [5], "9", After("9"), id="behind the last record"),
        pytest.param(After("4"), "0", [], "9", After("9"), id="silence moves on, too"),
        pytest.param(
            TRIM_HORIZON, "0", [], "0", TRIM_HORIZON, id="LocalStack's 0 at the beginning"
        ),
        pytest.param(ARRIVED, "0", [], "0", ARRIVED, id="LocalStack's 0 at a time"),
        pytest.param(After("100"), "0", [], "0", After("100"), id="LocalStack's 0 behind a record"),
        pytest.param(TRIM_HORIZON, "0", [5], "0", After("5"), id="0 with a record"),
        pytest.param(TRIM_HORIZON, "0", [5], "3", After("5"), id="before the last record"),
        pytest.param(After("100"), "0", [], "90", After("100"), id="never backwards"),
        pytest.param(
            TRIM_HORIZON, "50", [], "49", TRIM_HORIZON, id="before the shard's first number"
        ),
        pytest.param(TRIM_HORIZON, "50", [], "50", After("50"), id="the shard's first number"),
        pytest.param(LATER, "0", [5], "9", LATER, id="all older than the wanted time"),
        pytest.param(ARRIVED, "0", [5], "9", After("9"), id="in time"),
        pytest.param(ARRIVED, "0", [], "9", After("9"), id="nothing older on the way"),
        pytest.param(After("5"), "0", [4, 5], "9", After("9"), id="all repeated"),
        pytest.param(After("5"), "0", [4, 5, 6], "6", After("6"), id="some repeated"),
        pytest.param(TRIM_HORIZON, "0", [5], None, After("5"), id="the last event, with a record"),
        pytest.param(After("5"), "0", [], None, After("5"), id="the last event, empty"),
        pytest.param(LATER, "0", [5], None, LATER, id="the last event, all older"),
        pytest.param(TRIM_HORIZON, "0", ["0005"], "0005", After("0005"), id="padded as it came"),
    ],
)
def test_where_to_go_on(
    position: Position, first: str, numbers: list[int], continuation: str | None, expected: Position
) -> None:
    """A continuation is stored only if it can be resumed from; else the last record stays."""
    bench = Bench(position, first).feed(event_frame([record(n) for n in numbers], continuation))

    assert bench.buffer.available == expected
    if continuation is not None:
        assert bench.machine.position == expected


def test_each_event_is_decoded_behind_the_one_before() -> None:
    """A server that repeats records from one event to the next delivers them once."""
    bench = Bench()
    for numbers in ([1, 2], [2, 3], [1, 2, 3], [4]):
        bench.feed(event_frame([record(n) for n in numbers], numbers[-1]))

    assert bench.held(TRIM_HORIZON) == [1, 2, 3, 4]
    assert bench.runner.counters.records == 4
    assert bench.runner.counters.events == 4


def test_a_wanted_time_is_kept_until_the_first_record_in_time() -> None:
    """Older records are dropped event after event, and a range read again drops the same ones."""
    bench = Bench(LATER)
    bench.feed(event_frame([record(1)], 1)).feed(event_frame([record(2)], 2))
    assert bench.buffer.available == LATER
    bench.feed(event_frame([record(3), record(4, arrived_s=ARRIVED_S + 1)], 4))

    assert bench.held(LATER) == [4]
    assert bench.buffer.available == After("4")


# --- what becomes of a message ------------------------------------------------------------------


def room_used(bench: Bench) -> int:
    rows = bench.buffer.read(bench.buffer.start, bench.buffer.available)
    return bench.pool.used("s") - sum(batch.nbytes for batch in rows)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(initial_frame(), id="initial response"),
        pytest.param(
            message_frame(b"{}", message_type="event", event_type="News"), id="unknown event"
        ),
        pytest.param(event_frame([], 5), id="heartbeat"),
        pytest.param(event_frame([record(5)], 5), id="records"),
        pytest.param(event_frame([], None, children=["c"]), id="end"),
        pytest.param(exception_frame("InternalFailureException"), id="exception"),
        pytest.param(frame(b"{}", b"\x01a\xff"), id="malformed headers"),
        pytest.param(
            message_frame(b"[]", message_type="event", event_type="SubscribeToShardEvent"),
            id="malformed",
        ),
        pytest.param(event_frame([record(5)], 5)[:-1] + b"\x00", id="damaged"),
    ],
)
def test_the_room_of_a_message_is_given_back_in_every_case(data: bytes) -> None:
    """What is held afterwards is what the records use, exactly (F44)."""
    assert room_used(Bench().feed(data)) == 0


def test_a_message_of_an_older_generation_is_dropped() -> None:
    """Neither its records nor its position are used (F9)."""
    bench = Bench()
    bench.feed(exception_frame("InternalFailureException"))
    assert bench.open() == 2
    bench.feed(event_frame([record(1)], 1), generation=1)

    assert bench.buffer.available == TRIM_HORIZON
    assert bench.pool.used("s") == 0


def test_behind_a_bad_event_nothing_is_taken_from_its_connection() -> None:
    """Good frames behind a damaged one would leave a gap; the next connection reads them again."""
    bench = Bench().feed(event_frame([record(1)], 1))
    bench.feed(event_frame([record(2)], 2)[:-1] + b"\x00")
    bench.feed(event_frame([record(3)], 3))

    assert bench.buffer.available == After("1")
    assert bench.machine.state is ShardState.WAITING
    assert bench.changes == 1
    bench.open()
    bench.feed(event_frame([record(2)], 2)).feed(event_frame([record(3)], 3))
    assert bench.held(TRIM_HORIZON) == [1, 2, 3]
    assert bench.pool.statistics().used_records == 3


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (exception_frame("InternalFailureException", "oops"), "InternalFailureException"),
        (exception_frame("KMSThrottlingException"), "KMSThrottlingException"),
        (
            message_frame(
                b"", message_type="error", error_code="ServiceUnavailable", error_message="x"
            ),
            "ServiceUnavailable",
        ),
        (
            message_frame(b"not json", message_type="exception", exception_type="Throttling"),
            "Throttling",
        ),
        (
            message_frame(
                b'{"message":' + b"[" * 1000 + b"]" * 1000 + b"}",
                message_type="exception",
                exception_type="InternalFailureException",
            ),
            "InternalFailureException",
        ),
    ],
)
def test_an_exception_in_the_stream_is_counted_and_waited_out(data: bytes, code: str) -> None:
    """Every exception event is mapped to its class, never passed over as unknown (F46)."""
    bench = Bench().feed(event_frame([record(1)], 1)).feed(data)

    assert bench.runner.counters.errors == {code: 1}
    assert bench.machine.state is ShardState.WAITING
    assert bench.machine.position == After("1")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (exception_frame("KMSAccessDeniedException"), AccessError),
        (exception_frame("AccessDeniedException"), AccessError),
    ],
)
def test_an_exception_that_will_not_pass_fails_the_shard(
    data: bytes, kind: type[Exception]
) -> None:
    """The agent can tell why nothing more comes (F45)."""
    bench = Bench().feed(data)

    assert bench.machine.state is ShardState.FAILED
    assert isinstance(bench.runner.failure, kind)


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), RecursionError()])
def test_an_unforeseen_error_stops_the_shard_instead_of_leaving_a_gap(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody thought of is told as our fault, and no later event is taken."""
    bench = Bench().feed(event_frame([record(1)], 1))

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(runner_module, "decode_event", fail)
    bench.feed(event_frame([record(2)], 2))
    monkeypatch.undo()
    bench.feed(event_frame([record(3)], 3))

    assert isinstance(bench.runner.failure, InternalError)
    assert type(error).__name__ in str(bench.runner.failure)
    assert bench.buffer.available == After("1")
    assert room_used(bench) == 0


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError()])
def test_a_buffer_that_takes_no_records_fails_the_shard(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are lost, so nothing that came behind them may be taken (issue 19, 4)."""
    bench = Bench().feed(event_frame([record(1)], 1))

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(bench.buffer, "append", fail)
    bench.feed(event_frame([record(2)], 2))
    monkeypatch.undo()
    bench.feed(event_frame([record(3)], 3))

    assert bench.machine.state is ShardState.FAILED
    assert isinstance(bench.runner.failure, InternalError)
    assert type(error).__name__ in str(bench.runner.failure)
    assert bench.held(TRIM_HORIZON) == [1]


def test_the_end_of_the_shard_reaches_the_buffer_behind_its_records() -> None:
    """The tail is there when the end is (F30)."""
    bench = Bench().feed(event_frame([record(1)], 1))
    bench.feed(event_frame([record(2)], None, children=["a", "b"]))

    assert bench.buffer.available == SHARD_END
    assert bench.held(TRIM_HORIZON) == [1, 2]
    assert bench.machine.state is ShardState.ENDED
    assert bench.changes == 1


def test_an_end_without_children_is_checked() -> None:
    """Nothing is ended before GetRecords has said so (F33)."""
    bench = Bench().feed(event_frame([record(1)], None))

    assert bench.machine.state is ShardState.CHECKING
    assert bench.network.spawned[-1] == "end-check s"
    assert bench.buffer.available == After("1")


@pytest.mark.parametrize(
    "named", [{}, {"message_type": "event"}, {"exception_type": "InternalFailureException"}]
)
def test_an_event_without_its_type_is_not_passed_over(named: dict[str, str]) -> None:
    """It may hold records, and those behind it would leave a gap where they were."""
    bench = Bench().feed(event_frame([record(1)], 1))
    bench.feed(message_frame(event([record(2)], 2), **named))
    bench.feed(event_frame([record(3)], 3))

    assert bench.held(TRIM_HORIZON) == [1]
    assert bench.machine.state is ShardState.WAITING
    assert bench.runner.counters.errors == {"ProtocolError": 1}


def test_counters_tell_bytes_events_and_the_distance_from_the_tip() -> None:
    """What people look at when a query is slow."""
    data = event_frame([record(1)], 1, behind_ms=1234)
    counters = Bench().feed(data).runner.counters

    assert (counters.events, counters.records, counters.bytes) == (1, 1, len(data))
    assert counters.millis_behind == 1234
