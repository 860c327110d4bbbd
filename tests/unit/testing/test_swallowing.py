"""Wire-speed mode of PutRecords: acknowledged as if stored, in the right shard, and not kept."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config

from kinesis_ds.testing import KinesisServer
from kinesis_ds.testing.hashing import hash_of


@pytest.mark.parametrize("shards", [1, 4])
def test_every_record_is_acknowledged_in_its_shard_and_none_is_kept(shards: int) -> None:
    """With sequence numbers that differ; other streams keep what they get."""
    with KinesisServer() as server:
        server.create_stream("orders", shards)
        server.create_stream("kept")
        server.swallow("orders")
        client = boto3.client(
            "kinesis",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",  # of the double
            config=Config(retries={"total_max_attempts": 1}),
        )
        entries = [{"Data": b"x" * n, "PartitionKey": f'"{n}"'} for n in range(100)]
        answers = [client.put_records(StreamName="orders", Records=entries) for _ in range(2)]
        client.put_records(StreamName="kept", Records=entries[:1])
        client.close()

        ids = server.open_shards("orders")
        expected = [ids[hash_of(e["PartitionKey"]) * shards >> 128] for e in entries]  # type: ignore[call-overload]
        assert [r["ShardId"] for r in answers[0]["Records"]] == expected
        numbers = [int(r["SequenceNumber"]) for answer in answers for r in answer["Records"]]
        assert numbers == sorted(set(numbers))
        assert [answer["FailedRecordCount"] for answer in answers] == [0, 0]
        assert not server.records("orders")
        assert len(server.records("kept")) == 1
