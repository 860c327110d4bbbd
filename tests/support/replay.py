"""Prove that replay is deterministic: however a batch is read again, it returns the same rows.

Every batch is read again in each way in which Spark, or a failure, may read it again. With the same
plan, each task must return the same list: same rows, all columns, same order. A batch that is
planned again may be divided among tasks in another way, so then the lists of the shards are
compared. What all batches together must contain is computed from what the double has stored.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import pyarrow as pa
from pyarrow import flight
from pyspark.serializers import CloudPickleSerializer

from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.aws import read_range as range_reading
from kinesis_ds.clock import SystemClock
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.offsets import Offset, SourceOffset, decode_offset, encode_offset
from kinesis_ds.plan.position import TRIM_HORIZON, AtTimestamp, ShardEnd
from kinesis_ds.plan.ticket import AgentAddress, decode_ticket
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.reader.stream import KinesisStreamReader
from kinesis_ds.wire.schema import SOURCE_METADATA_SCHEMA, SOURCE_SCHEMA
from tests.support.aggregates import User, aggregate
from tests.support.fast import SPEED
from tests.support.micro_batches import MicroBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.planned_range import PlannedRange
    from kinesis_ds.plan.position import Position
    from kinesis_ds.testing.log import StoredRecord

# A row as Spark gets it, all columns in their order, and what a task returns.
Cells = tuple[Any, ...]
Task = list[Cells]
_KEY, _DATA, _STREAM, _SHARD, _NUMBER, _SUB_NUMBER = 0, 1, 2, 3, 4, 6

# Records with such keys lie where another key put them, so their order is no promise.
BY_HASH_KEY = "by-hash-key-"
_NOBODY = AgentAddress("grpc://127.0.0.1:9", "token")
_WITHIN_S = 120.0


# --- reading --------------------------------------------------------------------------------------


def read_task(reader: KinesisStreamReader, partition: RangePartition) -> Task:
    """Return what Spark's worker gets from a task."""
    return [row for rows in _batches(reader, partition) for row in rows]


def read_shipped(reader: bytes, partition: bytes) -> Task:
    """Return the same in an executor, from the bytes that Spark ships."""
    spark = CloudPickleSerializer()
    return read_task(spark.loads(reader), spark.loads(partition))


def hurry(setattr_: Callable[[object, str, object], None] = setattr) -> None:
    """Give tasks the pace of the double.

    Without it they use the machine's time, perhaps in another process.
    """
    pace = range_reading.GET_RECORDS_MIN_INTERVAL_S / SPEED
    setattr_(range_reading, "GET_RECORDS_MIN_INTERVAL_S", pace)
    # GetRecords does not lag here.
    setattr_(range_reading, "_SETTLED_AFTER_S", 0.0)


def _batches(reader: KinesisStreamReader, partition: RangePartition) -> Generator[Task, None, None]:
    for batch in reader.read(partition):
        assert batch.schema in (SOURCE_SCHEMA, SOURCE_METADATA_SCHEMA)
        yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def by_shard(tasks: Iterable[Task]) -> dict[tuple[str, str], Task]:
    """Return rows by stream and shard, in order. Only one task of a batch reads a shard."""
    found: dict[tuple[str, str], Task] = {}
    for rows in tasks:
        for shard, of_it in groupby(rows, key=lambda row: (row[_STREAM], row[_SHARD])):
            found.setdefault(shard, []).extend(of_it)
    return found


class _BreakingAgent(flight.FlightServerBase):  # type: ignore[misc]
    """An agent that is killed in the middle of a range. Use as a context manager.

    It serves the buffer of a real agent, record by record, and fails after so many.
    """

    def __init__(self, real: AgentAddress, records: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._real = real
        self._records = records

    @property
    def address(self) -> AgentAddress:
        return AgentAddress(f"grpc://127.0.0.1:{self.port}", "token")

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.FlightDataStream:
        del context
        batches = list(stream_range(self._real, *decode_ticket(ticket.ticket)))
        return flight.GeneratorStream(batches[0].schema, self._until_it_breaks(batches))

    def _until_it_breaks(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from islice(_record_by_record(batches), self._records)
        raise flight.FlightUnavailableError("the agent was killed")


def _record_by_record(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches into single Kinesis records. An agent's are never cut inside of one, either."""
    for batch in batches:
        at = 0
        for _, rows in groupby(batch.column(2).to_pylist()):
            length = len(list(rows))
            yield batch.slice(at, length)
            at += length


# --- what was written -----------------------------------------------------------------------------


class Service(Protocol):
    """The service that is read: the double, or another server and a list of what was written."""

    def put(
        self, stream: str, *data: bytes, partition_key: str | Callable[[bytes], str]
    ) -> None: ...

    def shards(self, stream: str) -> list[dict[str, Any]]: ...

    def records(self, stream: str) -> list[StoredRecord]: ...


class Written:
    """Writes numbered records, plain and in aggregates, and knows what readers must get."""

    def __init__(self, kinesis: Service, rng: random.Random) -> None:
        self._kinesis = kinesis
        self._rng = rng
        self._count = 0
        self._aggregates: dict[bytes, list[User]] = {}

    def plain(self, stream: str, count: int, size: int = 0) -> None:
        """Put plain records with any keys."""
        keys = {self._data(size): self._key() for _ in range(count)}
        self._kinesis.put(stream, *keys, partition_key=keys.__getitem__)

    def together(self, stream: str, count: int, *, misplaced: float = 0.0) -> None:
        """Put an aggregate.

        Args:
            misplaced: The share of its records that belong to another shard, as after a reshard,
                from 0 to 1.
        """
        outer = self._key()
        users = []
        for _ in range(count):
            key = self._key() if self._rng.random() < misplaced else outer
            if self._rng.random() < 0.2:
                hash_key = str(User(key, b"").hash)
                users.append(User(BY_HASH_KEY + key, self._data(), hash_key))
            else:
                users.append(User(key, self._data()))
        self.put_users(stream, users, outer)

    def put_users(self, stream: str, users: list[User], partition_key: str) -> None:
        """Put an aggregate of these user records."""
        data = aggregate(*users)
        self._aggregates[data] = users
        self._kinesis.put(stream, data, partition_key=partition_key)

    def expected(self, stream: str, start: Mapping[str, Position]) -> dict[str, Task]:
        """Return the expected rows of each shard after a query's first positions.

        A row is key, data, sequence number and index in the aggregate.
        """
        ranges = {
            shard["ShardId"]: tuple(
                int(shard["HashKeyRange"][name]) for name in ("StartingHashKey", "EndingHashKey")
            )
            for shard in self._kinesis.shards(stream)
        }
        found: dict[str, Task] = {}
        for record in self._kinesis.records(stream):
            if not _wanted(record, start.get(record.shard_id, TRIM_HORIZON)):
                continue
            low, high = ranges[record.shard_id]
            users = self._aggregates.get(record.data)
            rows: Task = (
                [(record.partition_key, record.data, record.sequence_number, 0)]
                if users is None
                else [
                    (user.key, user.data, record.sequence_number, i)
                    for i, user in enumerate(users)
                    if low <= user.hash <= high
                ]
            )
            if rows:
                found.setdefault(record.shard_id, []).extend(rows)
        return found

    def _key(self) -> str:
        return f"key-{self._rng.randrange(30)}"

    def _data(self, size: int = 0) -> bytes:
        self._count += 1
        return b"%d" % self._count + b" " * size


def _wanted(record: StoredRecord, start: Position) -> bool:
    if isinstance(start, AtTimestamp):
        return round(record.arrived * 1000) >= start.ms
    return not isinstance(start, ShardEnd)


# --- the proof ------------------------------------------------------------------------------------


@dataclass
class Batch:
    """A batch as Spark logged it, and the rows that its first run returned."""

    start: dict[str, Any]
    end: dict[str, Any]
    tasks: list[Task]


@dataclass
class Proof:
    """All batches of a run, and all ways in which they were read.

    Args:
        executor: Another process, which only has what is shipped to it.
        thorough: Read each batch in every way. Otherwise the expensive ways take turns.

    Attributes:
        batches: The batches by their number.
        readings: How many batches were read in each way. A way with no batch proves nothing.
    """

    executor: Executor
    thorough: bool = False
    batches: dict[int, Batch] = field(default_factory=dict)
    readings: Counter[str] = field(default_factory=Counter)
    _late: tuple[int, KinesisStreamReader, list[RangePartition], list[Task]] | None = None

    @property
    def rows(self) -> int:
        """The number of rows delivered. Each batch is counted once."""
        return sum(len(rows) for batch in self.batches.values() for rows in batch.tasks)

    def run(
        self,
        number: int,
        start: dict[str, Any],
        end: dict[str, Any],
        reader: KinesisStreamReader,
        partitions: Sequence[RangePartition],
    ) -> list[Task]:
        """Run a batch and read it again in other ways; return the rows of the first run.

        Raises:
            AssertionError: One way returned other rows.
        """
        self.again_later()
        shipped = [_shipped(reader, partition) for partition in partitions]
        # Another executor runs the same tasks at the same time.
        copies = [self.executor.submit(read_shipped, *bytes_) for bytes_ in shipped]
        first = [read_task(reader, partition) for partition in partitions]
        self._same(number, "speculative copy", first, [c.result(_WITHIN_S) for c in copies])
        for way, read in self._ways(reader, sum(map(len, first))):
            self._same(number, way, first, [read(p) for p in partitions])
        self._same(number, "unpickled", first, [read_shipped(*bytes_) for bytes_ in shipped])
        planned_again: Any = reader.partitions(start, end)
        self._alike(number, "planned again", first, _read_all(reader, planned_again))
        self._check_keys(number, first)
        before = self.batches.setdefault(number, Batch(start, end, first))
        if before.tasks is not first:
            assert (before.start, before.end) == (start, end), f"batch {number} was logged twice"
            self._alike(number, "run again", before.tasks, first)
        self._late = (number, reader, list(partitions), first)
        return first

    def again_later(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run the tasks of the last batch once more, as a straggler does.

        Spark has committed the batch by then, and perhaps closed its reader.

        Args:
            meanwhile: Is called when each task has its first rows.
        """
        if self._late is not None:
            number, reader, partitions, first = self._late
            self._late = None
            self._same(
                number, "straggler", first, [_interrupted(reader, p, meanwhile) for p in partitions]
            )

    def planned_later(self, reader: KinesisStreamReader) -> None:
        """Run every batch once more by a driver that has gone on since.

        Its agents hold records of other batches.
        """
        for number, batch in self.batches.items():
            partitions: Any = reader.partitions(batch.start, batch.end)
            self._alike(number, "planned later", batch.tasks, _read_all(reader, partitions))

    def again_from_kinesis(self, new_reader: Callable[[], KinesisStreamReader]) -> None:
        """Run every batch as a driver does that was restarted and has only the checkpoint.

        Shards were resharded since, and all records come from Kinesis.
        """
        self._late = None
        reader = new_reader()
        try:
            for number, batch in self.batches.items():
                partitions: Any = reader.partitions(batch.start, batch.end)
                assert all(planned.agent is None for p in partitions for planned in p.ranges)
                tasks = [
                    self.executor.submit(read_shipped, *_shipped(reader, p)) for p in partitions
                ]
                rows = [task.result(_WITHIN_S) for task in tasks]
                self._alike(number, "after the run", batch.tasks, rows)
                self._check_keys(number, rows)
        finally:
            reader.stop()

    def check_all(self, written: Written, streams: Sequence[str]) -> None:
        """Check that all batches together have every record exactly once and in order.

        The order is that of each shard, and for each key the order in which it was written.
        """
        start = self.first_positions()
        delivered = by_shard(rows for batch in self.batches.values() for rows in batch.tasks)
        expected = {
            (stream, shard): rows
            for stream in streams
            for shard, rows in written.expected(stream, start.get(stream, {})).items()
        }
        assert delivered.keys() == expected.keys()
        for shard, rows in expected.items():
            wide = len(delivered[shard][0]) > _SUB_NUMBER
            assert [
                (r[_KEY], r[_DATA], int(r[_NUMBER]), r[_SUB_NUMBER] if wide else 0)
                for r in delivered[shard]
            ] == [(key, data, number, sub if wide else 0) for key, data, number, sub in rows], shard
        self._check_keys(
            None, [[r for batch in self.batches.values() for rows in batch.tasks for r in rows]]
        )

    def missing(self, written: Written, streams: Sequence[str]) -> int:
        """Return the number of rows still to come."""
        start = self.first_positions()
        expected = [written.expected(stream, start.get(stream, {})) for stream in streams]
        return sum(len(rows) for shards in expected for rows in shards.values()) - self.rows

    def first_positions(self) -> dict[str, Mapping[str, Position]]:
        """Return where the query began, by stream and shard."""
        if not self.batches:
            return {}
        offset = decode_offset(self.batches[0].end)
        assert isinstance(offset, SourceOffset)
        return {
            stream.name: stream.shards if stream.start is None else stream.start
            for stream in offset.streams.values()
        }

    # --- ways to read a plan again ----------------------------------------------------------------

    def _ways(
        self, reader: KinesisStreamReader, rows: int
    ) -> Iterator[tuple[str, Callable[[RangePartition], Task]]]:
        yield "retry", lambda p: _retried(reader, p)
        yield "second action", lambda p: read_task(reader, p)
        # Where it breaks differs from batch to batch.
        at = len(self.batches) % max(1, rows)
        costly: list[tuple[str, Callable[[RangePartition], Task]]] = [
            ("agent gone", lambda p: read_task(reader, _of_agent(p, _NOBODY))),
            ("from Kinesis", lambda p: read_task(reader, _of_agent(p, None))),
            ("agent breaks off", lambda p: _broken_off(reader, p, at)),
        ]
        yield from costly if self.thorough else [costly[len(self.batches) % len(costly)]]

    # --- comparing --------------------------------------------------------------------------------

    def _same(self, number: int, way: str, first: list[Task], now: list[Task]) -> None:
        self.readings[way] += 1
        for one, other in zip(first, now, strict=True):
            _compare(f"batch {number}, {way}", one, other)

    def _alike(self, number: int, way: str, first: list[Task], now: list[Task]) -> None:
        self.readings[way] += 1
        left, right = by_shard(first), by_shard(now)
        for shard in left.keys() | right.keys():
            _compare(f"batch {number}, {way}, {shard}", left.get(shard, []), right.get(shard, []))

    def _check_keys(self, number: int | None, tasks: list[Task]) -> None:
        """Check that all records of a key are in one task and in the order they were written."""
        seen: dict[tuple[str, str], int] = {}
        for task, rows in enumerate(tasks):
            last: dict[tuple[str, str], int] = {}
            for row in rows:
                key = (row[_STREAM], row[_KEY])
                if row[_KEY].startswith(BY_HASH_KEY):
                    continue
                assert seen.setdefault(key, task) == task, f"batch {number}: {key} in two tasks"
                assert last.get(key, 0) < int(row[_DATA]), f"batch {number}: {key} out of order"
                last[key] = int(row[_DATA])


def _compare(what: str, one: Task, other: Task) -> None:
    if one == other:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    raise AssertionError(
        f"{what}: {len(one)} rows, then {len(other)}; they differ from row {at} on: "
        f"{one[at : at + 1]}, then {other[at : at + 1]}"
    )


def _of_agent(partition: RangePartition, agent: AgentAddress | None) -> RangePartition:
    return RangePartition(*(replace(planned, agent=agent) for planned in partition.ranges))


def _broken_off(reader: KinesisStreamReader, partition: RangePartition, at: int) -> Task:
    """Run a task whose agents fail in the middle of its ranges."""
    with contextlib.ExitStack() as agents:

        def instead(planned: PlannedRange) -> PlannedRange:
            if planned.agent is None:
                return planned
            agent = agents.enter_context(_BreakingAgent(planned.agent, at))
            return replace(planned, agent=agent.address)

        return read_task(reader, RangePartition(*map(instead, partition.ranges)))


def _retried(reader: KinesisStreamReader, partition: RangePartition) -> Task:
    """Run a task that fails after its first rows, and its retry."""
    broken = _batches(reader, partition)
    next(broken, None)
    broken.close()
    return read_task(reader, partition)


def _interrupted(
    reader: KinesisStreamReader, partition: RangePartition, meanwhile: Callable[[], object]
) -> Task:
    batches = _batches(reader, partition)
    rows = next(batches, [])
    meanwhile()
    return [*rows, *(row for more in batches for row in more)]


def _read_all(reader: KinesisStreamReader, partitions: Sequence[RangePartition]) -> list[Task]:
    # The other way round: tasks run in any order.
    return [read_task(reader, partition) for partition in reversed(partitions)][::-1]


def _shipped(reader: KinesisStreamReader, partition: RangePartition) -> tuple[bytes, bytes]:
    spark = CloudPickleSerializer()
    return spark.dumps(reader), spark.dumps(partition)


# --- the query ------------------------------------------------------------------------------------


class Killed(Exception):  # noqa: N818  # no error
    """The driver's process was killed."""


class ProvedQuery(MicroBatches):
    """A query whose batches all go into a proof. All its runs use the same folder.

    Attributes:
        dies_at: Where the driver is killed, and in how many batches from now: after it has written
            ``offsets``, ``out`` or ``commits``, or when the batch is ``planned``.
    """

    def __init__(
        self, reader: KinesisStreamReader, options: Mapping[str, str], folder: Path, proof: Proof
    ) -> None:
        self.reader = reader
        self.proof = proof
        self.dies_at: tuple[str, int] | None = None
        super().__init__(options, folder, SystemClock(), source=reader._running())

    def available_now(self) -> int:
        self.reader.prepareForTriggerAvailableNow()
        batches = 0
        while self.step():
            batches += 1
        return batches

    def close(self) -> None:
        self.reader.stop()

    def _run(self, batch: int, start: Offset, end: Offset) -> None:
        low, high = (orjson.loads(orjson.dumps(encode_offset(o))) for o in (start, end))
        partitions: Any = self.reader.partitions(low, high)
        self._come_to("planned")
        tasks = self.proof.run(batch, low, high, self.reader, partitions)
        self._write("out", batch, [len(rows) for rows in tasks])
        self._write("commits", batch, {})

    def _write(self, kind: str, batch: int, value: object) -> None:
        super()._write(kind, batch, value)
        self._come_to(kind)

    def _come_to(self, place: str) -> None:
        if self.dies_at is None or self.dies_at[0] != place:
            return
        self.dies_at = (place, self.dies_at[1] - 1)
        if self.dies_at[1] < 0:
            raise Killed(place)


class Run:
    """One checkpoint, the queries that continue from it one after the other, and their proof.

    Args:
        clock: The clock of the service.
        new_network: Makes the network loops of the queries.

    Attributes:
        rng: The source of all random choices of the run.
    """

    def __init__(
        self,
        kinesis: Service,
        seed: int,
        options: Mapping[str, str],
        folder: Path,
        proof: Proof,
        clock: Clock,
        new_network: Callable[[AwsOptions], NetworkLoop],
    ) -> None:
        self.rng = random.Random(seed)
        self.written = Written(kinesis, self.rng)
        self.proof = proof
        self._options = {"initialPosition": "trim_horizon", **options}
        self._folder = folder
        self._clock = clock
        self._new_network = new_network

    @property
    def streams(self) -> list[str]:
        return self._options["streamName"].split(",")

    @contextlib.contextmanager
    def query(self, **options: str) -> Iterator[ProvedQuery]:
        """Run a query from its start to its end, or until it is killed."""
        options = {**self._options, **options}
        query = ProvedQuery(self.reader(**options), options, self._folder, self.proof)
        try:
            with contextlib.suppress(Killed):
                yield query
        finally:
            query.close()

    def reader(self, **options: str) -> KinesisStreamReader:
        """Return the reader that Spark calls, in the time of the service."""
        parsed = parse_read_options({**self._options, **options})
        reader = KinesisStreamReader(parsed)
        reader._coordinator = Coordinator(parsed, self._clock, self._new_network)
        return reader

    def missing(self) -> int:
        """Return the number of rows still to come."""
        return self.proof.missing(self.written, self.streams)

    def read_on(self, query: ProvedQuery) -> None:
        """Run batches until everything that was written has been read."""
        query.run_until(lambda: self.missing() <= 0, "every record read", _WITHIN_S)

    def check(self) -> None:
        """Read the rest, and check what can only be checked at the end."""
        self.proof.again_later()
        with self.query() as query:
            self.read_on(query)
            self.proof.planned_later(query.reader)
        self.proof.again_from_kinesis(self.reader)
        self.proof.check_all(self.written, self.streams)
