"""An agent process, as far as it says why it does not begin."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import Deframer, encode
from kinesis_ds.agent.remote.host import _AgentProcess, run
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import AccessError, AgentError, KinesisConnectorError, OptionError
from kinesis_ds.options.aws import AwsOptions

if TYPE_CHECKING:
    from kinesis_ds.aws.loop import NetworkLoop


def refuse(aws: AwsOptions) -> NetworkLoop:
    raise AccessError(f"nobody may in {aws.region}.")


def answer_to(*said: bytes) -> tuple[bytes, int]:
    """What the process says before it ends, and its exit status."""
    ours, theirs = socket.socketpair()
    with ours, ThreadPoolExecutor(1) as threads:
        with theirs:
            status = threads.submit(run, theirs, refuse)
            ours.sendall(b"".join(said))
            ours.shutdown(socket.SHUT_WR)
            code = status.result(20)
        with ours.makefile("rb") as heard:
            return heard.read(), code


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """It sets the level of its log, and a test is not a process of its own."""
    before = logging.getLogger("kinesis_ds").level
    yield
    logging.getLogger("kinesis_ds").setLevel(before)


def hello(version: int = messages.CONTROL_VERSION) -> bytes:
    return encode(messages.Hello(version, AwsOptions("us-east-1"), 1, 1, 30))


def refusal(raw: bytes) -> KinesisConnectorError:
    message = next(Deframer().feed(raw))
    assert isinstance(message, messages.Failed)
    return message.error


def test_a_network_that_cannot_be_had_is_told_as_it_is() -> None:
    """It would not be had the next time either."""
    said, code = answer_to(hello())

    assert code == 1
    assert isinstance(refusal(said), AccessError)
    assert refusal(said).message == "nobody may in us-east-1."


def test_a_parent_of_another_version_is_refused() -> None:
    """Before anything of what it says is done."""
    said, code = answer_to(hello(messages.CONTROL_VERSION + 1))

    assert code == 1
    assert isinstance(refusal(said), AgentError)


@pytest.mark.parametrize("said", [b"", b"\x00\x00", hello()[:20], encode(messages.CloseAgent(1))])
def test_without_a_whole_hello_it_ends_in_silence(said: bytes) -> None:
    """The parent is gone, or is none."""
    assert answer_to(said) == (b"", 1)


def test_where_it_cannot_listen_is_told_as_it_is() -> None:
    """The next process could not listen there either, so no other one is started."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    options = AgentOptions("orders", "arn", "", 1.0, fail_on_data_loss=True, host="192.0.2.1")
    said = messages.Hello(messages.CONTROL_VERSION, AwsOptions("us-east-1"), 1, 1, 30)
    with ours, theirs:
        process = _AgentProcess(theirs, said, Mock(), SystemClock())
        process.handle(messages.OpenAgent(1, options))
        deframer, heard = Deframer(), []
        while not any(isinstance(message, messages.Failed) for message in heard):
            heard += deframer.feed(ours.recv(65536))
        process.close()

    (error,) = (message.error for message in heard if isinstance(message, messages.Failed))
    assert isinstance(error, OptionError)
    assert error.message == "agentHost is 192.0.2.1, which is no address of the driver."
