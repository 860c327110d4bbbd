"""Clients of a local server, and streams that come and go."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from localstack_client.session import Session

from devtools.server import HOST, REGION, Server
from devtools.waiting import wait_until


def client_of(server: Server) -> Any:
    """A synchronous Kinesis client that talks to this server and to nothing else."""
    session = Session(
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name=REGION,
        localstack_host=f"{HOST}:{server.port}",
    )
    return session.client("kinesis")


@contextlib.contextmanager
def stream(kinesis: Any, shards: int = 1) -> Iterator[str]:
    """An ACTIVE stream under a name never used before; gone with its consumers afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kinesis.create_stream(StreamName=name, ShardCount=shards)
    try:
        wait_until_active(kinesis, name)
        yield name
    finally:
        kinesis.delete_stream(StreamName=name, EnforceConsumerDeletion=True)


def wait_until_active(kinesis: Any, name: str) -> None:
    """Return when the stream can be used: after its creation, or after a change of its shards."""

    def active() -> bool:
        summary = kinesis.describe_stream_summary(StreamName=name)
        return summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE"

    wait_until(active, what=f"stream {name} is ACTIVE")
