"""Which certificates are trusted: the same for every call, botocore's and our own."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.consumers import ensure_consumer
from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import TransientError
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.testing import KinesisServer

SHARD = "shardId-000000000000"


@pytest.fixture(scope="module")
def kinesis() -> Iterator[KinesisServer]:
    """A double with a certificate that only its own authority vouches for."""
    with KinesisServer(tls=True) as kinesis:
        kinesis.create_stream("orders")
        kinesis.put("orders", b"one")
        yield kinesis


async def every_kind_of_call(aws: AwsOptions, consumer: str) -> bytes:
    """A control call, a data call and a subscription; the first bytes of the latter."""
    async with Connection(aws, client_attempts=1) as connection:
        info = await describe_stream(connection, StreamId(name="orders"))
        request = {"StreamARN": info.arn, "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
        await connection.call("GetShardIterator", request, "the shard")
        arn = await ensure_consumer(connection, info, consumer, 30.0, SystemClock())
        async with connection.subscribe(arn, SHARD, TRIM_HORIZON, "the shard") as stream:
            return await stream.chunks.__anext__()


def options(kinesis: KinesisServer) -> AwsOptions:
    return AwsOptions("us-east-1", kinesis.tls_endpoint, "access", "secret")


@pytest.mark.parametrize("named_by", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "profile"])
def test_a_bundle_of_the_user_is_trusted_by_every_call(
    kinesis: KinesisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named_by: str
) -> None:
    """A private endpoint or a proxy that opens TLS: control calls worked, and subscriptions were
    refused for ever with a failed TLS connection.
    """
    for other in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)
    if named_by == "profile":
        config = tmp_path / "config"
        config.write_text(f"[default]\nca_bundle = {kinesis.ca_file}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    else:
        monkeypatch.setenv(named_by, str(kinesis.ca_file))

    assert asyncio.run(every_kind_of_call(options(kinesis), named_by))


def test_without_it_the_certificate_is_not_trusted(kinesis: KinesisServer) -> None:
    """Certificates are checked; the message says what to look at."""

    async def call() -> None:
        async with Connection(options(kinesis)) as connection:
            await connection.call("GetShardIterator", {}, "the shard")

    with pytest.raises(TransientError, match=r"TLS.*Check endpoint and certificates"):
        asyncio.run(call())


def connected_to(kinesis: KinesisServer) -> int:
    """How many sockets of this process are connected to the double."""
    port = int(kinesis.tls_endpoint.rpartition(":")[2])
    return sum(
        c.raddr != () and c.raddr.port == port
        for c in psutil.Process(os.getpid()).net_connections("tcp")
    )


def test_breaking_off_a_subscription_closes_its_socket(
    kinesis: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once. TLS says goodbye first and waits for the answer, and where the event loop ended
    meanwhile a socket was left open. Over HTTP/2 the connection belongs to a thread of its own.
    """
    monkeypatch.setenv("AWS_CA_BUNDLE", str(kinesis.ca_file))
    arn = kinesis.call("DescribeStreamSummary", StreamName="orders")
    stream_arn = arn["StreamDescriptionSummary"]["StreamARN"]

    async def break_off() -> tuple[int, int]:
        aws = dataclasses.replace(options(kinesis), transport="http1")
        async with Connection(aws) as connection:
            info = await describe_stream(connection, StreamId(arn=stream_arn))
            consumer = await ensure_consumer(connection, info, "breaking", 30.0, SystemClock())
            before = connected_to(kinesis)
            async with connection.subscribe(consumer, SHARD, TRIM_HORIZON, "the shard") as stream:
                await stream.chunks.__anext__()
                assert connected_to(kinesis) == before + 1
            for _ in range(3):  # turns of the loop: no answer of the other side is waited for
                await asyncio.sleep(0)
            return before, connected_to(kinesis)

    before, after = asyncio.run(break_off())
    assert after == before
