"""What can go wrong between a subscription and its buffer, on a real socket of this machine.

Everything is real but Kinesis: the network loop, the signed requests, the lanes, the buffer and the
Flight server. The service's pauses are shortened; that they are kept is the state machine's matter.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.agent import subscription
from kinesis_ds.agent.agent import AgentOptions, ShardAgent
from kinesis_ds.agent.client import stream_range
from kinesis_ds.agent.decode import sequence_numbers
from kinesis_ds.agent.network import NetworkLoop
from kinesis_ds.aws import records as records_module
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import (
    AccessError,
    ConsumerError,
    DataLossError,
    KinesisConnectorError,
    ProtocolError,
)
from kinesis_ds.limits import MIB
from kinesis_ds.options import AwsOptions
from kinesis_ds.position import SHARD_END, TRIM_HORIZON, After, Position
from kinesis_ds.shards import Shard
from kinesis_ds.testing.frames import exception_message as exception_frame
from kinesis_ds.testing.frames import initial_message as initial_frame
from tests.support.builders import event_frame, record, shard
from tests.support.loopback import CUT, FOREVER, Gate, LoopbackServer, Play, Refuse, Script
from tests.support.polling import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.fault

START = initial_frame()


def one(n: int, size: int = 10) -> bytes:
    """An event with record ``n``, to be continued behind it."""
    return event_frame([record(n, b"x" * size)], n)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become hundredths."""
    monkeypatch.setattr(subscription, "SUBSCRIBE_MIN_INTERVAL_S", 0.01)
    monkeypatch.setattr(subscription, "SUBSCRIBE_AFTER_SUCCESS_S", 0.05)
    monkeypatch.setattr(subscription, "_BACKOFF_CAP_S", 0.05)
    monkeypatch.setattr(subscription, "_IDLE_AT_TIP_S", 0.05)
    monkeypatch.setattr(records_module, "GET_RECORDS_MIN_INTERVAL_S", 0.01)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


class Agent:
    """A real agent that reads from the loopback server."""

    def __init__(self, url: str, **options: object) -> None:
        self.diagnosis: KinesisConnectorError | None = None
        self.diagnosed: list[str] = []
        aws = AwsOptions("us-east-1", url, "access", "secret")
        self.network = NetworkLoop(aws)
        defaults = {"buffer_bytes": 64 * MIB, "idle_timeout_s": 60.0, "fail_on_data_loss": True}
        self.agent = ShardAgent(
            AgentOptions("orders", "arn", "consumer", host="127.0.0.1", **{**defaults, **options}),  # type: ignore[arg-type]
            self.network,
            SystemClock(),
            self._diagnose,
            lambda: None,
        )

    async def _diagnose(self, shard_id: str) -> KinesisConnectorError | None:
        self.diagnosed.append(shard_id)
        return self.diagnosis

    def assign(self, *shards: Shard, position: Position = TRIM_HORIZON) -> Agent:
        async def assign() -> None:
            for s in shards:
                self.agent.assign(s, position)

        self.network.run(assign(), 10, "assign")
        return self

    def read(self, shard_id: str = "a", start: Position = TRIM_HORIZON) -> list[int]:
        """What can be planned behind ``start``, fetched over Flight as a task does."""
        available = self.agent.available()[shard_id]
        batches = stream_range(self.agent.address, shard_id, start, available)
        return [n for batch in batches for n in sequence_numbers(batch)]

    def wait_for(self, *numbers: int, shard_id: str = "a") -> None:
        """Until the last number is there; then all of them are, once and in order."""
        eventually(lambda: numbers[-1] in self.read(shard_id), f"record {numbers[-1]}")
        assert self.read(shard_id) == list(numbers)

    def state(self, shard_id: str = "a") -> str:
        return str(self.agent.statistics()["shards"][shard_id]["state"])

    def errors(self, shard_id: str = "a") -> dict[str, int]:
        return dict(self.agent.statistics()["shards"][shard_id]["errors"])

    def failure(self) -> KinesisConnectorError:
        found = eventually(self.agent.failure, "a failure")
        assert found is not None
        return found

    def close(self) -> None:
        self.agent.close()
        self.network.close()


@pytest.fixture
def agent(server: LoopbackServer) -> Iterator[Agent]:
    agent = Agent(server.url)
    yield agent
    agent.close()


# --- cut, damaged, ended ------------------------------------------------------------------------

CUTS = [1, 11, 12, 13, 60, len(one(2)) - 1]


@pytest.mark.parametrize("at", CUTS)
def test_a_connection_cut_inside_a_frame_loses_and_repeats_nothing(
    server: LoopbackServer, agent: Agent, at: int
) -> None:
    """The next subscription starts behind the last whole event (F18)."""
    gate = Gate()
    server.play(
        "a", Play(START, one(1), one(2)[:at], gate, CUT), Play(START, one(2), one(3), FOREVER)
    )
    agent.assign(shard("a"))
    agent.wait_for(1)  # what is cut off unread is not lost either, but read again
    gate.open()

    agent.wait_for(1, 2, 3)
    assert server.positions("a") == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]


@pytest.mark.parametrize("at", CUTS)
def test_a_body_that_ends_inside_a_frame_loses_and_repeats_nothing(
    server: LoopbackServer, agent: Agent, at: int
) -> None:
    """A proper end of the HTTP body is no proper end of the stream."""
    server.play("a", Play(START, one(1), one(2)[:at]), Play(START, one(2), one(3), FOREVER))
    agent.assign(shard("a"))

    agent.wait_for(1, 2, 3)
    assert server.positions("a") == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]
    assert agent.errors() == {"TransientError": 1}


def test_damage_every_time_is_given_up(server: LoopbackServer, agent: Agent) -> None:
    """Five in a row without one event, and the query is told."""
    server.play("a", *[Play(START[:-1] + b"\x00", FOREVER)] * 6)
    agent.assign(shard("a"))

    assert isinstance(agent.failure(), ProtocolError)
    assert len(server.calls) == 5


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "subscribe is not supported here"}', "not an event stream"),
        (b"{}", "ended with 2 bytes that begin no event"),
    ],
)
def test_a_body_that_is_no_event_stream_is_given_up_and_told(
    server: LoopbackServer, agent: Agent, body: bytes, said: str
) -> None:
    """An endpoint that answers 200 with something else is no Kinesis (F47)."""
    server.play("a", *[Play(body)] * 6)
    agent.assign(shard("a"))

    assert said in str(agent.failure())
    assert len(server.calls) == 5


def test_records_sent_again_are_dropped(server: LoopbackServer, agent: Agent) -> None:
    """A server that starts too early repeats nothing into the buffer (F19)."""
    both = event_frame([record(1), record(2)], 2)
    server.play("a", Play(START, both), Play(START, both, one(2), one(3), FOREVER))
    agent.assign(shard("a"))

    agent.wait_for(1, 2, 3)


# --- exceptions and refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "InternalFailureException",
        "KMSThrottlingException",
        "ResourceInUseException",
        "LimitExceededException",
    ],
)
def test_an_exception_in_the_stream_that_passes(
    server: LoopbackServer, agent: Agent, code: str
) -> None:
    """Events before it count, and reading goes on behind them (F46)."""
    server.play(
        "a", Play(START, one(1), exception_frame(code, "x"), one(9)), Play(START, one(2), FOREVER)
    )
    agent.assign(shard("a"))

    agent.wait_for(1, 2)
    assert server.positions("a") == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:1"]
    assert agent.errors() == {code: 1}


def test_an_exception_in_the_stream_that_does_not_pass(
    server: LoopbackServer, agent: Agent
) -> None:
    """A key that was taken away is told with its code, and what came before is served (F45)."""
    server.play(
        "a", Play(START, one(1), exception_frame("KMSAccessDeniedException", "no"), FOREVER)
    )
    agent.assign(shard("a"))

    failure = agent.failure()
    assert isinstance(failure, AccessError)
    assert failure.code == "KMSAccessDeniedException"
    agent.wait_for(1)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(Refuse.with_code("ResourceInUseException"), id="in use"),
        pytest.param(Refuse.with_code("LimitExceededException"), id="limit"),
        pytest.param(Refuse.with_code("ProvisionedThroughputExceededException"), id="throughput"),
        pytest.param(Refuse.with_code("InternalFailure", status=500), id="internal failure"),
        pytest.param(Refuse(503, b"<html>busy</html>"), id="503 of a proxy"),
        pytest.param(Refuse(500, b""), id="500 without a body"),
        pytest.param(Refuse(404, b"not here"), id="404 without an error of Kinesis"),
        pytest.param(Refuse(400, b"[]"), id="400 with other JSON"),
    ],
)
def test_a_refusal_that_passes(server: LoopbackServer, agent: Agent, script: Script) -> None:
    """It is waited out, twice, and then reading starts where it was to start (F25)."""
    server.play("a", script, script, Play(START, one(1), FOREVER))
    agent.assign(shard("a"))

    agent.wait_for(1)
    assert server.positions("a") == ["TRIM_HORIZON"] * 3
    assert agent.agent.failure() is None


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_refusal_for_good_is_told_with_its_code(
    server: LoopbackServer, agent: Agent, pieces: int
) -> None:
    """Denied access fails at once, in however many pieces the answer comes (F45)."""
    server.play("a", Refuse.with_code("com.amazon#AccessDeniedException", "not you", pieces=pieces))
    agent.assign(shard("a"))

    failure = agent.failure()
    assert isinstance(failure, AccessError)
    assert failure.code == "AccessDeniedException"
    assert "not you" in str(failure)
    assert len(server.calls) == 1


def test_a_position_that_is_gone_fails_by_default(server: LoopbackServer, agent: Agent) -> None:
    """failOnDataLoss: shard and position are named (F21)."""
    server.play("a", Refuse.with_code("InvalidArgumentException", "StartingSequenceNumber"))
    agent.assign(shard("a"), position=After("5"))

    failure = agent.failure()
    assert isinstance(failure, DataLossError)
    assert "AFTER:5" in str(failure)


def test_a_position_that_is_gone_goes_on_at_the_oldest(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """failOnDataLoss=false: one warning, and the oldest record, never 'now' (F22)."""
    agent = Agent(server.url, fail_on_data_loss=False)
    server.play("a", Refuse.with_code("InvalidArgumentException"), Play(START, one(8), FOREVER))
    with caplog.at_level(logging.WARNING):
        agent.assign(shard("a"), position=After("5"))
        eventually(lambda: agent.read(start=After("5")) == [8], "record 8")
    agent.close()

    assert server.positions("a") == ["AFTER_SEQUENCE_NUMBER:5", "TRIM_HORIZON"]
    assert [r.message for r in caplog.records if "AFTER:5 is gone" in r.message]


def test_a_deleted_consumer_is_no_finished_shard(server: LoopbackServer, agent: Agent) -> None:
    """ResourceNotFound is looked into, and the cause is told (F32)."""
    agent.diagnosis = ConsumerError("the consumer was deregistered")
    server.play("a", Play(START, one(1), exception_frame("ResourceNotFoundException")))
    agent.assign(shard("a"))

    assert agent.failure() is agent.diagnosis
    assert agent.agent.available()["a"] == After("1")


def test_an_endpoint_that_is_down_is_tried_again_and_diagnosed() -> None:
    """Connections refused are passing failures; now and then it is asked why."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        agent = Agent(f"http://127.0.0.1:{unused.getsockname()[1]}").assign(shard("a"))
        eventually(lambda: len(agent.diagnosed) >= 2, "two diagnoses")
        agent.close()

    assert agent.errors()["TransientError"] >= 6
    assert agent.agent.failure() is None


# --- the end ------------------------------------------------------------------------------------


def test_the_end_of_a_shard_comes_behind_its_last_records(
    server: LoopbackServer, agent: Agent
) -> None:
    """Records of the last event are there when the end is (F30)."""
    server.play("a", Play(START, one(1), event_frame([record(2)], None, children=["b", "c"])))
    agent.assign(shard("a"))
    eventually(lambda: agent.agent.available()["a"] == SHARD_END, "the end")

    assert agent.read() == [1, 2]
    assert len(server.calls) == 1


def test_a_closed_shard_that_just_breaks_off_is_confirmed(
    server: LoopbackServer, agent: Agent
) -> None:
    """LocalStack breaks the connection: GetRecords says that nothing more will come (F33)."""
    asked = []

    def drained(iterator: str) -> dict[str, object]:
        asked.append(iterator)
        return {"Records": [], "MillisBehindLatest": 0}

    gate = Gate()
    server.get_records = drained
    server.play("a", Play(START, one(1), gate, CUT))
    agent.assign(shard("a", closed=True))
    agent.wait_for(1)
    gate.open()
    eventually(lambda: agent.agent.available()["a"] == SHARD_END, "the end")

    assert agent.read() == [1]
    assert asked == ["AFTER_SEQUENCE_NUMBER:1"]


def test_a_closed_shard_with_records_left_is_read_on(server: LoopbackServer, agent: Agent) -> None:
    """The end is evidence, not the broken connection."""
    left = [[record(2)], []]

    def answer(iterator: str) -> dict[str, object]:
        return {"Records": left.pop(0), "MillisBehindLatest": 0}

    gates = [Gate(), Gate()]
    server.get_records = answer
    server.play(
        "a", Play(START, one(1), gates[0], CUT), Play(START, one(2), gates[1], CUT), Play(FOREVER)
    )
    agent.assign(shard("a", closed=True))
    for gate, *numbers in ((gates[0], 1), (gates[1], 1, 2)):
        agent.wait_for(*numbers)
        gate.open()
    eventually(lambda: agent.agent.available()["a"] == SHARD_END, "the end")

    assert agent.read() == [1, 2]


def test_a_closed_shard_that_idles_at_the_tip_is_confirmed(
    server: LoopbackServer, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kinesis-mock sends heartbeats for ever: after a while GetRecords is asked."""
    gate = Gate()
    server.play("a", Play(START, one(1), gate, event_frame([], 1), FOREVER))
    agent.assign(shard("a", closed=True))
    agent.wait_for(1)
    monkeypatch.setattr(subscription, "_IDLE_AT_TIP_S", 0.0)
    gate.open()
    eventually(lambda: agent.agent.available()["a"] == SHARD_END, "the end")

    assert agent.read() == [1]
    eventually(lambda: server.open == 0, "its connection is closed")
