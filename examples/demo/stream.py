"""The demo's stream: made for one run, resharded, and deleted."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

if TYPE_CHECKING:
    from collections.abc import Iterator


class StreamError(RuntimeError):
    """A call about the stream was refused; the message says which and why."""


@dataclass(frozen=True)
class ShardInfo:
    """A shard as ListShards shows it."""

    shard_id: str
    parents: tuple[str, ...]
    first_hash: int
    last_hash: int
    open: bool


def use_dummy_credentials() -> None:
    """Have this process and its children sign with made-up credentials, never with real ones."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def connect(endpoint: str | None, region: str | None) -> tuple[Any, str]:
    """A Kinesis client, and the region that it talks to.

    A local server takes any credentials, so with an endpoint and none configured, dummies will do.
    """
    with _plainly("set up access to Kinesis"):
        session = botocore.session.get_session()
        region = region or session.get_config_variable("region")
        if session.get_credentials() is None and endpoint is not None:
            use_dummy_credentials()
            session = botocore.session.get_session()
        if region is None and endpoint is None:
            raise NoRegionError
        region = region or "us-east-1"
        if session.get_credentials() is None:
            raise NoCredentialsError
        client = session.create_client(
            "kinesis",
            region_name=region,
            endpoint_url=endpoint,
            config=Config(
                connect_timeout=5,
                read_timeout=15,
                retries={"total_max_attempts": 4, "mode": "standard"},
            ),
        )
    return client, region


class DemoStream:
    """A stream that this run made, and nobody else uses.

    Waiting is the caller's: calls return at once, and `active` tells when their effect is there.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.name = name
        self._client = client

    def create(self, shards: int) -> None:
        """Make it; a stream of that name that exists already is left alone, with an error."""
        with _plainly(f"create stream {self.name}"):
            self._client.create_stream(StreamName=self.name, ShardCount=shards)

    def active(self) -> bool:
        """Whether it can be used: it was created, or its last reshard is done."""
        with _plainly(f"describe stream {self.name}"):
            summary = self._client.describe_stream_summary(StreamName=self.name)
        return bool(summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE")

    def shards(self) -> list[ShardInfo]:
        """All shards, closed ones too, in the order of their ids."""
        found: list[ShardInfo] = []
        request: dict[str, str] = {"StreamName": self.name}
        while request:
            with _plainly(f"list the shards of stream {self.name}"):
                answer = self._client.list_shards(**request)
            found += [_shard(described) for described in answer["Shards"]]
            token = answer.get("NextToken")
            request = {"NextToken": token} if token else {}
        return sorted(found, key=lambda shard: shard.shard_id)

    def split(self, shard: ShardInfo) -> None:
        """Split a shard in the middle."""
        with _plainly(f"split {shard.shard_id}"):
            self._client.split_shard(
                StreamName=self.name,
                ShardToSplit=shard.shard_id,
                NewStartingHashKey=str((shard.first_hash + shard.last_hash + 1) // 2),
            )

    def merge(self, left: ShardInfo, right: ShardInfo) -> None:
        """Merge two shards whose hash ranges touch."""
        with _plainly(f"merge {left.shard_id} and {right.shard_id}"):
            self._client.merge_shards(
                StreamName=self.name,
                ShardToMerge=left.shard_id,
                AdjacentShardToMerge=right.shard_id,
            )

    def delete(self) -> None:
        """Delete it with the consumer that the reading job registered."""
        with _plainly(f"delete stream {self.name}"):
            self._client.delete_stream(StreamName=self.name, EnforceConsumerDeletion=True)


def neighbours(shards: list[ShardInfo]) -> tuple[ShardInfo, ShardInfo]:
    """Two open shards that can be merged: where there is such a pair, an old one and a child."""
    ordered = sorted((s for s in shards if s.open), key=lambda shard: shard.first_hash)
    pairs = [(a, b) for a, b in itertools.pairwise(ordered) if a.last_hash + 1 == b.first_hash]
    if not pairs:
        raise StreamError("no two open shards of the stream can be merged")
    return max(pairs, key=lambda pair: bool(pair[0].parents) != bool(pair[1].parents))


def _shard(described: dict[str, Any]) -> ShardInfo:
    parents = (described.get("ParentShardId"), described.get("AdjacentParentShardId"))
    return ShardInfo(
        shard_id=described["ShardId"],
        parents=tuple(parent for parent in parents if parent),
        first_hash=int(described["HashKeyRange"]["StartingHashKey"]),
        last_hash=int(described["HashKeyRange"]["EndingHashKey"]),
        open="EndingSequenceNumber" not in described["SequenceNumberRange"],
    )


@contextlib.contextmanager
def _plainly(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StreamError(f"could not {what}: {error}") from error
