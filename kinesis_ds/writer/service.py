"""What the tasks of one worker process share: a network thread with a warm client, and counters.

Spark runs thousands of short tasks in a few long-lived Python workers. A client of its own would
cost each of them a TLS handshake and a DescribeStreamSummary.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.errors import (
    AccessError,
    InternalError,
    KinesisConnectorError,
    ThrottledError,
    TransientError,
    WriteError,
)
from kinesis_ds.observe.counters_file import StatisticsFile
from kinesis_ds.writer.counters import SinkCounters
from kinesis_ds.writer.prediction import Prediction
from kinesis_ds.writer.request_body import put_records

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from kinesis_ds.options.write import WriteOptions
    from kinesis_ds.plan.shards import Shard
    from kinesis_ds.plan.stream import StreamId, StreamInfo
    from kinesis_ds.writer.pacing import Pace
    from kinesis_ds.writer.records import Request

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class Target:
    """What a worker knows of one stream that it writes to.

    Attributes:
        record_bytes: Its record limit, partition key included.
        distributes: Whether it places records itself.
        prediction: Where records land, by its shards when they were looked at last.
        paces: How fast each shard takes records; kept from task to task.
        looked_at: When the record limit was asked for again, in monotonic seconds.
    """

    record_bytes: int
    distributes: bool
    prediction: Prediction
    paces: dict[str, Pace] = field(default_factory=dict)
    looked_at: float = float("-inf")


# How long an endpoint that cannot be reached is tried before the task is told.
_CHECK_TIMEOUT_S = 12.0
_CLOSE_TIMEOUT_S = 5.0
_GRACE_S = 10.0
# Between two questions for a stream's record limit: a task may have thousands of rows above it, and
# an account has 20 such calls a second.
_LOOK_AGAIN_S = 5.0
# Services without a task that are kept: a worker rarely writes to more streams than this.
_MAX_IDLE = 4


class SinkService:
    """An open client for the streams of a sink, on a network thread of its own.

    Args:
        options: The streams, and how to reach them.
        new_loop: Makes the thread's event loop; a test may let its time pass faster.

    Attributes:
        tasks: How many tasks use it now; kept by the registry.
    """

    def __init__(
        self,
        options: WriteOptions,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._options = options
        self._connection = Connection(
            options.aws, max_connections=options.max_in_flight_requests, client_attempts=1
        )
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._serve, name="kinesis-sink", daemon=True)
        self._targets: dict[StreamId, Target] = {}
        self.tasks = 0

    def start(self) -> None:
        """Connect, and check that the stream of the query is there, if it names one.

        Raises:
            KinesisConnectorError: It is not, or cannot be reached, or may not be asked.
        """
        self._thread.start()
        try:
            self.call(self._connection.__aenter__(), _CHECK_TIMEOUT_S + _GRACE_S)
            if self._options.stream is not None:
                self.target(self._options.stream)
        except BaseException:
            self.close()
            raise

    def target(self, stream: StreamId) -> Target:
        """What is known of a stream; looked up when it is written to for the first time.

        Caller: the task's thread.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked.
        """
        if stream not in self._targets:
            self._wait_for(self._open(stream))
        return self._targets[stream]

    def opened(self, stream: StreamId) -> Target:
        """The same, of a stream that was looked up before. Caller: the network thread."""
        return self._targets[stream]

    def record_bytes(self, stream: StreamId) -> int:
        """The stream's record limit when it was looked at last, partition key included."""
        return self.target(stream).record_bytes

    def look_again(self, stream: StreamId) -> int:
        """The stream's record limit as it is now, or was seconds ago.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked.
        """
        target = self._targets[stream]
        if time.monotonic() >= target.looked_at + _LOOK_AGAIN_S:
            target.record_bytes = self._wait_for(self._describe(stream)).max_record_bytes
            target.looked_at = time.monotonic()
        return target.record_bytes

    async def look_at_shards(self, stream: StreamId) -> Prediction:
        """Look at the stream's shards as they are now.

        Raises:
            KinesisConnectorError: They cannot be listed.
        """
        target = self._targets[stream]
        if not target.distributes:
            shards = await asyncio.wait_for(list_shards(self._connection, stream), _CHECK_TIMEOUT_S)
            target.prediction = Prediction(shards)
        return target.prediction

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the network thread and wait for its result, at most ``timeout_s``."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            raise InternalError(
                f"The network thread of {self._options.label} did not answer within "
                f"{timeout_s:g}s.",
                "Please report this.",
            ) from None
        finally:
            future.cancel()

    def post(self, callback: Any, *args: Any) -> None:
        """Have the network thread call something, without waiting."""
        self._loop.call_soon_threadsafe(callback, *args)

    async def put(self, stream: StreamId, request: Request) -> Mapping[str, Any]:
        """One PutRecords call.

        Raises:
            KinesisConnectorError: What the service or the network said of the whole request.
        """
        body = put_records(stream, request)
        return await self._connection.call("PutRecords", body, f"stream {stream.label}")

    def close(self) -> None:
        """Close the client and end the thread. Idempotent."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.call(self._connection.__aexit__(), _CLOSE_TIMEOUT_S)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        longest = max(_CHECK_TIMEOUT_S, self._options.retry_timeout_s)
        return self.call(work, 2 * longest + _GRACE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _open(self, stream: StreamId) -> None:
        info = await self._describe(stream)
        label = f"stream {stream.label}"
        prediction = Prediction(None)
        if info.distributes and self._options.aggregation:
            raise WriteError(
                f"{label[0].upper()}{label[1:]} places records itself (RecordDistributionStrategy "
                "is AUTO), and readers of aggregates leave out what its key would place elsewhere.",
                "Write to it without aggregation and recordIds.",
            )
        if not info.distributes:
            try:
                prediction = Prediction(await self._patiently(self._list, stream))
            except AccessError as exc:
                if self._options.aggregation:
                    raise
                logger.warning(
                    "the shards of the stream may not be listed (kinesis:ListShards), so a shard "
                    "that is too busy slows down the others target=%s reason=%s",
                    label,
                    exc.message,
                )
        self._targets[stream] = Target(info.max_record_bytes, info.distributes, prediction)
        logger.info("sink connected target=%s record_bytes=%d", label, info.max_record_bytes)

    async def _describe(self, stream: StreamId) -> StreamInfo:
        return await self._patiently(self._look, stream)

    async def _look(self, stream: StreamId) -> StreamInfo:
        info = await describe_stream(self._connection, stream)
        if info.status == "CREATING":
            raise TransientError(
                f"The stream {stream.label} is still being created.", "Wait until it is ACTIVE."
            )
        return info

    async def _list(self, stream: StreamId) -> dict[str, Shard]:
        return await list_shards(self._connection, stream)

    async def _patiently(
        self, ask: Callable[[StreamId], Coroutine[Any, Any, T]], stream: StreamId
    ) -> T:
        """A control call, repeated while what it meets may pass."""
        started = time.monotonic()
        tries = 0
        while True:
            tries += 1
            timeout = started + _CHECK_TIMEOUT_S - time.monotonic()
            try:
                return await asyncio.wait_for(ask(stream), max(1.0, timeout))
            except asyncio.TimeoutError:
                error: KinesisConnectorError = TransientError(
                    f"{self._connection.endpoint_label} did not answer for stream {stream.label} "
                    f"within {_CHECK_TIMEOUT_S:g}s.",
                    "Is the endpoint right, and reachable from here?",
                )
            except KinesisConnectorError as exc:
                if not exc.retryable:
                    raise
                error = exc
            # An account may call DescribeStreamSummary 20 times a second, and a large query starts
            # more workers than that at once: being throttled says nothing against the stream.
            patience = _CHECK_TIMEOUT_S
            if isinstance(error, ThrottledError):
                patience = max(patience, self._options.retry_timeout_s)
            pause = random.uniform(0.1, min(5.0, 0.2 * 2 ** min(tries, 10)))
            if time.monotonic() + pause - started >= patience:
                raise error
            await asyncio.sleep(pause)


class Registry:
    """The services and counters of this process. Thread-safe.

    Args:
        new_loop: Makes the event loop of each service.
    """

    def __init__(
        self, new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        self._new_loop = new_loop
        self._lock = threading.Lock()
        self._services: dict[WriteOptions, SinkService] = {}
        self._counters: dict[tuple[str | None, str], SinkCounters] = {}
        self._files: list[StatisticsFile] = []

    @contextlib.contextmanager
    def borrow(self, options: WriteOptions) -> Iterator[SinkService]:
        """The service for these options, started when there is none.

        A task that fails takes the service with it, so that the next one looks at the stream and
        at the credentials anew.
        """
        service = self._take(options)
        try:
            yield service
        except BaseException:
            self._give_back(options, service, failed=True)
            raise
        self._give_back(options, service, failed=False)

    def counters(self, options: WriteOptions) -> SinkCounters:
        """The counters of a stream, written to a file where the options ask for it."""
        directory = options.diagnostics_dir
        key = (directory, options.label)
        with self._lock:
            if key not in self._counters:
                counters = SinkCounters(
                    options.stream.label if options.stream else "*",
                    options.max_in_flight_records,
                    options.max_in_flight_bytes,
                )
                self._counters[key] = counters
                if directory:
                    # A process that writes to a second stream gets a second file.
                    name = f"sink-{len(self._files)}" if self._files else "sink"
                    file = StatisticsFile(directory, name, counters.snapshot)
                    # Spark kills idle workers without notice; what a task did is on disk by then.
                    counters.after_task(file.flush)
                    self._files.append(file)
            return self._counters[key]

    def close(self) -> None:
        """Close everything; for the end of the process."""
        with self._lock:
            services, self._services = list(self._services.values()), {}
            files, self._files, self._counters = self._files, [], {}
        for service in services:
            service.close()
        for file in files:
            file.close()

    def _take(self, options: WriteOptions) -> SinkService:
        # Starting happens under the lock, so that two tasks never start two. It has a deadline.
        with self._lock:
            service = self._services.get(options)
            if service is None:
                service = SinkService(options, self._new_loop)
                service.start()
                self._services[options] = service
            service.tasks += 1
            return service

    def _give_back(self, options: WriteOptions, service: SinkService, *, failed: bool) -> None:
        ended = []
        with self._lock:
            service.tasks -= 1
            current = self._services.get(options) is service
            if current and failed:
                del self._services[options]
                current = False
            if current:
                del self._services[options]
                self._services[options] = service  # the last one is the one used last
                idle = [key for key, other in self._services.items() if other.tasks == 0]
                ended = [self._services.pop(key) for key in idle[:-_MAX_IDLE]]
            elif service.tasks == 0:
                ended = [service]
        for each in ended:
            each.close()


REGISTRY = Registry()


def _after_fork() -> None:
    # The threads did not come along, and the sockets belong to the parent. The old objects are kept
    # (closing an inherited event loop would disturb the parent's), never used.
    global REGISTRY  # noqa: PLW0603  # one registry a process is the point
    _inherited.append(REGISTRY)
    REGISTRY = Registry()


def _at_exit() -> None:
    REGISTRY.close()


_inherited: list[Registry] = []
os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
