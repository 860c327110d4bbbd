"""Where calls go, what opening costs, and how much of an answer is read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from botocore.loaders import Loader

from kinesis_ds.aws import http1, session
from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.consumers import ensure_consumer
from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import (
    OptionError,
    ProtocolError,
    TransientError,
)
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.testing import AnswerWith, Fault, KinesisServer, Settings
from tests.support.sts import StsDouble

SHARD = "shardId-000000000000"
REQUEST = {"StreamName": "orders", "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
ORDERS = StreamId(name="orders")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Keys, and nothing else of this machine's user."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    return monkeypatch


@pytest.fixture
def kinesis() -> Iterator[KinesisServer]:
    with KinesisServer(Settings(consumer_ready_s=0.0)) as kinesis:
        kinesis.create_stream("orders")
        kinesis.put("orders", b"one")
        yield kinesis


def run_with(aws: AwsOptions, query: Callable[[Connection], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Connection(aws, client_attempts=1) as connection:
            return await query(connection)

    return asyncio.run(run())


async def ask(connection: Connection) -> dict[str, Any]:
    """A data call."""
    return await connection.call("GetShardIterator", REQUEST, "the shard")


async def every_kind_of_call(connection: Connection) -> bytes:
    """A data call, control calls and a subscription; the first bytes of the latter."""
    await ask(connection)
    info = await describe_stream(connection, ORDERS)
    arn = await ensure_consumer(connection, info, "reader", 30.0, SystemClock())
    async with connection.subscribe(arn, SHARD, TRIM_HORIZON, "the shard") as stream:
        return await stream.chunks.__anext__()


def here_only(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """From now on nothing is connected to that is not on this machine; lists what was tried."""
    tried: list[object] = []
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and address[0] != "127.0.0.1":
            tried.append(address)
            raise ConnectionRefusedError(f"not from a test: {address}")
        connect(sock, address)

    def guarded_resolve(host: Any, *more: Any, **named: Any) -> Any:
        if host not in ("127.0.0.1", b"127.0.0.1"):
            tried.append(host)
            raise socket.gaierror(f"not from a test: {host}")
        return resolve(host, *more, **named)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)
    return tried


def test_nothing_is_sent_elsewhere_than_to_the_endpoints(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """With ``endpoint`` and ``stsEndpoint`` no kind of call goes to AWS, whatever the region."""
    tried = here_only(environment)
    with StsDouble() as sts:
        aws = AwsOptions(
            "eu-central-1",
            kinesis.endpoint,
            role_arn="arn:aws:iam::123456789012:role/reader",
            sts_endpoint=sts.endpoint,
        )
        assert run_with(aws, every_kind_of_call)
        assert len(sts.asked) == 1
    assert tried == []

    # The guard itself: without them all would have gone to AWS.
    with pytest.raises(TransientError):
        run_with(AwsOptions("eu-central-1"), ask)
    assert tried
    del tried[:]
    with pytest.raises(TransientError):
        run_with(AwsOptions("eu-central-1", kinesis.endpoint, role_arn=aws.role_arn), ask)
    assert tried


def services_file(folder: Path, **endpoints: str) -> str:
    """A config file of AWS with an endpoint for each service."""
    file = folder / "config"
    lines = [f"{name} =\n  endpoint_url = {url}" for name, url in endpoints.items()]
    file.write_text("\n".join(["[default]", "services = local", "[services local]", *lines, ""]))
    return str(file)


@pytest.mark.parametrize("by", ["AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL", "file"])
def test_endpoints_of_the_environment_are_used_by_every_call(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    """As by boto3: control calls, data calls and subscriptions alike."""
    if by == "file":
        environment.setenv("AWS_CONFIG_FILE", services_file(tmp_path, kinesis=kinesis.endpoint))
    else:
        environment.setenv(by, kinesis.endpoint)
    tried = here_only(environment)

    assert run_with(AwsOptions("us-east-1"), every_kind_of_call)
    assert tried == []


@pytest.mark.parametrize("by", ["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL", "file"])
def test_endpoints_of_the_environment_are_used_for_the_role_too(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    """Where the options name none for STS."""
    aws = AwsOptions("us-east-1", kinesis.endpoint, role_arn="arn:aws:iam::123456789012:role/r")
    with StsDouble() as sts:
        if by == "file":
            environment.setenv("AWS_CONFIG_FILE", services_file(tmp_path, sts=sts.endpoint))
        else:
            environment.setenv(by, sts.endpoint)
        tried = here_only(environment)
        run_with(aws, every_kind_of_call)
        assert len(sts.asked) == 1
    assert tried == []


def test_options_win_over_the_environment(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """For Kinesis and for STS, each its own."""
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    environment.setenv("AWS_ENDPOINT_URL_KINESIS", "http://127.0.0.1:9")
    environment.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with StsDouble() as sts:
        aws = AwsOptions(
            "us-east-1",
            kinesis.endpoint,
            role_arn="arn:aws:iam::123456789012:role/reader",
            sts_endpoint=sts.endpoint,
        )
        assert run_with(aws, every_kind_of_call)
        assert [asked.region for asked in sts.asked] == ["us-east-1"]


def test_the_region_may_come_from_the_environment(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """For data calls, which sign it, as for the client."""
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert run_with(AwsOptions(None, kinesis.endpoint), every_kind_of_call)


@pytest.mark.parametrize("query", [ask, lambda c: describe_stream(c, ORDERS)])
def test_without_a_region_the_option_is_named(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch, query: Any
) -> None:
    """Whichever call comes first."""
    with pytest.raises(OptionError, match="region"):
        run_with(AwsOptions(None, kinesis.endpoint), query)


@pytest.mark.parametrize("secret", ["", "user:p%40ss@"])
def test_the_environments_proxy_is_used_and_a_password_file_is_not(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch, tmp_path: Path, secret: str
) -> None:
    """A password for the host, from .netrc, would take the signature's place."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        environment.delenv(name, raising=False)
    environment.setenv("http_proxy", kinesis.endpoint.replace("//", f"//{secret}"))
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    netrc.chmod(0o600)
    environment.setenv("NETRC", str(netrc))
    tried = here_only(environment)

    # A name for each case: what the environment says is looked up once a process.
    endpoint = f"http://kinesis-{len(secret)}.invalid"
    assert run_with(AwsOptions("us-east-1", endpoint), ask)["ShardIterator"]
    assert tried == []


def test_the_hash_of_a_long_body_is_the_one_that_is_signed(environment: pytest.MonkeyPatch) -> None:
    """It is made beside the loop, and the signature is the one botocore would have made of it."""
    body = b"x" * 200_000

    async def sign(connection: Connection) -> dict[str, str]:
        request = await connection._signer.sign("PutRecords", body, "http://h", "us-east-1")
        assert "Authorization" not in repr(request)
        return request.headers

    headers = run_with(AwsOptions("us-east-1", "http://h"), sign)
    assert headers["X-Amz-Content-SHA256"] == hashlib.sha256(body).hexdigest()
    assert "x-amz-content-sha256" in headers["Authorization"]


# --- what opening costs -------------------------------------------------------------------------


def test_data_calls_need_no_client(kinesis: KinesisServer, environment: pytest.MonkeyPatch) -> None:
    """A task that reads a range would wait for it longer than for its records."""
    environment.setattr(AioSession, "create_client", _not_to_be_called)
    assert run_with(AwsOptions("us-east-1", kinesis.endpoint), ask)["ShardIterator"]


def _not_to_be_called(*_: object, **__: object) -> None:
    raise AssertionError("a client was made")


def test_calls_at_once_make_one_client(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """The first one makes it, the others wait for it."""
    made: list[object] = []
    create = AioSession.create_client

    @contextlib.asynccontextmanager
    async def creating(session: AioSession, *given: Any, **named: Any) -> AsyncIterator[Any]:
        made.append(session)
        await asyncio.sleep(0)  # as one that asks for credentials does
        async with create(session, *given, **named) as client:
            yield client

    environment.setattr(AioSession, "create_client", creating)

    async def query(connection: Connection) -> None:
        await asyncio.gather(*(describe_stream(connection, ORDERS) for _ in range(5)))

    run_with(AwsOptions("us-east-1", kinesis.endpoint), query)
    assert len(made) == 1


def test_models_are_read_once_a_process(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """They are most of what a client costs, and a role has another one."""
    session.models.cache_clear()
    read: list[object] = []
    load = Loader.load_data_with_path

    def loading(loader: Loader, name: str) -> Any:
        read.append((loader, name))
        return load(loader, name)

    environment.setattr(Loader, "load_data_with_path", loading)
    aws = AwsOptions("us-east-1", kinesis.endpoint)
    run_with(aws, lambda c: describe_stream(c, ORDERS))
    assert read
    run_with(aws, lambda c: describe_stream(c, ORDERS))

    assert len({loader for loader, _ in read}) == 1


def test_a_client_is_not_made_after_the_end(
    kinesis: KinesisServer, environment: pytest.MonkeyPatch
) -> None:
    """Nobody would close it."""

    async def late() -> None:
        async with Connection(AwsOptions("us-east-1", kinesis.endpoint)) as connection:
            pass
        await describe_stream(connection, ORDERS)

    with pytest.raises(TransientError, match="was closed"):
        asyncio.run(late())


# --- answers ------------------------------------------------------------------------------------


@pytest.fixture(params=[200])
def endless(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server whose answers never end; the parameter is their status."""
    status = request.param
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as there:
                there.recv(65536)
                there.sendall(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
                try:
                    while True:
                        there.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_an_answer_without_end_is_given_up(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read, not after: what is read of it must fit in memory, and end."""
    monkeypatch.setattr(http1, "MAX_FRAME_BYTES", 1024 * 1024)
    with pytest.raises(ProtocolError, match="more than 1048576 bytes"):
        run_with(AwsOptions("us-east-1", endless, "a", "b"), ask)


@pytest.mark.parametrize(("length", "fits"), [(1000, True), (1001, False)])
def test_the_longest_answer_is_taken(
    monkeypatch: pytest.MonkeyPatch, *, length: int, fits: bool
) -> None:
    """To the byte."""
    monkeypatch.setattr(http1, "MAX_FRAME_BYTES", 1000)
    body = b'{"ShardIterator":"' + b"x" * (length - 20) + b'"}'
    with KinesisServer(faults=[Fault(AnswerWith(body), "GetShardIterator", times=None)]) as kinesis:
        aws = AwsOptions("us-east-1", kinesis.endpoint, "a", "b")
        if fits:
            assert len(run_with(aws, ask)["ShardIterator"]) == length - 20
        else:
            with pytest.raises(ProtocolError, match="more than 1000 bytes"):
                run_with(aws, ask)


@pytest.mark.parametrize("endless", [400, 500], indirect=True)
def test_an_error_without_end_is_one(endless: str) -> None:
    """It is cut where no error of Kinesis is as long."""
    with pytest.raises(TransientError, match=r"answered HTTP (400|500)"):
        run_with(AwsOptions("us-east-1", endless, "a", "b"), ask)
