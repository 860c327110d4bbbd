"""A role, the options that name it, and calls that are signed with its credentials."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kinesis_ds.aws.connection import Connection
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.testing import KinesisServer, ManualClock
from tests.support.sts import StsDouble

ROLE = "arn:aws:iam::123456789012:role/reader"
EXTERNAL_ID = "Hush-ExternalId"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TOKEN = "FwoGZXIvYXdzEXAMPLETOKEN//////////wEaD"
KEY = "AKIAIOSFODNN7EXAMPLE"
REQUEST = {
    "StreamName": "orders",
    "ShardId": "shardId-000000000000",
    "ShardIteratorType": "TRIM_HORIZON",
}
MINUTE = 60.0


def role_options(kinesis: KinesisServer, sts: StsDouble, **more: Any) -> AwsOptions:
    given: dict[str, Any] = {
        "region": "us-east-1",
        "endpoint": kinesis.endpoint,
        "access_key": KEY,
        "secret_key": SECRET,
        "session_token": TOKEN,
        "role_arn": ROLE,
        "role_external_id": EXTERNAL_ID,
        "sts_endpoint": sts.endpoint,
    }
    return AwsOptions(**{**given, **more})


async def ask(connection: Connection) -> None:
    """A data call."""
    await connection.call("GetShardIterator", REQUEST, "the shard")


@contextlib.asynccontextmanager
async def asking(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock, **more: Any
) -> AsyncIterator[Connection]:
    """A connection that asks as the role, and has done so once."""
    async with Connection(role_options(kinesis, sts, **more), clock=clock) as connection:
        await ask(connection)
        yield connection


def signed_with(kinesis: KinesisServer) -> list[str]:
    """The access keys of all calls."""
    return [call.access_key for call in kinesis.calls]
