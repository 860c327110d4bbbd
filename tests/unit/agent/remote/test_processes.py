"""The parent's side of agent processes, with processes that only wait."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.processes import AgentProcesses
from kinesis_ds.errors import InternalError, ThrottledError
from kinesis_ds.options.aws import AwsOptions
from tests.support.fast import fast_network
from tests.support.polling import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_ds.aws.loop import NetworkLoop

OPTIONS = AgentOptions("orders", "arn", "c", 30.0, fail_on_data_loss=True, host="127.0.0.1")
WAITS = (sys.executable, "-S", "-c", "import sys; sys.stdin.read()")


class Channel:
    """Keeps what a process would be sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: messages.Message) -> None:
        self.sent.append(message)


@pytest.fixture
def network() -> Iterator[NetworkLoop]:
    network = fast_network(AwsOptions(region="us-east-1"))
    yield network
    network.close()


@pytest.mark.parametrize(
    ("error", "kind"), [(KeyError("p"), InternalError), (ThrottledError("slow"), ThrottledError)]
)
def test_a_process_is_answered_whatever_its_diagnosis_raised(
    network: NetworkLoop, error: Exception, kind: type[Exception]
) -> None:
    """A shard whose question has no answer would stay in DIAGNOSING for ever (issue 19, 3)."""

    async def diagnose(shard_id: str) -> None:
        raise error

    processes = AgentProcesses(1, 1 << 20, AwsOptions(region="us-east-1"), network, command=WAITS)
    try:
        agent = processes.agent(OPTIONS, diagnose, lambda: None)
        asked, channel = messages.Diagnose(7, agent.number, "a"), Channel()
        network.post(processes.heard, 0, channel, asked)
        eventually(lambda: channel.sent, "an answer")
    finally:
        processes.close()

    (answer,) = channel.sent
    assert (answer.call, answer.raised) == (7, True)
    assert type(answer.error) is kind
