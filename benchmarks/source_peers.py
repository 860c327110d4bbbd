"""Peers of the source: data sources that a user could write. The connector uses none of them.

* :class:`Ceiling` makes the batches that the source would give, from memory, in ``read`` itself.
* :class:`PlainFanOut` has tasks that call boto3's ``subscribe_to_shard`` and yield its records, as
  botocore's own event parser gives them, as tuples.
* :class:`PlainPolling` does the same with ``get_records``.

Each runs an empty batch first, as the source does. The peers then read all in one batch: in the
next one they would be refused a subscription for five seconds.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import boto3
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.testing import Replay
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.wire.event_stream import MessageParser
from kinesis_ds.wire.schema import SOURCE_DDL, to_source_batch

if TYPE_CHECKING:
    import pyarrow as pa

_STREAM = "orders"


@dataclass(frozen=True)
class Share(InputPartition):
    """The part of one task: so many records, of a shard if there is one."""

    records: int
    shard_id: str = ""


class _Planned(DataSourceStreamReader):
    """An empty batch, then so many of the same tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._asked = 0

    def tasks(self) -> list[Share]:
        """Tasks of each batch."""
        raise NotImplementedError

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:
        self._asked = min(self._asked + 1, 1 + int(self.options.get("batches", 1)))
        return {"batch": self._asked}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Share]:
        return self.tasks() if end["batch"] > max(start["batch"], 1) else []


class _CeilingReader(_Planned):
    def tasks(self) -> list[Share]:
        records = int(self.options["events"]) * int(self.options["records"])
        return [Share(records) for _ in range(int(self.options["tasks"]))]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        batch = _batch(int(self.options["records"]), int(self.options["bytes"]))
        for _ in range(partition.records // batch.num_rows):
            yield batch


@functools.cache
def _batch(records: int, record_bytes: int) -> pa.RecordBatch:
    """Decode an event as the source does."""
    parser = MessageParser()
    parser.feed(Replay.of(1, records, record_bytes).frames[0])
    message = parser.take()
    assert message is not None
    decoded = decode_event(message.payload, TRIM_HORIZON).records
    assert decoded is not None
    return to_source_batch(decoded.batch, _STREAM, "shardId-000000000000")


class _Shards(_Planned):
    def tasks(self) -> list[Share]:
        records = int(self.options["records"])
        return [
            Share(records, f"shardId-{shard:012}") for shard in range(int(self.options["shards"]))
        ]


class _FanOutReader(_Shards):
    def read(self, partition: Share) -> Iterator[tuple[Any, ...]]:
        answer = client_at(self.options["endpoint"]).subscribe_to_shard(
            ConsumerARN=self.options["consumer"],
            ShardId=partition.shard_id,
            StartingPosition={"Type": "TRIM_HORIZON"},
        )
        left = partition.records
        with contextlib.closing(answer["EventStream"]) as events:
            for event in events:
                records = event["SubscribeToShardEvent"]["Records"]
                yield from _rows(records, self.options["stream"], partition.shard_id)
                left -= len(records)
                if left <= 0:
                    return


class _PollingReader(_Shards):
    def read(self, partition: Share) -> Iterator[tuple[Any, ...]]:
        client = client_at(self.options["endpoint"])
        iterator = client.get_shard_iterator(
            StreamName=self.options["stream"],
            ShardId=partition.shard_id,
            ShardIteratorType="TRIM_HORIZON",
        )["ShardIterator"]
        left = partition.records
        while left > 0:
            answer = client.get_records(ShardIterator=iterator)
            yield from _rows(answer["Records"], self.options["stream"], partition.shard_id)
            left -= len(answer["Records"])
            iterator = answer["NextShardIterator"]


class _Peer(DataSource):
    """The common part of all peers."""

    kind: ClassVar[str]
    reader: ClassVar[type[_Planned]]

    @classmethod
    def name(cls) -> str:
        return cls.kind

    def schema(self) -> str:
        return SOURCE_DDL

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        return self.reader(dict(self.options))


class Ceiling(_Peer):
    """Options: ``batches``, ``tasks`` a batch, ``events`` a task, of ``records`` of ``bytes``."""

    kind = "ceiling"
    reader = _CeilingReader


class PlainFanOut(_Peer):
    """Options: ``endpoint``, ``stream``, ``consumer`` (ARN), ``shards``, ``records`` a shard."""

    kind = "plain_fan_out"
    reader = _FanOutReader


class PlainPolling(_Peer):
    """Options: as those of :class:`PlainFanOut`, without the consumer."""

    kind = "plain_polling"
    reader = _PollingReader


def _rows(records: list[dict[str, Any]], stream: str, shard_id: str) -> Iterator[tuple[Any, ...]]:
    for record in records:
        yield (
            record["PartitionKey"],
            record["Data"],
            stream,
            shard_id,
            record["SequenceNumber"],
            record["ApproximateArrivalTimestamp"],
        )


@functools.cache
def client_at(endpoint: str) -> Any:
    """A boto3 client of the double; one a process, which keeps it for its next tasks."""
    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106  # of the double
    )
