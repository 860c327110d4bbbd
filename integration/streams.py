"""Clients of a local server, and streams that exist for one test."""

from __future__ import annotations

import contextlib
import uuid
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from aws_kinesis_agg.deaggregator import iter_deaggregate_records
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
    """Make an ACTIVE stream under a new name; delete it and its consumers afterwards."""
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


def everything_in(kinesis: Any, stream: str) -> list[tuple[str, str, str]]:
    """Return every record of open and closed shards: shard, key, data as text.

    Aggregates are taken apart by AWS's own library, which leaves plain records unchanged.
    """
    records = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        shard_id = shard["ShardId"]
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            answer = kinesis.get_records(ShardIterator=iterator)
            for user in iter_deaggregate_records(answer["Records"], data_format="Boto3"):
                record = user["kinesis"]
                data = b64decode(record["data"]) if record.get("aggregated") else record["data"]
                records.append((shard_id, record["partitionKey"], data.decode()))
            iterator = answer.get("NextShardIterator")
            if not answer["Records"] and not answer["MillisBehindLatest"]:
                break
    return records


def split_a_shard(kinesis: Any, stream: str) -> None:
    """Split the first open shard in its middle, and return when that is done."""
    shard = next(
        shard
        for shard in kinesis.list_shards(StreamName=stream)["Shards"]
        if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
    )
    hashes = shard["HashKeyRange"]
    middle = (int(hashes["StartingHashKey"]) + int(hashes["EndingHashKey"])) // 2 + 1
    kinesis.split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
    )
    wait_until_active(kinesis, stream)
