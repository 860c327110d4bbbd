"""Run the real writer against the double, in fast time, and count what became of every id.

    with Sink(Fault(Disconnect(performed=True), operation="PutRecords")) as sink:
        outcome = sink.write(range(1000))
        assert outcome.error is None
        assert sink.stored_more_than_once() == ...

At its end, the block checks that nothing of the sink is left: no thread, event loop or task.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
from aiobotocore.session import AioSession
from botocore.loaders import Loader
from pyspark.sql import Row

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW
from kinesis_ds.aws import connection
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.testing import Fault, KinesisServer, ManualClock, Settings
from kinesis_ds.writer import registry
from kinesis_ds.writer.aggregating import user_records
from kinesis_ds.writer.registry import Registry
from kinesis_ds.writer.results import ShardWrites
from kinesis_ds.writer.stream import KinesisStreamWriter
from kinesis_ds.writer.target_streams import TargetStreams
from kinesis_ds.writer.task import SinkCommit
from tests.support.fast import FastClock, FastLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kinesis_ds.testing import Call
    from kinesis_ds.writer.records import Request

STREAM = "orders"
UNLIMITED = Settings(enforce_limits=False)
_ID_BYTES = 8
# Reading the API's model is most of what a new client costs, and a failed task takes its client
# with it. It is read once for all tests.
_MODELS = Loader()
_NO_LINGER = struct.pack("ii", 1, 0)


def put_fault(action: Any, **where: Any) -> Fault:
    """Return a fault of PutRecords."""
    return Fault(action, operation="PutRecords", **where)


def data_of(item: int, size: int = _ID_BYTES) -> bytes:
    """Return the data for this id: at least eight bytes."""
    return b"%08d" % item + b"." * (size - _ID_BYTES)


def rows(
    ids: Iterable[int],
    *,
    size: int = _ID_BYTES,
    key: Callable[[int], str | None] = lambda item: f"k{item}",
    hash_key: Callable[[int], str] | None = None,
    stream: Callable[[int], str | None] | None = None,
    each: int = 100,
) -> Iterator[Any]:
    """Return rows in the form in which this PySpark passes them to ``write``, ``each`` a batch."""
    part: list[int] = []
    for item in ids:
        part.append(item)
        if len(part) == each:
            yield from _items(part, size, key, hash_key, stream)
            part = []
    if part:
        yield from _items(part, size, key, hash_key, stream)


def _items(
    ids: Sequence[int],
    size: int,
    key: Callable[[int], str | None],
    hash_key: Callable[[int], str] | None,
    stream: Callable[[int], str | None] | None,
) -> Iterator[Any]:
    columns: dict[str, list[Any]] = {
        "data": [data_of(item, size) for item in ids],
        "partitionKey": [key(item) for item in ids],
    }
    if hash_key is not None:
        columns["explicitHashKey"] = [hash_key(item) for item in ids]
    if stream is not None:
        columns["stream"] = [stream(item) for item in ids]
    if STREAM_WRITER_GETS_ARROW:
        text = pa.string()
        yield pa.record_batch(
            {n: pa.array(v, pa.binary() if n == "data" else text) for n, v in columns.items()}
        )
    else:
        for values in zip(*columns.values(), strict=True):
            yield Row(**dict(zip(columns, values, strict=True)))


@dataclass(frozen=True)
class Outcome:
    """How ``write`` ended: with a commit message or with an error."""

    message: SinkCommit | None
    error: KinesisConnectorError | None

    @property
    def records(self) -> int:
        """Return how many records were stored, by the commit message."""
        assert self.error is None, self.error
        assert self.message is not None
        return sum(writes.records for writes in self.message.shards)

    def said(self, kind: type[KinesisConnectorError]) -> str:
        """Return the text of the error. It must be of this class, and without a commit message."""
        assert type(self.error) is kind, repr(self.error)
        assert self.message is None
        return str(self.error)


class Sink:
    """A double with a stream, and writers of it. Use as a context manager.

    Args:
        faults: The faults of the double.
        shards: The number of shards of the stream.
        settings: Settings of the double. Its rates are unlimited unless a test is about them.
        relayed: Put a :class:`Relay` between writer and double.
        clock: The clock of the double, in step with that of the writer. With a
            :class:`ManualClock`, a shard stays full until the test moves it, on any machine.
        new_loop: Makes the writer's event loops. Use :func:`asyncio.new_event_loop` to send much
            data, where the 30 s of a call must not be shortened.

    Attributes:
        kinesis: The double.
        stream: The name of the stream.
        relay: The relay, or None.
        loops: The event loops of all services, oldest first.
        sent: The ids of each PutRecords call, in the order in which the calls were made.
    """

    def __init__(
        self,
        *faults: Fault,
        shards: int = 4,
        settings: Settings = UNLIMITED,
        relayed: bool = False,
        clock: ManualClock | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = FastLoop,
    ) -> None:
        self.kinesis = KinesisServer(settings, clock=clock or FastClock(), faults=faults)
        self.stream = STREAM
        self.relay: Relay = None  # type: ignore[assignment]
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.sent: list[list[int]] = []
        self._shards = shards
        self._relayed = relayed
        self._make_loop = new_loop
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Sink:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.kinesis)
            self.kinesis.create_stream(STREAM, self._shards)
            if self._relayed:
                self.relay = stack.enter_context(Relay(self.kinesis.endpoint))
            stack.enter_context(mock.patch.object(registry, "REGISTRY", Registry(self._new_loop)))
            stack.enter_context(
                mock.patch.object(connection, "get_session", _session_with_models_at_hand)
            )
            stack.enter_context(mock.patch.object(TargetStreams, "put", self._noting_put()))
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._ending:
            self.close_services()
        if exc_info[0] is None:
            assert self.threads() == []
            assert all(loop.is_closed() for loop in self.loops)
            assert [task for loop in self.loops for task in asyncio.all_tasks(loop)] == []

    def close_services(self) -> None:
        """Do what happens at the end of the process."""
        registry.REGISTRY.close()

    def writer(self, **options: str) -> KinesisStreamWriter:
        raw = {**self.kinesis.options(self.stream), **options}
        if self._relayed:
            raw["endpoint"] = self.relay.endpoint
        return KinesisStreamWriter(parse_write_options(raw))

    def write(self, items: Iterable[Any], **options: str) -> Outcome:
        """Run one task, which writes a range of ids, or rows made by :func:`rows`.

        Rows wait for others of their shard for ``linger``, but no longer than the rows last.
        """
        items = rows(items) if isinstance(items, range) else iter(items)
        writer = self.writer(**options)

        try:
            return Outcome(writer.write(items), None)
        except KinesisConnectorError as exc:
            return Outcome(None, exc)

    def counters(self, **options: str) -> dict[str, Any]:
        """Return the counters of the sink."""
        return registry.REGISTRY.counters(self.writer(**options)._options).snapshot()

    # --- the account ----------------------------------------------------------------------------

    def times_stored(self) -> Counter[int]:
        """Return how often each id is in the stream."""
        return Counter(int(record.data[:_ID_BYTES]) for record in self.kinesis.records(self.stream))

    def stored_more_than_once(self) -> list[int]:
        """Return the ids that are in the stream twice. No id may be there three times."""
        times = self.times_stored()
        assert max(times.values(), default=0) <= 2, times.most_common(3)
        return sorted(item for item, n in times.items() if n == 2)

    def lost(self, ids: Iterable[int]) -> list[int]:
        """Return which of these ids are not in the stream."""
        times = self.times_stored()
        return [item for item in ids if not times[item]]

    def assert_each_once(self, ids: Iterable[int], outcome: Outcome) -> None:
        """Check that each id is stored exactly once, and that the commit message says so."""
        assert self.times_stored() == Counter(ids)
        assert outcome.error is None
        assert outcome.message is not None
        assert {w.shard_id: w for w in outcome.message.shards} == self.stored_by_shard()

    def stored_by_shard(self) -> dict[str, ShardWrites]:
        """Return what a commit message for the whole stream must contain."""
        found: dict[str, ShardWrites] = {}
        for record in self.kinesis.records(self.stream):
            number = str(record.sequence_number)
            size = len(record.data) + len((record.partition_key or "").encode())
            shard_id = record.shard_id
            had = found.get(shard_id, ShardWrites(self.stream, shard_id, number, "", 0, 0))
            found[shard_id] = ShardWrites(
                self.stream,
                shard_id,
                had.first_sequence_number,
                number,
                had.records + 1,
                had.bytes + size,
            )
        return found

    def calls(self, operation: str = "PutRecords") -> list[Call]:
        return self.kinesis.calls.calls(operation)

    @staticmethod
    def threads() -> list[str]:
        """Return the threads of the sink that run."""
        return [t.name for t in threading.enumerate() if t.name == "kinesis-sink"]

    def times_sent(self) -> Counter[int]:
        """Return how often each id was sent."""
        return Counter(item for ids in self.sent for item in ids)

    def _noting_put(self) -> Callable[..., Any]:
        put = TargetStreams.put

        async def note(this: Any, stream: Any, request: Request) -> Any:
            users = [user for record in request.records for user in user_records(record)]
            self.sent.append([int(user.data[:_ID_BYTES]) for user in users])
            return await put(this, stream, request)

        return note

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        self.loops.append(loop := self._make_loop())
        return loop


def _session_with_models_at_hand() -> AioSession:
    session = AioSession()
    session.register_component("data_loader", _MODELS)
    return session


class Relay:
    """Passes bytes between writer and double, on its own thread; counts, and can cut connections.

    A request is in flight from its first byte until the first byte of its answer.

    Attributes:
        accepted: The number of connections so far.
        connections: The number of open connections.
        under_way: The number of requests in flight.
        most_under_way: The largest number of requests in flight at any time.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition("/")[2].rpartition(":")
        self._target = (host, int(port))
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._open: set[asyncio.Task[None]] = set()
        self._cut: tuple[int, int, bool] | None = None
        self._puts = 0
        self.accepted = self.connections = 0
        self.under_way = self.most_under_way = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cut_answer(self, put: int, after: int, *, reset: bool) -> None:
        """Let so many bytes of the answer to the n-th PutRecords pass, then cut the connection.

        Args:
            put: Counted from 1, from now on.
            reset: Cut it with RST, else with FIN, as if the answer had ended.
        """
        self._cut = (self._puts + put, after, reset)

    def __enter__(self) -> Relay:
        self._thread.start()
        server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _end(self) -> None:
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        # Transports that are closing end in the loop's next rounds.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.accepted += 1
        self.connections += 1
        try:
            there, answering = await asyncio.open_connection(*self._target)
            await _Link(self, reader, writer, there, answering).run()
        except OSError:  # the double is down
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self.connections -= 1
            self._open.discard(task)

    def _request_begins(self, *, put: bool) -> int | None:
        """Return after how many bytes to cut the answer; None to pass all of it."""
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self._puts += put
        return self._cut[1] if put and self._cut and self._cut[0] == self._puts else None


class _Link:
    """A connection of the writer, with the connection to the double that belongs to it."""

    def __init__(
        self,
        relay: Relay,
        here: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        on: asyncio.StreamWriter,
    ) -> None:
        self._relay = relay
        self._here, self._back, self._there, self._on = here, back, there, on
        self._waiting = False
        self._left: int | None = None

    async def run(self) -> None:
        ways = {asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._answers())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._on.transport.abort()
            self._back.close()
            self._relay.under_way -= self._waiting
            self._waiting = False
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self) -> None:
        while piece := await self._here.read(1 << 18):
            if not self._waiting:
                self._waiting = True
                self._left = self._relay._request_begins(put=b"Kinesis_20131202.PutR" in piece)
            self._on.write(piece)
            await self._on.drain()

    async def _answers(self) -> None:
        while piece := await self._there.read(1 << 18):
            self._relay.under_way -= self._waiting
            self._waiting = False
            if self._left is not None and len(piece) >= self._left:
                self._back.write(piece[: self._left])
                await self._back.drain()
                if self._relay._cut and self._relay._cut[2]:
                    self._back.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER
                    )
                return
            if self._left is not None:
                self._left -= len(piece)
            self._back.write(piece)
            await self._back.drain()
