"""The double on its sockets: calls, the faults around them, and its life."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import threading
from typing import Any

import psutil
import pytest

from kinesis_ds.testing import (
    AnswerWith,
    Delay,
    Disconnect,
    FailRecords,
    Fault,
    KinesisServer,
    ManualClock,
    MiscountResults,
    NoAnswer,
    Refuse,
    host,
)
from tests.support.polling import eventually
from tests.support.wire import Http1Client, Http2Client, Reply, Torn, WireClient, headers_of

PUTS = [{"Data": base64.b64encode(b"%d" % i).decode(), "PartitionKey": str(i)} for i in range(4)]


def put(client: WireClient) -> Reply:
    return client.post("PutRecords", {"StreamName": "orders", "Records": PUTS})


def stored(server: KinesisServer) -> list[bytes]:
    return [record.data for record in server.records("orders")]


# --- calls --------------------------------------------------------------------------------------


def test_a_call_is_answered(client: WireClient, server: KinesisServer) -> None:
    """And is in the journal, without its records."""
    answer = put(client)

    assert answer.status == 200
    assert answer.json()["FailedRecordCount"] == 0
    assert stored(server) == [b"0", b"1", b"2", b"3"]
    (call,) = server.calls.calls("PutRecords")
    assert (call.target.stream, call.records, call.outcome) == ("orders", 4, "ok")
    assert "Records" not in call.request


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({}, b"{}", "UnknownOperationException"),
        (headers_of("Explode"), b"{}", "UnknownOperationException"),
        (headers_of("ListStreams") | {"Authorization": ""}, b"{}", "MissingAuthenticationToken"),
        (headers_of("ListStreams"), b"{", "SerializationException"),
        (headers_of("ListStreams"), b"[]", "SerializationException"),
        (
            headers_of("ListStreams") | {"Content-Type": "application/x-amz-cbor-1.1"},
            b"\xa0",
            "SerializationException",
        ),
    ],
)
def test_what_is_no_call_is_refused(
    client: WireClient, headers: dict[str, str], body: bytes, code: str
) -> None:
    """With an error of the service, as AWS would."""
    answer = client.post("", body, headers)

    assert answer.status == 400
    assert answer.json()["__type"].startswith(code)


def test_refuse(client: WireClient, server: KinesisServer) -> None:
    """The error comes instead of the call."""
    server.add_faults(Fault(Refuse("InternalFailure", "oh", 500), operation="PutRecords"))
    answer = put(client)

    assert (answer.status, answer.json()) == (500, {"__type": "InternalFailure", "message": "oh"})
    assert stored(server) == []
    assert put(client).status == 200


def test_answer_with(client: WireClient, server: KinesisServer) -> None:
    """Any body, with any status."""
    server.add_faults(Fault(AnswerWith(b"<html>", 200, "text/html"), operation="PutRecords"))
    answer = put(client)

    assert (answer.status, answer.body()) == (200, b"<html>")
    assert stored(server) == []


@pytest.mark.parametrize("performed", [False, True])
def test_disconnect(client: WireClient, server: KinesisServer, performed: bool) -> None:
    """The connection, or the stream of HTTP/2, is torn; the call took effect or not."""
    server.add_faults(Fault(Disconnect(performed), operation="PutRecords"))
    with pytest.raises(Torn):
        put(client).body()

    assert len(stored(server)) == 4 * performed


@pytest.mark.parametrize("performed", [False, True])
def test_no_answer(server: KinesisServer, performed: bool) -> None:
    """Nothing comes for as long as the client likes to wait."""
    server.add_faults(Fault(NoAnswer(performed), operation="PutRecords"))
    client = Http1Client(server.endpoint)

    def wait() -> None:
        with pytest.raises(Torn):
            put(client)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: [c for c in server.calls if c.outcome == "NoAnswer"], "the call")

    assert len(stored(server)) == 4 * performed
    assert waiting.is_alive()
    server.stop()  # nobody else would end it
    waiting.join()
    client.close()


@pytest.mark.parametrize("performed", [False, True])
def test_delay(
    client: WireClient, server: KinesisServer, clock: ManualClock, performed: bool
) -> None:
    """The answer comes when the clock says so; the call takes effect before or after."""
    server.add_faults(Fault(Delay(30, performed), operation="PutRecords"))
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(put(client).json()))
    waiting.start()
    eventually(server.struck, "the fault")
    if performed:
        eventually(lambda: stored(server), "the records")
    assert len(stored(server)) == 4 * performed
    assert answers == []
    clock.advance(30)
    waiting.join()

    assert answers[0]["FailedRecordCount"] == 0
    assert len(stored(server)) == 4


def test_fail_records(client: WireClient, server: KinesisServer) -> None:
    """Those that fail are not stored; the others are, each with its own number."""
    server.add_faults(
        Fault(FailRecords("InternalFailure", first=1, every=2), operation="PutRecords")
    )
    answer = put(client).json()

    assert answer["FailedRecordCount"] == 2
    assert [r.get("ErrorCode") for r in answer["Records"]] == [None, "InternalFailure"] * 2
    assert stored(server) == [b"0", b"2"]
    numbers = [str(r.sequence_number) for r in server.records("orders")]
    assert [r["SequenceNumber"] for r in answer["Records"][::2]] == numbers


@pytest.mark.parametrize("by", [-1, -4, 1])
def test_miscount_results(client: WireClient, server: KinesisServer, by: int) -> None:
    """Everything is stored, and the answer says more or less."""
    server.add_faults(Fault(MiscountResults(by), operation="PutRecords"))

    assert len(put(client).json()["Records"]) == 4 + by
    assert len(stored(server)) == 4


def test_down(server: KinesisServer) -> None:
    """Connections are refused inside the block, and taken behind it at the same address."""
    address = server.endpoint
    client = Http1Client(server.endpoint)
    with server.down(), pytest.raises(ConnectionRefusedError):
        client.post("ListStreams", {})

    assert server.endpoint == address
    assert client.post("ListStreams", {}).json()["StreamNames"] == ["orders"]
    client.close()


# --- life ---------------------------------------------------------------------------------------


def test_stopping_leaves_nothing() -> None:
    """No thread and no socket, whatever was under way."""
    before = {t.name for t in threading.enumerate()}
    sockets = len(psutil.Process().net_connections())
    server = KinesisServer(clock=ManualClock(), tls=True).start()
    clients = [Http1Client(server.endpoint), Http2Client(server)]
    for client in clients:
        client.post("ListStreams", {}).body()
    server.stop()
    server.stop()
    for client in clients:
        client.close()

    assert {t.name for t in threading.enumerate()} == before
    assert len(psutil.Process().net_connections()) == sockets


def test_it_listens_on_loopback_only(server: KinesisServer) -> None:
    """Nobody on another machine can reach it."""
    mine = [c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    ports = {int(url.rpartition(":")[2]) for url in (server.endpoint, server.tls_endpoint)}

    assert {a.ip for a in mine if a.port in ports} == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104
def test_an_address_that_others_reach_is_refused(address: str) -> None:
    """It believes any credentials, so a hostile network must not meet it by an oversight."""
    with pytest.raises(ValueError, match=r"other machines may reach .*exposed"):
        KinesisServer(host=address)


@pytest.mark.parametrize(("address", "shown"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")])
def test_it_listens_where_it_is_told(address: str, shown: str) -> None:
    """Also with TLS, whose certificate is for that address."""
    with KinesisServer(host=address, tls=True) as server:
        secure = Http2Client(server)
        assert secure.post("ListStreams", {}).json()["StreamNames"] == []
        secure.close()
        assert server.endpoint.startswith(f"http://{shown}:")
        client = Http1Client(server.endpoint)
        assert client.post("ListStreams", {}).json()["StreamNames"] == []
        client.close()


def test_an_address_of_a_namespace_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in network namespaces needs one, and nobody outside of this machine reaches it."""
    monkeypatch.setattr(host, "in_namespace", lambda: True)

    assert host.checked_host("192.0.2.1", exposed=False) == "192.0.2.1"
    with pytest.raises(ValueError, match="other machines may reach"):
        host.checked_host("::", exposed=False)
    assert host.checked_host("::", exposed=True) == "::"
    with pytest.raises(ValueError, match="no IP address"):
        host.checked_host("localhost", exposed=True)


def test_any_number_of_streams_is_there_at_once() -> None:
    """At most five may be CREATING for a client. A test asks for streams that are ACTIVE."""
    with KinesisServer() as server:
        for number in range(7):
            server.create_stream(f"stream-{number}")
        for number in range(5):
            server.call("CreateStream", StreamName=f"by-a-client-{number}", ShardCount=1)
        server.create_stream("last")
        assert len(server.call("ListStreams")["StreamNames"]) == 13


def test_a_taken_port_is_an_error(server: KinesisServer) -> None:
    """At the start, where it can be seen."""
    port = int(server.endpoint.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        KinesisServer(port=port).start()


def test_a_failure_of_the_double_itself_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stops it is told: what was tested then proves nothing."""
    server = KinesisServer().start()
    endpoint = server._thread.endpoint
    monkeypatch.setattr(endpoint.account, "call", lambda *_: 1 / 0)
    client = Http1Client(server.endpoint)
    with pytest.raises(Torn):
        client.post("ListStreams", {})
    client.close()

    with pytest.raises(RuntimeError, match="please report"):
        server.stop()


def test_from_a_shell() -> None:
    """It says where it is, has its stream, and ends with a count of what it was asked."""
    with subprocess.Popen(
        [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", "--stream", "orders:3"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        address = lines[0].split()[2]
        client = Http1Client(address)
        shards = client.post("ListShards", {"StreamName": "orders"}).json()["Shards"]
        client.close()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()

    assert lines[1] == "stream orders: 3 shards\n"
    assert len(shards) == 3
    assert rest.split() == ["1", "ListShards", "ok"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "::"], "other machines may reach ::"),
        (["--stream", "orders:many"], "argument --stream: 'orders:many' is not NAME[:SHARDS]"),
        (["--stream", "a b"], "stream a b: ValidationException"),
    ],
)
def test_from_a_shell_a_wrong_argument_is_one_line(arguments: list[str], said: str) -> None:
    """What is wrong with it, and no traceback."""
    process = subprocess.run(
        [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert process.returncode != 0
    assert said in process.stderr.splitlines()[-1]


def test_from_a_shell_it_ends_with_its_input() -> None:
    """Whoever holds the other end may be killed, and then cannot end it otherwise."""
    with subprocess.Popen(
        [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", "--while-fed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Kinesis at http://127.0.0.1:")
        process.stdin.close()
        assert process.wait(30) == 0
