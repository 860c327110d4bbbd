"""Fetching from an agent that does not answer: it costs little, and not every time."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from kinesis_ds.agent import range_client
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.errors import AgentError
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON
from kinesis_ds.plan.ticket import AgentAddress

UNANSWERED = "did not serve shard s: .*connect"


@pytest.fixture(params=["drops", "mute"])
def hole(request: pytest.FixtureRequest) -> Iterator[AgentAddress]:
    """An address whose packets are dropped, and one that is taken by something that says nothing.

    Linux drops what would connect to a socket whose queue is full.
    """
    with contextlib.ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        if request.param == "drops":
            for _ in range(3):
                waiting = sockets.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listening.getsockname())
        yield AgentAddress(f"grpc://127.0.0.1:{listening.getsockname()[1]}", "token")


class Clock:
    """The machine's time, and what a test adds to it."""

    added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


def ask(address: AgentAddress, clock: Clock) -> None:
    list(stream_range(address, "s", TRIM_HORIZON, SHARD_END, clock))


def test_an_agent_out_of_reach_costs_little_and_once(
    hole: AgentAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC alone takes 20 s for each range. For a minute it is not asked again, then it is; an
    agent with another token is another agent, though its address is the same.
    """
    monkeypatch.setattr(range_client, "_CONNECT_TIMEOUT_S", 0.3)
    clock = Clock()
    asked = time.monotonic()
    with pytest.raises(AgentError, match=UNANSWERED):
        ask(hole, clock)
    assert time.monotonic() - asked < 10

    for added in (0, 1, 50):
        clock.added = added
        with pytest.raises(
            AgentError, match=r"could not be reached \d+s ago; it is tried again in"
        ):
            ask(hole, clock)
    with pytest.raises(AgentError, match=UNANSWERED):
        ask(AgentAddress(hole.uri, "another"), clock)
    clock.added = 61
    with pytest.raises(AgentError, match=UNANSWERED):
        ask(hole, clock)


def test_an_agent_that_is_gone_is_asked_each_time() -> None:
    """Its host refuses at once, which costs nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = AgentAddress(f"grpc://127.0.0.1:{listening.getsockname()[1]}", "token")
    for _ in range(3):
        with pytest.raises(AgentError, match=UNANSWERED):
            ask(address, Clock())


def test_what_is_remembered_is_bounded() -> None:
    """The agents of one query; those that failed last."""
    memory = range_client._Unreachable()
    agents = [AgentAddress(f"grpc://h:{n}", "t") for n in range(40)]
    for agent in agents:
        memory.note(agent, 0, 20)

    memory.check(agents[0], 20)
    with pytest.raises(AgentError):
        memory.check(agents[-1], 20)
