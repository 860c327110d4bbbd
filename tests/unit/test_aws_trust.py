"""Which certificates are trusted: the same for every call, botocore's and our own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.streams import describe_stream, ensure_consumer
from kinesis_ds.clock import SystemClock
from kinesis_ds.errors import TransientError
from kinesis_ds.options import AwsOptions, StreamId
from kinesis_ds.position import TRIM_HORIZON
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
