"""The sink's network loop and the streams behind it, as the threads of tasks use them.

Spark runs thousands of short tasks in a few long-lived Python workers. A connection of its own
would cost each of them a TLS handshake and a DescribeStreamSummary, so they share a service.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.errors import InternalError
from kinesis_ds.writer.target_streams import CHECK_TIMEOUT_S, TargetStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesis_ds.options.write import WriteOptions
    from kinesis_ds.plan.stream import StreamId

T = TypeVar("T")

_GRACE_S = 10.0
# Between two questions for a stream's record limit: a task may have thousands of rows above it, and
# an account has 20 such calls a second.
_RECORD_BYTES_KNOWN_S = 5.0


class SinkService:
    """A network loop for one set of options, with the streams that are written to.

    Its methods are for the threads of tasks, and block.

    Args:
        options: The query's: its stream, if it names one, and how to reach it.
        new_loop: Makes the event loop; a test may let its time pass faster.

    Attributes:
        network: The loop, for what does not wait.
        streams: The streams. Their methods are for the network loop.
        tasks: How many tasks use the service now; kept by the registry.

    Raises:
        KinesisConnectorError: The stream of the query is not there, or cannot be reached, or may
            not be asked for.
    """

    def __init__(
        self,
        options: WriteOptions,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._options = options
        self.network = NetworkLoop(
            options.aws,
            new_loop,
            # The sender repeats what fails, by its own rules.
            new_connection=functools.partial(
                Connection, max_connections=options.max_in_flight_requests, client_attempts=1
            ),
            name="kinesis-sink",
        )
        self.streams = TargetStreams(self.network.connection, options)
        self.tasks = 0
        if options.stream is not None:
            try:
                self._wait_for(self.streams.open(options.stream))
            except BaseException:
                self.network.close()
                raise

    def record_bytes(self, stream: StreamId) -> int:
        """Return a stream's record limit in bytes, partition key included, as it is known.

        Opens the stream if it was not written to before.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked for.
        """
        if stream not in self.streams.opened:
            self._wait_for(self.streams.open(stream))
        return self.streams.opened[stream].record_bytes

    def current_record_bytes(self, stream: StreamId) -> int:
        """Return the record limit of an open stream as it was at most five seconds ago.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked for.
        """
        target = self.streams.opened[stream]
        if time.monotonic() >= target.described_at + _RECORD_BYTES_KNOWN_S:
            self._wait_for(self.streams.update_record_bytes(stream))
            target.described_at = time.monotonic()
        return target.record_bytes

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the network loop and wait for its result.

        Raises:
            InternalError: There was no result within ``timeout_s``, or the loop was closed.
        """
        try:
            return self.network.wait_for(work, timeout_s)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            raise InternalError(
                f"The network thread of {self._options.label} did not answer within "
                f"{timeout_s:g}s.",
                "Please report this.",
            ) from None

    def _wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a control call, which ends by itself long before this gives up."""
        longest = max(CHECK_TIMEOUT_S, self._options.retry_timeout_s)
        return self.run(call, 2 * longest + _GRACE_S)
