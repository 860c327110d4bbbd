"""Which transport a subscription takes, and how its connection over HTTP/2 is made."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kinesis_ds.aws import transport as transport_choice
from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.http2 import connector
from kinesis_ds.aws.http2.stream import Http2Stream
from kinesis_ds.errors import (
    OptionError,
    TransientError,
)
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.testing import (
    KinesisServer,
    endpoint,
)
from tests.support.subscriptions import Reader, run


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was said of transports."""
    transport_choice.log_fall_back.cache_clear()
    transport_choice.http2_installed.cache_clear()
    with caplog.at_level(logging.INFO, logger="kinesis_ds.aws.transport"):
        yield lambda: [r.getMessage() for r in caplog.records]
    transport_choice.http2_installed.cache_clear()


def uses(kinesis: KinesisServer, consumer: str, transport: str) -> str:
    """The transport that a subscription took, twice."""

    async def story(reader: Reader) -> str:
        for _ in range(2):
            async with reader.subscribe() as stream:
                await stream.chunks.__anext__()
        return "http2" if isinstance(stream.chunks, Http2Stream) else "http1"

    return str(run(kinesis, consumer, transport, story))


Told = Callable[[], list[str]]


def test_auto_takes_http2_where_it_is_offered(
    kinesis: KinesisServer, consumer: str, told: Told
) -> None:
    """And says nothing."""
    assert uses(kinesis, consumer, "auto") == "http2"
    assert uses(kinesis, consumer, "http1") == "http1"
    assert told() == []


def test_without_an_offer_auto_falls_back_and_says_so_once(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALPN decides; who insists on HTTP/2 is told what to do."""
    certificate = kinesis._thread.certificate
    assert certificate is not None  # the double offers both; a test takes one away
    certificate.context.set_alpn_protocols(["http/1.1"])

    assert uses(kinesis, consumer, "auto") == "http1"
    assert uses(kinesis, consumer, "auto") == "http1"
    (line,) = told()
    assert "HTTP/1.1" in line
    assert "offers no HTTP/2" in line
    with pytest.raises(OptionError, match="transport is http2, and the endpoint offers no HTTP/2"):
        uses(kinesis, consumer, "http2")


def test_without_awscrt_auto_falls_back_and_says_how_to_get_it(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; who insists is told the same before anything is sent."""
    monkeypatch.setitem(sys.modules, "awscrt.http", None)

    assert uses(kinesis, consumer, "auto") == "http1"
    assert uses(kinesis, consumer, "auto") == "http1"
    (line,) = told()
    assert "pip install 'awscrt>=0.31.3'" in line
    for url in (None, kinesis.tls_endpoint):
        with pytest.raises(OptionError, match=r"pip install 'awscrt>=0\.31\.3'"):
            transport_choice.check_transport("http2", url)


def test_a_proxy_keeps_auto_on_http1(
    kinesis: KinesisServer, consumer: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP/2 would go past it; where NO_PROXY names the endpoint there is none."""
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint) is False
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint) is False
    (line,) = told()
    assert "HTTPS_PROXY" in line
    with pytest.raises(OptionError, match="NO_PROXY"):
        transport_choice.check_transport("http2", kinesis.tls_endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert transport_choice.prefers_http2("auto", kinesis.tls_endpoint)


def test_without_tls_there_is_no_http2(kinesis: KinesisServer, told: Told) -> None:
    """And nothing is imported to find that out."""
    assert not transport_choice.prefers_http2("auto", kinesis.endpoint)
    assert transport_choice.http2_installed.cache_info().misses == 0
    with pytest.raises(OptionError, match="https://"):
        transport_choice.prefers_http2("http2", kinesis.endpoint)
    (line,) = told()
    assert "without TLS" in line


def test_a_certificate_that_is_not_trusted_is_told(
    kinesis: KinesisServer, consumer: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP/2 too, where the runtime keeps a failed handshake to itself for half a minute."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setattr(connector, "_ASK_PYTHON_AFTER_S", 0.1)

    with pytest.raises(TransientError, match="certificate verify failed"):
        uses(kinesis, consumer, transport)


def test_who_does_not_shake_hands_is_given_up(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and says nothing, to nobody."""
    monkeypatch.setattr(connector, "_ASK_PYTHON_AFTER_S", 0.1)
    monkeypatch.setattr(connector, "_CONNECT_TIMEOUT_S", 0.3)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"https://127.0.0.1:{silent.getsockname()[1]}"
        aws = AwsOptions("us-east-1", place, "access", "secret", transport="http2")

        async def whole() -> None:
            async with (
                Connection(aws, client_attempts=1) as connection,
                Reader(connection, consumer).subscribe(),
            ):
                pass

        with pytest.raises(TransientError, match="No TLS connection"):
            asyncio.run(whole())


def test_what_python_trusts_is_trusted(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody names a bundle: as over HTTP/1.1, where aiohttp asks Python."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(kinesis.ca_file))

    assert uses(kinesis, consumer, "http2") == "http2"


def test_a_folder_of_certificates_is_trusted(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As over HTTP/1.1, its files named by their hashes."""
    (tmp_path / "ca.pem").write_bytes(kinesis.ca_file.read_bytes())
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True)  # noqa: S607
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path))

    assert uses(kinesis, consumer, "http2") == "http2"


def test_what_is_signed_is_what_is_sent(
    kinesis: KinesisServer, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP/2 has no Host: the authority is what the signature says of it."""
    sent: list[Any] = []
    read_call = endpoint.read_call

    def note_and_read(request: Any, account: str) -> Any:
        sent.append(request)
        return read_call(request, account)

    monkeypatch.setattr(endpoint, "read_call", note_and_read)

    assert uses(kinesis, consumer, "http2") == "http2"
    request = sent[0]
    assert request.http_version == "2"
    again = AWSRequest("POST", kinesis.tls_endpoint, data=request.body)
    signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert "host" in signed
    for name in set(signed) - {"host"}:
        again.headers[name] = request.headers[name]
    again.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("access", "secret"), "kinesis", "us-east-1")
    signature = signer.signature(
        signer.string_to_sign(again, signer.canonical_request(again)), again
    )
    assert request.headers[":authority"] == kinesis.tls_endpoint.removeprefix("https://")
    assert request.headers["authorization"].endswith(f"Signature={signature}")
