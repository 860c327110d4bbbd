"""The servers that other tests use: they run, on loopback only, and stop when they should."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import psutil
import pytest

from devtools.installing import CHECKOUT
from devtools.ministack import Ministack
from devtools.server import HOST, Server, ServerError
from devtools.waiting import wait_until
from integration.streams import client_of, stream

START_AND_WAIT = """
import sys
from devtools.localstack import LocalStack
print(LocalStack().start().port, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["localstack", "ministack", "kinesis_local"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each of the servers in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(server: Server) -> Any:
    """A client of the server of this test."""
    return client_of(server)


def listening(tree: set[int]) -> set[tuple[str, int]]:
    """Return the addresses on which these processes accept connections."""
    return {
        connection.laddr
        for pid in tree
        for connection in psutil.Process(pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }


def tree_of(server: Server) -> set[int]:
    """Return the processes of a server: its supervisor and all its descendants."""
    (supervisor,) = (
        process
        for process in psutil.Process().children()
        if process.cwd() == str(server.scratch.resolve())
    )
    return {supervisor.pid, *(child.pid for child in supervisor.children(recursive=True))}


def test_server_listens_on_loopback_only(server: Server) -> None:
    """Nothing of a server can be reached from another machine."""
    addresses = listening(tree_of(server))
    assert (HOST, server.port) in addresses
    assert {host for host, _ in addresses} == {HOST}


def test_record_put_is_the_record_got(client: Any, make_stream: Any) -> None:
    """A record comes back from the shard that it was put into, byte for byte."""
    name = make_stream(shards=2, client=client)
    data = bytes(range(256))
    put = client.put_record(StreamName=name, PartitionKey="key", Data=data)
    iterator = client.get_shard_iterator(
        StreamName=name, ShardId=put["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    (record,) = client.get_records(ShardIterator=iterator)["Records"]
    assert (record["Data"], record["PartitionKey"], record["SequenceNumber"]) == (
        data,
        "key",
        put["SequenceNumber"],
    )


def test_stream_is_gone_after_its_test(client: Any) -> None:
    """What one test makes is not there for the next."""
    with stream(client) as name:
        assert name in client.list_streams()["StreamNames"]
    wait_until(lambda: name not in client.list_streams()["StreamNames"], what=f"{name} is deleted")


def test_taken_port_is_refused() -> None:
    """A port that is in use gives an error that names it."""
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} "):
            Ministack(port).start()


def test_stop_leaves_no_process() -> None:
    """After the `with` block no process of the server is left, and its port is free."""
    with Ministack() as server:
        tree = tree_of(server)
        assert len(tree) > 1
    assert not {pid for pid in tree if psutil.pid_exists(pid)}
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, server.port))


def test_server_dies_with_a_killed_starter(localstack: Server) -> None:
    """SIGKILL of the starter gives it no chance to clean up; LocalStack and its Node end anyway."""
    del localstack  # only so that it is installed
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().strip().isdigit()
        tree = psutil.Process(starter.pid).children(recursive=True)
        assert len(tree) >= 3
        os.kill(starter.pid, signal.SIGKILL)
    wait_until(
        lambda: not [process for process in tree if process.is_running()],
        what="the end of every process of the server",
    )


def test_two_servers_run_side_by_side() -> None:
    """Two test runs on one machine do not meet."""
    with Ministack() as one, Ministack() as two:
        assert one.port != two.port
        assert one.scratch != two.scratch
