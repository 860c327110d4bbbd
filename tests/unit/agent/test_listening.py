"""Where an agent listens; why it cannot is told in words that lead on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kinesis_ds.agent import listening
from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.listening import check_host, find_port
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.agent.range_server import RangeServer
from kinesis_ds.datasource import KinesisDataSource
from kinesis_ds.errors import OptionError
from kinesis_ds.plan.position import TRIM_HORIZON, After
from tests.support.builders import records

# Documentation's own network: no machine has this address.
FOREIGN = "192.0.2.1"


def buffer() -> ShardBuffer:
    found = ShardBuffer("s", TRIM_HORIZON, BufferPool(1 << 20))
    found.append(records([1]), After("1"), 0)
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of 127.0.0.1 on which an agent of another query listens."""
    server = RangeServer("127.0.0.1", lambda _: buffer())
    yield int(server.address.uri.rpartition(":")[2])
    server.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_TAKEN_FOR_S", 0.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0"])  # noqa: S104
def test_an_address_of_this_machine_is_fine(host: str) -> None:
    """Also a name, and all addresses at once."""
    check_host(host)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (FOREIGN, "agentHost is 192.0.2.1, which is no address of the driver. Set agentHost to"),
        ("driver.invalid", "agentHost is driver.invalid, and the driver cannot resolve this name"),
    ],
)
def test_another_address_is_refused_when_the_query_is_built(host: str, said: str) -> None:
    """Before a batch is planned, and naming the option."""
    source = KinesisDataSource({"streamName": "orders", "agentHost": host})

    with pytest.raises(OptionError) as caught:
        source.schema()
    assert said in str(caught.value)


@pytest.mark.usefixtures("impatient")
def test_a_port_that_is_taken_is_refused(taken: int) -> None:
    """gRPC itself would share it, and half the tasks would ask the wrong agent."""
    with pytest.raises(OptionError, match=f"agentPort: port {taken} of 127.0.0.1 is taken"):
        RangeServer("127.0.0.1", lambda _: buffer(), ports=(taken, taken))


def test_the_next_port_of_a_range_is_taken_instead(taken: int) -> None:
    """Each agent takes the first that is free."""
    assert taken < find_port("127.0.0.1", taken, taken + 20) <= taken + 20


def test_a_port_that_becomes_free_is_waited_for(taken: int) -> None:
    """A query that is started again meets the end of the one before."""
    with contextlib.closing(socket.socket()) as before:
        before.bind(("127.0.0.1", 0))
        before.listen()
        port = before.getsockname()[1]
        slept = []

        def release(seconds: float) -> None:
            slept.append(seconds)
            before.close()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listening.time, "sleep", release)
            assert find_port("127.0.0.1", port, port) == port
        assert slept


def test_tasks_are_sent_to_the_advertised_address() -> None:
    """The agent listens on all addresses, and tasks connect to one that they know."""
    port = find_port("127.0.0.1", 0, 0)
    server = RangeServer(
        "0.0.0.0",  # noqa: S104
        lambda _: buffer(),
        advertised_host="127.0.0.2",
        ports=(port, port),
    )
    try:
        assert "//127.0.0.2:" in server.address.uri
        (batch,) = stream_range(server.address, "s", TRIM_HORIZON, After("1"))
        assert batch.num_rows == 1
    finally:
        server.close()


def test_each_process_has_ports_of_its_own() -> None:
    """All ports are given out, each once."""
    options = AgentOptions("orders", "arn", "", 1.0, fail_on_data_loss=True, host="127.0.0.1")
    assert options.part(1, 3) is options
    ranged = replace(options, first_port=40000, last_port=40006)

    parts = [ranged.part(number, 3) for number in range(3)]
    given = [port for part in parts for port in range(part.first_port, part.last_port + 1)]
    assert given == list(range(40000, 40007))
    assert all(part.first_port <= part.last_port for part in parts)
