"""A real agent in fast time, which reads a stream of the double and counts every record."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.agent import AgentHost, ShardAgent
from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.limits import MIB
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, Position
from kinesis_ds.plan.shards import Shard
from kinesis_ds.testing.hashing import hash_of
from tests.support.fast import fast_network
from tests.support.polling import eventually
from tests.support.transports import aws_options

if TYPE_CHECKING:
    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.testing import Call, KinesisServer

STREAM = "orders"
FIRST = "shardId-000000000000"
SECOND = "shardId-000000000001"


def listed(kinesis: KinesisServer, shard_id: str, stream: str = STREAM) -> Shard:
    """Return a shard as discovery would give it to the agent."""
    raw = next(s for s in kinesis.shards(stream) if s["ShardId"] == shard_id)
    numbers, hashes = raw["SequenceNumberRange"], raw["HashKeyRange"]
    return Shard(
        shard_id,
        tuple(raw[k] for k in ("ParentShardId", "AdjacentParentShardId") if k in raw),
        numbers["StartingSequenceNumber"],
        "EndingSequenceNumber" in numbers,
        (int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])),
    )


def put_to(kinesis: KinesisServer, shard_id: str, *data: bytes, stream: str = STREAM) -> None:
    """Put records into one shard, with keys that belong there."""
    low, high = listed(kinesis, shard_id, stream).hash_range
    key = next(k for k in map(str, range(100_000)) if low <= hash_of(k) <= high)
    kinesis.put(stream, *data, partition_key=key)


def numbered(first: int, last: int, size: int = 0) -> list[bytes]:
    """Return records that contain their number, each at least ``size`` bytes long."""
    return [b"%d" % n + b"." * max(0, size - len(str(n))) for n in range(first, last + 1)]


def starts(calls: list[Call]) -> list[str]:
    """Return where SubscribeToShard calls asked to start, as ``TYPE`` or ``TYPE:number``."""
    return [":".join(map(str, call.request["StartingPosition"].values())) for call in calls]


# A call that the service has not even looked at, since it came too soon after the one before.
TOO_EARLY = frozenset({"ResourceInUseException", "LimitExceededException"})


def outcomes(calls: list[Call]) -> set[str | None]:
    """Return how calls ended, except those that came too early.

    It is a set, since a client on a slow machine may have given up a call before its answer came.
    """
    return {call.outcome for call in calls} - TOO_EARLY


def iterator_starts(kinesis: KinesisServer, shard_id: str = FIRST) -> list[str]:
    """Return where iterators were asked for, as ``TYPE``, ``TYPE:number`` or ``TYPE:time``."""
    return [
        ":".join(
            str(call.request[member])
            for member in ("ShardIteratorType", "StartingSequenceNumber", "Timestamp")
            if member in call.request
        )
        for call in kinesis.calls.calls("GetShardIterator", shard_id)
    ]


def poll_calls(kinesis: KinesisServer, shard_id: str = FIRST) -> list[Call]:
    """Return the GetRecords calls for a shard, oldest first."""
    return kinesis.calls.calls("GetRecords", shard_id)


def subscribe_calls(kinesis: KinesisServer, shard_id: str = FIRST) -> list[Call]:
    """Return the SubscribeToShard calls for a shard, oldest first, even those never answered."""
    return kinesis.calls.calls("SubscribeToShard", shard_id)


class Agent:
    """An agent, its network loop and the consumer it reads with. Close it when done.

    Args:
        mode: ``efo``; or ``polling``, without a consumer.

    Attributes:
        diagnosis: The answer when the agent asks why a shard is refused; ``diagnosed`` counts the
            questions.
        changes: How often a shard failed or ended.
    """

    def __init__(
        self,
        kinesis: KinesisServer,
        *,
        stream: str = STREAM,
        consumer: str = "reader",
        mode: str = "efo",
        network: NetworkLoop | None = None,
        **options: Any,
    ) -> None:
        self.kinesis = kinesis
        self.stream = stream
        self.diagnosis: KinesisConnectorError | None = None
        self.diagnosed: list[str] = []
        self.changes = 0
        self._at: dict[str, Position] = {}
        self._taken: dict[str, list[bytes]] = {}
        if mode == "polling":
            described = kinesis.call("DescribeStreamSummary", StreamName=stream)
            arn, self.consumer_arn = described["StreamDescriptionSummary"]["StreamARN"], ""
            options.setdefault("polling", PollingOptions())
        else:
            arn, self.consumer_arn = registered(kinesis, stream, consumer)
        self.network = network or fast_network(aws_options(kinesis))
        self.host = AgentHost(options.pop("buffer_bytes", 64 * MIB))
        defaults = {"idle_timeout_s": 300.0, "fail_on_data_loss": True}
        told: Any = {"host": "127.0.0.1", **defaults, **options}
        self.agent = ShardAgent(
            AgentOptions(stream, arn, self.consumer_arn, **told),
            self.host,
            self.network,
            kinesis.clock,
            self._diagnose,
            self._changed,
        )

    def assign(self, *shard_ids: str, position: Position = TRIM_HORIZON) -> Agent:
        """Start to read these shards, or the first shard if none is given."""
        shards = [listed(self.kinesis, s, self.stream) for s in shard_ids or (FIRST,)]

        async def assign() -> None:
            for shard in shards:
                self._at[shard.shard_id] = position
                self._taken[shard.shard_id] = []
                self.agent.assign(shard, position)

        self.network.run(assign(), 10, "assign")
        return self

    def mark_closed(self, shard_id: str = FIRST) -> None:
        """Do what discovery does when ListShards shows that the shard is closed."""
        self.network.post(self.agent.mark_closed, shard_id)

    # --- what Spark would do --------------------------------------------------------------------

    def held(self, shard_id: str = FIRST) -> list[bytes]:
        """Return what is buffered and not committed, fetched over Flight as a task does."""
        end = self.agent.available()[shard_id]
        batches = stream_range(self.agent.address, shard_id, self._at[shard_id], end)
        return [data for batch in batches for data in batch.column("data").to_pylist()]

    def take(self, shard_id: str = FIRST) -> list[bytes]:
        """Read and commit what is there; return everything taken so far."""
        end = self.agent.available()[shard_id]
        if end != self._at[shard_id]:
            batches = stream_range(self.agent.address, shard_id, self._at[shard_id], end)
            self._taken[shard_id] += [
                data for batch in batches for data in batch.column("data").to_pylist()
            ]
            self.agent.free({shard_id: end})
            self._at[shard_id] = end
        return self._taken[shard_id]

    def take_until(self, expected: list[bytes], shard_id: str = FIRST) -> None:
        """Take until there are as many records as expected: exactly these, in order, each once."""
        eventually(lambda: len(self.take(shard_id)) >= len(expected), f"{len(expected)} records")
        assert self.take(shard_id) == expected

    def take_to_the_end(self, expected: list[bytes], shard_id: str = FIRST) -> None:
        """Take until the end of the shard: exactly these records, in order, each once."""
        eventually(lambda: self.take(shard_id) is None or self.ended(shard_id), "the shard's end")
        assert self.take(shard_id) == expected

    def ended(self, shard_id: str = FIRST) -> bool:
        return self.agent.available()[shard_id] == SHARD_END

    # --- what a test looks at -------------------------------------------------------------------

    def shard(self, shard_id: str = FIRST) -> dict[str, Any]:
        """Return the counters of a shard."""
        found: dict[str, Any] = self.agent.statistics()[shard_id]
        return found

    def pool(self) -> dict[str, Any]:
        return asdict(self.host.pool.statistics())

    def state(self, shard_id: str = FIRST) -> str:
        return str(self.shard(shard_id)["state"])

    def errors(self, shard_id: str = FIRST) -> dict[str, int]:
        return dict(self.shard(shard_id)["errors"])

    def failure(self) -> KinesisConnectorError:
        """Wait until the agent has failed; return the error."""
        found = eventually(self.agent.failure, "a failure")
        assert found is not None
        return found

    def close(self) -> None:
        self.agent.close()
        self.host.close()
        self.network.close()

    async def _diagnose(self, shard_id: str) -> KinesisConnectorError | None:
        self.diagnosed.append(shard_id)
        return self.diagnosis

    def _changed(self) -> None:
        self.changes += 1


def registered(kinesis: KinesisServer, stream: str, consumer: str) -> tuple[str, str]:
    """Return the ARNs of stream and consumer. The consumer is registered if need be, and ACTIVE."""
    described = kinesis.call("DescribeStreamSummary", StreamName=stream)
    arn = described["StreamDescriptionSummary"]["StreamARN"]
    known = kinesis.call("ListStreamConsumers", StreamARN=arn)["Consumers"]
    if consumer not in [c["ConsumerName"] for c in known]:
        kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName=consumer)

    def active() -> str:
        members = {"StreamARN": arn, "ConsumerName": consumer}
        found = kinesis.call("DescribeStreamConsumer", **members)["ConsumerDescription"]
        return str(found["ConsumerARN"]) if found["ConsumerStatus"] == "ACTIVE" else ""

    return arn, eventually(active, "an active consumer")
