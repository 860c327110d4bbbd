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
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.faults import translate
from kinesis_ds.aws.streams import StreamInfo, describe_stream
from kinesis_ds.errors import InternalError, KinesisConnectorError, ThrottledError, TransientError
from kinesis_ds.metrics import StatisticsFile
from kinesis_ds.writer.counters import SinkCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from kinesis_ds.options import WriteOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long an endpoint that cannot be reached is tried before the task is told.
_CHECK_TIMEOUT_S = 12.0
_CLOSE_TIMEOUT_S = 5.0
_GRACE_S = 10.0
# Services without a task that are kept: a worker rarely writes to more streams than this.
_MAX_IDLE = 4


class SinkService:
    """An open client for one stream, on a network thread of its own.

    Args:
        options: The stream, and how to reach it.
        new_loop: Makes the thread's event loop; a test may let its time pass faster.

    Attributes:
        record_bytes: The stream's record limit when it was looked at last, partition key included.
        tasks: How many tasks use it now; kept by the registry.
    """

    def __init__(
        self,
        options: WriteOptions,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._options = options
        self._label = f"stream {options.stream.label}"
        self._connection = Connection(
            options.aws, max_connections=options.max_in_flight_requests, client_attempts=1
        )
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._serve, name="kinesis-sink", daemon=True)
        self.record_bytes = 0
        self.tasks = 0

    def start(self) -> None:
        """Connect, and check that the stream is there.

        Raises:
            KinesisConnectorError: It is not, or cannot be reached, or may not be asked.
        """
        self._thread.start()
        try:
            self._look(self._open())
        except BaseException:
            self.close()
            raise
        logger.info("sink connected target=%s record_bytes=%d", self._label, self.record_bytes)

    def look_at_stream(self) -> int:
        """Look at the stream as it is now; returns its record limit.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked.
        """
        self._look(self._describe())
        return self.record_bytes

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the network thread and wait for its result, at most ``timeout_s``."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            raise InternalError(
                f"The network thread of {self._label} did not answer within {timeout_s:g}s.",
                "Please report this.",
            ) from None
        finally:
            future.cancel()

    def post(self, callback: Any, *args: Any) -> None:
        """Have the network thread call something, without waiting."""
        self._loop.call_soon_threadsafe(callback, *args)

    async def put(self, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        """One PutRecords call.

        Raises:
            KinesisConnectorError: What the service or the network said of the whole request.
        """
        try:
            answer: Mapping[str, Any] = await self._connection.client.put_records(
                Records=entries, **self._options.stream.request()
            )
        except Exception as exc:
            raise translate(exc, "PutRecords", self._label) from exc
        return answer

    def close(self) -> None:
        """Close the client and end the thread. Idempotent."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.call(self._connection.__aexit__(), _CLOSE_TIMEOUT_S)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _look(self, work: Coroutine[Any, Any, StreamInfo]) -> None:
        longest = max(_CHECK_TIMEOUT_S, self._options.retry_timeout_s)
        self.record_bytes = self.call(work, longest + _GRACE_S).max_record_bytes

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _open(self) -> StreamInfo:
        await self._connection.__aenter__()
        return await self._describe()

    async def _describe(self) -> StreamInfo:
        started = time.monotonic()
        tries = 0
        while True:
            tries += 1
            timeout = started + _CHECK_TIMEOUT_S - time.monotonic()
            try:
                info = await asyncio.wait_for(
                    describe_stream(self._connection, self._options.stream), max(1.0, timeout)
                )
                if info.status != "CREATING":
                    return info
                error: KinesisConnectorError = TransientError(
                    f"The {self._label} is still being created.", "Wait until it is ACTIVE."
                )
            except asyncio.TimeoutError:
                error = TransientError(
                    f"{self._connection.endpoint_label} did not answer for {self._label} within "
                    f"{_CHECK_TIMEOUT_S:g}s.",
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
        key = (directory, options.stream.label)
        with self._lock:
            if key not in self._counters:
                counters = SinkCounters(
                    options.stream.label, options.max_in_flight_records, options.max_in_flight_bytes
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
