"""Beyond the loopback address ranges travel encrypted, and tasks know whom they speak with.

127.0.0.2 stands for an address of the network: it is one of this machine on Linux, and not the
loopback address that goes without TLS.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.agent.range_server import RangeServer
from kinesis_ds.errors import AgentError
from kinesis_ds.plan.position import TRIM_HORIZON, After
from kinesis_ds.plan.ticket import AgentAddress
from tests.support.builders import records

NETWORK_ADDRESS = "127.0.0.2"
DATA = b"a record that nobody else may read"


@contextlib.contextmanager
def serving(host: str, advertised_host: str = "") -> Iterator[RangeServer]:
    buffer = ShardBuffer("s", TRIM_HORIZON, BufferPool(1 << 20))
    buffer.append(records([1], DATA), After("1"), 0)
    server = RangeServer(host, lambda _: buffer, advertised_host=advertised_host)
    yield server
    server.close()


def fetched(address: AgentAddress) -> list[bytes]:
    found = stream_range(address, "s", TRIM_HORIZON, After("1"))
    return [data for batch in found for data in batch.column(1).to_pylist()]


@pytest.mark.parametrize(
    ("host", "advertised"),
    [
        (NETWORK_ADDRESS, ""),
        ("0.0.0.0", NETWORK_ADDRESS),  # noqa: S104
        ("0.0.0.0", "localhost"),  # noqa: S104
    ],
)
def test_a_range_comes_over_tls(host: str, advertised: str) -> None:
    """The certificate is for the address that tasks are told, a number or a name."""
    with serving(host, advertised) as server:
        assert server.address.uri.startswith(f"grpc+tls://{advertised or host}:")
        assert fetched(server.address) == [DATA]
        assert "CERTIFICATE" not in repr(server.address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_on_the_loopback_address_it_is_plain(host: str) -> None:
    """Nothing leaves the machine, so nothing is spent on it."""
    with serving(host) as server:
        assert server.address.uri.startswith(f"grpc://{host}:")
        assert not server.address.root_certs
        assert fetched(server.address) == [DATA]


def test_another_agent_in_its_place_is_refused() -> None:
    """Also if it knows the token: it has no certificate of the authority that the task was told."""
    with serving(NETWORK_ADDRESS) as one, serving(NETWORK_ADDRESS) as other:
        mistaken = replace(other.address, root_certs=one.address.root_certs)
        with pytest.raises(AgentError, match="did not serve shard s"):
            fetched(mistaken)


def test_a_certificate_is_good_for_one_address_only() -> None:
    """Whoever redirects a task to another address of an agent gains nothing."""
    with serving("0.0.0.0", NETWORK_ADDRESS) as server:  # noqa: S104
        elsewhere = server.address.uri.replace(NETWORK_ADDRESS, "127.0.0.3")
        with pytest.raises(AgentError, match="did not serve shard s"):
            fetched(replace(server.address, uri=elsewhere))


def test_a_task_that_speaks_plainly_is_refused() -> None:
    """There is no way back to plain text."""
    with serving(NETWORK_ADDRESS) as server:
        plain = server.address.uri.replace("grpc+tls", "grpc")
        with pytest.raises(AgentError, match="did not serve shard s"):
            fetched(replace(server.address, uri=plain, root_certs=""))


def test_neither_token_nor_record_can_be_read_on_the_way() -> None:
    """All bytes of a fetch, as one sees them who relays them."""
    with serving("0.0.0.0", NETWORK_ADDRESS) as server, Relay(server.address) as relay:  # noqa: S104
        assert fetched(relay.address) == [DATA]
        assert len(relay.seen) > len(DATA)
        assert DATA not in relay.seen
        assert server.address.token.encode() not in relay.seen


class Relay:
    """Passes the bytes of one connection on in both directions and keeps them.

    Attributes:
        address: Where tasks find it.
        seen: All bytes that it has passed on.
    """

    def __init__(self, address: AgentAddress) -> None:
        self.seen = b""
        self._port = int(address.uri.rpartition(":")[2])
        self._listener = socket.create_server((NETWORK_ADDRESS, 0))
        port = self._listener.getsockname()[1]
        self.address = replace(address, uri=f"grpc+tls://{NETWORK_ADDRESS}:{port}")
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Relay:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            task, _ = self._listener.accept()
            agent = socket.create_connection((NETWORK_ADDRESS, self._port))
            self._sockets += [task, agent]
            for source, target in ((task, agent), (agent, task)):
                thread = threading.Thread(target=self._pass, args=(source, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
