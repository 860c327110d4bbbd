"""A stream of a target, and the calls that most tests make on the way to the one they are about."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from integration.contract.subscription import Subscription

if TYPE_CHECKING:
    from integration.contract.targets import Target

HASH_KEYS = 2**128
MIB = 2**20

# Where the documentation names one of these for any value that it does not allow, but not which:
# the constraints of the service model are ValidationException, the rules beyond it InvalidArgument.
INVALID = ("InvalidArgumentException", "ValidationException")


@contextlib.contextmanager
def refused(*codes: str) -> Iterator[pytest.ExceptionInfo[ClientError]]:
    """The block ends with an error of the service that has one of these codes."""
    with pytest.raises(ClientError) as caught:
        yield caught
    assert caught.value.response["Error"]["Code"] in codes


@contextlib.contextmanager
def _connections_closed() -> Iterator[None]:
    """Closes the connection of an answer that botocore cannot read, and so leaves to nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        except ResponseParserError as error:
            unreadable = str(error)  # not the error itself: its traceback has the connection
        else:
            return
        gc.collect()
    raise ResponseParserError(unreadable)


@dataclass(frozen=True)
class Stream:
    """A stream by its name."""

    target: Target
    name: str

    @property
    def client(self) -> Any:
        return self.target.client

    def __repr__(self) -> str:
        return f"<{self.name} on {self.target.name}>"

    def summary(self) -> dict[str, Any]:
        """What DescribeStreamSummary says."""
        return self.client.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"]

    @property
    def arn(self) -> str:
        return self.summary()["StreamARN"]

    def wait_until_active(self) -> None:
        """Return when the stream has been made, or changed."""
        self.target.wait_until(
            lambda: self.summary()["StreamStatus"] == "ACTIVE", what=f"{self.name} is ACTIVE"
        )

    def shards(self, **options: Any) -> list[dict[str, Any]]:
        """All shards that ListShards gives."""
        page = self.client.list_shards(StreamName=self.name, **options)
        shards = page["Shards"]
        while token := page.get("NextToken"):
            page = self.client.list_shards(NextToken=token)
            shards += page["Shards"]
        return shards

    def open_shards(self) -> list[dict[str, Any]]:
        """Those that have no end, in the order of their hash keys."""
        shards = [s for s in self.shards() if not is_closed(s)]
        return sorted(shards, key=lambda s: hash_range(s)[0])

    def put(self, data: bytes = b"x", *, hash_key: int | None = None) -> dict[str, Any]:
        """Write one record; the answer has its shard and its sequence number."""
        where = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
        return self.client.put_record(StreamName=self.name, PartitionKey="key", Data=data, **where)

    def put_many(self, *data: bytes, hash_key: int | None = None) -> dict[str, Any]:
        """Write records with one PutRecords call."""
        where = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
        return self.client.put_records(
            StreamName=self.name,
            Records=[{"PartitionKey": "key", "Data": d, **where} for d in data],
        )

    def iterator(self, shard_id: str, kind: str = "TRIM_HORIZON", **options: Any) -> str:
        """A new iterator at a position of a shard."""
        return self.client.get_shard_iterator(
            StreamName=self.name, ShardId=shard_id, ShardIteratorType=kind, **options
        )["ShardIterator"]

    def read(self, iterator: str, *, at_least: int = 0) -> list[dict[str, Any]]:
        """The records from there to the tip of the shard, as many as are to be expected or more."""
        records: list[dict[str, Any]] = []
        at: str | None = iterator

        def read_to_tip() -> bool:
            nonlocal at
            while at:
                answer = self.client.get_records(ShardIterator=at)
                records.extend(answer["Records"])
                at = answer.get("NextShardIterator")
                if answer["MillisBehindLatest"] == 0:
                    break
            return at is None or len(records) >= at_least

        # A record may be readable only some time after it was acknowledged, on AWS.
        self.target.wait_until(
            read_to_tip,
            what=f"{at_least} records of {self.name}",
            within_s=self.target.patience_s if self.target.limited else 1,
            every_s=0.5,
        )
        return records

    def read_from(
        self, shard_id: str, kind: str = "TRIM_HORIZON", *, at_least: int = 0, **options: Any
    ) -> list[bytes]:
        """The data of the records from a position to the tip of a shard."""
        iterator = self.iterator(shard_id, kind, **options)
        return [record["Data"] for record in self.read(iterator, at_least=at_least)]

    def split(self, shard: dict[str, Any], at: int | None = None) -> list[dict[str, Any]]:
        """Split a shard at a hash key, in the middle where none is given; its children."""
        low, high = hash_range(shard)
        self.client.split_shard(
            StreamName=self.name,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str(at or (low + high) // 2 + 1),
        )
        self.wait_until_active()
        return self.children(shard)

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Merge two shards; their child."""
        self.client.merge_shards(
            StreamName=self.name,
            ShardToMerge=one["ShardId"],
            AdjacentShardToMerge=other["ShardId"],
        )
        self.wait_until_active()
        (child,) = self.children(one)
        return child

    def children(self, shard: dict[str, Any]) -> list[dict[str, Any]]:
        """The shards that name this one as a parent, in the order of their hash keys."""
        children = [s for s in self.shards() if shard["ShardId"] in parents(s)]
        return sorted(children, key=lambda s: hash_range(s)[0])

    def consumer(self, name: str) -> str:
        """The ARN of a new consumer, ACTIVE."""
        arn = self.client.register_stream_consumer(StreamARN=self.arn, ConsumerName=name)[
            "Consumer"
        ]["ConsumerARN"]
        self.wait_for_consumer(arn)
        return arn

    def wait_for_consumer(self, arn: str) -> None:
        """Return when the consumer can be used."""
        self.target.wait_until(
            lambda: self.consumer_status(arn) == "ACTIVE", what=f"{arn} is ACTIVE"
        )

    def consumer_status(self, arn: str) -> str:
        """What DescribeStreamConsumer says."""
        described = self.client.describe_stream_consumer(ConsumerARN=arn)
        return described["ConsumerDescription"]["ConsumerStatus"]

    def subscribe(
        self, consumer: str, shard_id: str, kind: str = "TRIM_HORIZON", **position: Any
    ) -> Subscription:
        """A subscription that the service has accepted; a context manager."""
        with _connections_closed():
            answer = self.client.subscribe_to_shard(
                ConsumerARN=consumer, ShardId=shard_id, StartingPosition={"Type": kind, **position}
            )
        return Subscription(self.target, answer["EventStream"])


def hash_range(shard: dict[str, Any]) -> tuple[int, int]:
    """The first and the last hash key of a shard, or of a child shard."""
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


def is_closed(shard: dict[str, Any]) -> bool:
    """Whether a shard takes no more records."""
    return shard["SequenceNumberRange"].get("EndingSequenceNumber") is not None


def parents(shard: dict[str, Any]) -> set[str]:
    """The ids of the shards that this one was made from."""
    return {shard[key] for key in ("ParentShardId", "AdjacentParentShardId") if shard.get(key)}
