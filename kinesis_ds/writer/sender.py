"""Sends the requests of one task: several at once, failed records again, all of them by a deadline.

Runs on the network loop. Each packed request is a coroutine that ends when every record of it is
stored. A request that got no answer may have been stored all the same and is sent again: the sink
delivers at least once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import (
    InternalError,
    KinesisConnectorError,
    ThrottledError,
    TransientError,
    WriteError,
)
from kinesis_ds.writer.results import (
    THROTTLED_CODES,
    Delivered,
    Rejected,
    Retry,
    ShardWrites,
    classify,
    merge,
    tally,
)

if TYPE_CHECKING:
    from kinesis_ds.writer.batching import Record, Request
    from kinesis_ds.writer.counters import SinkCounters
    from kinesis_ds.writer.inflight import InFlightWindow

logger = logging.getLogger(__name__)

PutRecords = Callable[[list[dict[str, Any]]], Awaitable[Mapping[str, Any]]]
"""One PutRecords call: entries to the answer, or a :class:`KinesisConnectorError`."""

_BACKOFF_BASE_S = 0.1
_BACKOFF_CAP_S = 5.0
_CALL_TIMEOUT_S = 30.0


class Sender:
    """The requests of one task. Everything but the constructor runs on the network loop.

    The first error ends the task: it goes to the window, where the task's thread meets it.

    Args:
        put: Makes one call, without retries of its own.
        window: What the task has in flight. Whoever calls :meth:`send` has acquired room in it.
        label: The stream, for messages.
        retry_timeout_s: How long one record is tried.
        counters: Told of each request and its outcome.
        uniform: Draws the back-off.
    """

    def __init__(
        self,
        put: PutRecords,
        window: InFlightWindow,
        *,
        label: str,
        retry_timeout_s: float,
        counters: SinkCounters,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._put = put
        self._window = window
        self._label = label
        self._retry_timeout_s = retry_timeout_s
        self._counters = counters
        self._uniform = uniform
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: deque[asyncio.Future[None]] = deque()
        self._written: dict[str, ShardWrites] = {}
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a request is under way or waits to be sent again."""
        return bool(self._tasks)

    def send(self, request: Request) -> None:
        """Begin to deliver a request."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel what is still under way and wait until it has ended. Idempotent."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def written(self) -> tuple[ShardWrites, ...]:
        """What was stored so far, by shard."""
        return tuple(self._written[shard] for shard in sorted(self._written))

    async def _run(self, request: Request) -> None:
        try:
            await self._deliver(request.records)
        except KinesisConnectorError as exc:
            self._window.fail(exc)
        except Exception as exc:
            logger.debug("sender failed target=%s", self._label, exc_info=True)
            self._window.fail(
                InternalError(
                    f"Writing to {self._label}: {type(exc).__name__}: {exc}.", "Please report this."
                )
            )

    async def _deliver(self, records: list[Record]) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + self._retry_timeout_s
        tries = 0
        why = ""
        while True:
            tries += 1
            records, why = await self._try(records, deadline, why)
            self._request_ended()
            # Before 3.12, wait_for may answer although its task was cancelled in the meantime.
            if not records or self._closed:
                return
            longest = min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * 2 ** min(tries - 1, 10))
            pause = self._uniform(0.0, longest)
            if now() + pause >= deadline:
                raise self._exhausted(records, tries, why)
            logger.debug(
                "records to send again target=%s records=%d tries=%d pause_s=%.2f reason=%s",
                self._label,
                len(records),
                tries,
                pause,
                why,
            )
            await asyncio.sleep(pause)
            await self._request_slot()
            if now() >= deadline:  # the slot came too late for another call
                self._request_ended()
                raise self._exhausted(records, tries, why)

    async def _try(
        self, records: list[Record], deadline: float, before: str
    ) -> tuple[list[Record], str]:
        """One call. Returns the records to send again and the reason of the last of them.

        A call that the deadline cuts short proves nothing: the reason ``before`` it stands.
        """
        timeout = min(_CALL_TIMEOUT_S, deadline - asyncio.get_running_loop().time())
        self._counters.add_request()
        try:
            answer = await asyncio.wait_for(
                self._put([r.entry for r in records]), max(0.0, timeout)
            )
        except asyncio.TimeoutError:
            said = f"PutRecords for {self._label} got no answer within {timeout:.0f}s."
            records, why = self._all_again(records, TransientError(said))
            return records, before if before and timeout < _CALL_TIMEOUT_S else why
        except KinesisConnectorError as exc:
            if not exc.retryable:
                raise
            return self._all_again(records, exc)

        verdicts = classify(answer, len(records))
        pairs = list(zip(records, verdicts, strict=True))
        delivered = [record for record, verdict in pairs if isinstance(verdict, Delivered)]
        if delivered:
            size = sum(record.size for record in delivered)
            merge(tally(pairs), into=self._written)
            self._counters.add_delivered(len(delivered), size)
            self._window.release(records=len(delivered), size=size)

        refused = [(r, v) for r, v in pairs if isinstance(v, Rejected)]
        if refused:
            record, verdict = refused[0]
            raise WriteError(
                f"Kinesis refused {len(refused)} of {len(records)} records for {self._label}; row "
                f"{record.row} of the task: {verdict.code}: {verdict.message}.",
                "Sending them again would not help.",
            )
        again = [(r, v) for r, v in pairs if isinstance(v, Retry)]
        if not again:
            return [], ""
        throttled = sum(verdict.code in THROTTLED_CODES for _, verdict in again)
        self._counters.add_retried(len(again), throttled)
        last = again[-1][1]
        # The service's message names the shard that was too busy.
        return [record for record, _ in again], f"{last.code}: {last.message}"

    def _all_again(
        self, records: list[Record], error: KinesisConnectorError
    ) -> tuple[list[Record], str]:
        throttled = len(records) if isinstance(error, ThrottledError) else 0
        self._counters.add_retried(len(records), throttled)
        return records, error.message

    def _request_ended(self) -> None:
        # Records whose pause is over have waited longer than anything the task could add now, so a
        # slot that gets free is theirs. It is handed over without ever being released.
        while self._due:
            waiting = self._due.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._window.release(requests=1)

    async def _request_slot(self) -> None:
        if self._window.try_acquire_request():
            return
        # Ends: every request under way has a time-out, and gives its slot to whoever waits here.
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._due.append(waiting)
        await waiting

    def _exhausted(self, records: list[Record], tries: int, why: str) -> WriteError:
        return WriteError(
            f"{len(records)} records could not be written to {self._label} within "
            f"{self._retry_timeout_s:g}s ({tries} tries). The last reason: {why.rstrip('.')}.",
            "If it is throttling, add shards or slow the query down; else check the endpoint and "
            "the network. retryTimeout sets how long to try.",
        )
