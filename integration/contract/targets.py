"""What the contract is held against: a Kinesis, a client of it, and a way to let its time pass."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from devtools.server import REGION
from devtools.waiting import NotInTimeError
from integration.contract.stream import Stream

T = TypeVar("T")

AWS_WANTED = "KINESIS_DS_CONTRACT_AWS"

# One try for each call, since an error is what many tests are about, and no wait without an end.
_CONFIG = Config(
    retries={"total_max_attempts": 1},
    connect_timeout=5,
    read_timeout=60,
    max_pool_connections=50,
)

# AWS counts these calls, per account, stream or shard: 5 a second, or 10 and 20 for the describing
# ones. The names are those of the API.
_SECONDS_BETWEEN = {
    "CreateStream": 0.21,
    "DecreaseStreamRetentionPeriod": 0.21,
    "DeleteStream": 0.21,
    "DeregisterStreamConsumer": 0.21,
    "DescribeStream": 0.11,
    "DescribeStreamConsumer": 0.06,
    "DescribeStreamSummary": 0.06,
    "GetRecords": 0.21,
    "GetShardIterator": 0.21,
    "IncreaseStreamRetentionPeriod": 0.21,
    "ListStreamConsumers": 0.21,
    "ListStreams": 0.21,
    "MergeShards": 0.21,
    "RegisterStreamConsumer": 0.21,
    "SplitShard": 0.21,
    "UpdateMaxRecordSize": 0.21,
    "UpdateShardCount": 0.21,
    "UpdateStreamMode": 0.21,
}


@dataclass
class Target:
    """One Kinesis.

    Attributes:
        name: as in the table of differences.
        client: a boto3 client that tries once.
        pass_time: lets that many seconds pass for the server: moves the clock of our double, sleeps
            for any other.
        now: the server's time in seconds, for differences only.
        moves_time: whether time stands still until `pass_time` moves it.
        patience_s: how long something that happens at once there may take to be seen.
        limited: whether it limits rates as AWS does. Then calls are made no faster than it allows,
            except inside `unpaced`.
    """

    name: str
    client: Any
    pass_time: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    moves_time: bool = False
    patience_s: float = 3.5
    limited: bool = False
    _paced: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.limited:
            self.client.meta.events.register("before-call.kinesis", self._keep_pace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _keep_pace(self, model: Any, **_: object) -> None:
        if self._paced and (seconds := _SECONDS_BETWEEN.get(model.name)):
            self.pass_time(seconds)

    @contextlib.contextmanager
    def unpaced(self) -> Iterator[None]:
        """Calls in the block are made as fast as they can be, whatever the server's limits."""
        before, self._paced = self._paced, False
        try:
            yield
        finally:
            self._paced = before

    def wait_until(
        self,
        condition: Callable[[], T],
        *,
        what: str,
        within_s: float = 60.0,
        every_s: float = 0.1,
    ) -> T:
        """As `devtools.waiting.wait_until`, in the server's time."""
        deadline = self.now() + within_s
        while True:
            late = self.now() >= deadline
            if value := condition():
                return value
            if late:
                raise NotInTimeError(f"{what}: not within {within_s:g} s; last seen {value!r}")
            self.pass_time(every_s)

    @contextlib.contextmanager
    def stream(self, shards: int | None = 1) -> Iterator[Stream]:
        """An ACTIVE stream under a name never used before; gone with its consumers afterwards.

        Without a number of shards it is an on-demand stream.
        """
        made = Stream(self, new_name())
        capacity = (
            {"ShardCount": shards} if shards else {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
        )
        self.client.create_stream(StreamName=made.name, **capacity)
        try:
            made.wait_until_active()
            yield made
        finally:
            self.delete(made.name)

    def delete(self, name: str) -> None:
        """Delete a stream with its consumers, whatever it is doing, if it is there at all."""

        def asked() -> bool:
            try:
                self.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
            except self.client.exceptions.ResourceNotFoundException:
                return True
            except self.client.exceptions.ResourceInUseException:
                return False  # it is CREATING or UPDATING
            return True

        self.wait_until(asked, what=f"the deletion of {name}")


def new_name() -> str:
    """A stream's name that tells whose it is, should one ever be left behind."""
    return f"kinesis-ds-contract-{uuid.uuid4().hex[:12]}"


def client(endpoint: str | None = None) -> Any:
    """A client of the server there, or of AWS."""
    session = (
        boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)
        if endpoint
        else boto3.Session()
    )
    return session.client("kinesis", endpoint_url=endpoint, config=_CONFIG)


def names() -> list[str]:
    """The targets of this run."""
    local = ["double", "localstack", "kinesis-local", "ministack"]
    return local + (["aws"] if os.environ.get(AWS_WANTED) == "1" else [])
