"""What the tasks of one worker process share: a service for each set of options, and counters."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from typing import TYPE_CHECKING

from kinesis_ds.observe.counters_file import StatisticsFile
from kinesis_ds.writer.counters import SinkCounters
from kinesis_ds.writer.service import SinkService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_ds.options.write import WriteOptions

# Services without a task that are kept: a worker rarely writes to more streams than this.
_MAX_IDLE = 4


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
        """Lend the service for these options to a task; start one if there is none.

        A task that fails takes the service with it, so that the next one looks at the stream and
        at the credentials anew.
        """
        # Starting happens under the lock, so that two tasks never start two. It has a deadline.
        with self._lock:
            service = self._services.get(options)
            if service is None:
                service = self._services[options] = SinkService(options, self._new_loop)
            service.tasks += 1
        failed = True
        try:
            yield service
            failed = False
        finally:
            self._give_back(options, service, failed=failed)

    def counters(self, options: WriteOptions) -> SinkCounters:
        """Return the counters of a stream, written to a file where the options ask for it."""
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
                    counters.after_task = file.flush
                    self._files.append(file)
            return self._counters[key]

    def close(self) -> None:
        """Close all services and files, at the end of the process."""
        with self._lock:
            services, self._services = list(self._services.values()), {}
            files, self._files, self._counters = self._files, [], {}
        for service in services:
            service.network.close()
        for file in files:
            file.close()

    def _give_back(self, options: WriteOptions, service: SinkService, *, failed: bool) -> None:
        with self._lock:
            service.tasks -= 1
            if self._services.get(options) is service:
                del self._services[options]
                if not failed:
                    self._services[options] = service  # the last one is the one used last
            idle = [key for key, other in self._services.items() if other.tasks == 0]
            ended = [self._services.pop(key) for key in idle[:-_MAX_IDLE]]
            if service.tasks == 0 and self._services.get(options) is not service:
                ended.append(service)
        for each in ended:
            each.network.close()


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
