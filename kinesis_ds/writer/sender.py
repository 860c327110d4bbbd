"""Sends what the schedulers of one task choose: several requests at once, failed records again.

Runs on the network loop. A request that got no answer may have been stored all the same and is sent
again: the sink delivers at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    ThrottledError,
    WriteError,
    unexpected,
)
from kinesis_ds.writer.aggregating import Aggregator
from kinesis_ds.writer.records import PackingLimits
from kinesis_ds.writer.results import (
    Rejected,
    ShardWrites,
    WritesByShard,
    classify,
    merge,
    take_back,
    tally,
)
from kinesis_ds.writer.scheduler import Scheduler, Settled
from kinesis_ds.writer.waiting import WaitingRows

if TYPE_CHECKING:
    from kinesis_ds.options.write import WriteOptions
    from kinesis_ds.plan.stream import StreamId
    from kinesis_ds.writer.counters import SinkCounters
    from kinesis_ds.writer.inflight import InFlightWindow
    from kinesis_ds.writer.records import Request
    from kinesis_ds.writer.results import Answers
    from kinesis_ds.writer.rows import Piece
    from kinesis_ds.writer.target_streams import TargetStreams

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 30.0
# Between two listings of the shards of a stream that is resharded, or cannot be listed.
_LIST_AGAIN_S = 1.0
# A pace is asked no more often than this.
_TICK_S = 0.001


class Sender:
    """Makes the requests of one task. Everything but the constructor runs on the network loop.

    The first error ends the task: it goes to the window, which raises it in the task's thread.

    Args:
        streams: Makes the calls, each without retries of its own.
        window: Bounds what the task has in flight. The caller of :meth:`add` acquires room first.
        options: The options of the query.
        counters: Count each request and its outcome.
        id_prefix: What the ids of rows begin with; None where rows get no ids.
        uniform: Draws the pauses, as :func:`random.uniform` does.
    """

    def __init__(
        self,
        streams: TargetStreams,
        window: InFlightWindow,
        options: WriteOptions,
        counters: SinkCounters,
        *,
        id_prefix: str | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._streams = streams
        self._window = window
        self._options = options
        self._counters = counters
        self._id_prefix = id_prefix
        self._uniform = uniform
        self._schedulers: dict[StreamId, Scheduler] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._listings: dict[StreamId, asyncio.Task[None]] = {}
        self._surprised: set[StreamId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._written: WritesByShard = {}
        self._closed = False

    def add(self, piece: Piece) -> None:
        """Take rows, and send what is ready."""
        with self._failing_the_task():
            scheduler = self._schedulers.get(piece.stream)
            if scheduler is None:
                scheduler = self._schedulers[piece.stream] = self._open(piece.stream)
            scheduler.waiting.add(piece.block, self._now())
            self._send_ready()

    def hurry(self, on: bool) -> None:
        """Send without waiting for more rows while the task waits for room (``on``)."""
        with self._failing_the_task():
            for scheduler in self._schedulers.values():
                scheduler.waiting.hurry(on)
            self._send_ready()

    def flush(self) -> None:
        """Send all that is left, because no more rows come."""
        with self._failing_the_task():
            for scheduler in self._schedulers.values():
                scheduler.waiting.flush()
            self._send_ready()

    async def aclose(self) -> None:
        """Cancel what is under way, and return when it has ended. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._calls, *self._listings.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for scheduler in self._schedulers.values():
            scheduler.close()

    def written(self) -> tuple[ShardWrites, ...]:
        """Return what was stored so far, sorted by stream and shard."""
        return tuple(self._written[key] for key in sorted(self._written))

    def _open(self, stream: StreamId) -> Scheduler:
        options, target = self._options, self._streams.opened[stream]
        limits = PackingLimits(
            options.batch_max_records,
            # Never a request that the bound admits only when nothing else is in flight.
            min(options.batch_max_bytes, options.max_in_flight_bytes),
        )

        def new_aggregator(alone: bool) -> Aggregator:
            assert options.aggregation is not None
            return Aggregator(
                options.aggregation.max_bytes,
                1 if alone else options.aggregation.max_records,
                target.record_bytes,
                self._id_prefix,
            )

        waiting = WaitingRows(
            limits,
            target.prediction,
            ordered=options.ordered,
            linger_s=options.linger_s,
            paces=target.paces,
            new_aggregator=new_aggregator if options.aggregation is not None else None,
        )
        return Scheduler(
            waiting,
            limits,
            label=stream.label,
            retry_timeout_s=options.retry_timeout_s,
            uniform=self._uniform,
        )

    def _send_ready(self) -> None:
        """Send all that may be sent now, and set a timer for what may be sent later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sent = True
        while sent and not self._closed:
            sent = False
            for stream, scheduler in list(self._schedulers.items()):
                if not self._window.try_acquire_request():
                    return  # the call that ends next comes here again
                request = scheduler.next_request(self._now())
                if request is None:
                    self._window.release(requests=1)
                    continue
                sent = True
                self._schedulers[stream] = self._schedulers.pop(stream)  # the others are next
                call = asyncio.get_running_loop().create_task(self._run(stream, scheduler, request))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
        if self._closed:
            return
        now = self._now()
        schedulers = self._schedulers.values()
        times = [at for scheduler in schedulers if (at := scheduler.wake_at(now)) is not None]
        if times:
            at = max(min(times), now + _TICK_S)
            self._timer = asyncio.get_running_loop().call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        with self._failing_the_task():
            self._send_ready()

    async def _run(self, stream: StreamId, scheduler: Scheduler, request: Request) -> None:
        with self._failing_the_task():
            try:
                settled = await self._call(stream, scheduler, request)
            finally:
                self._window.release(requests=1)
            # Before 3.12, wait_for may answer although its task was cancelled in the meantime.
            if self._closed:
                return
            self._settle(stream, scheduler, settled)
            self._send_ready()

    async def _call(self, stream: StreamId, scheduler: Scheduler, request: Request) -> Settled:
        label = f"stream {stream.label}"
        left = request.first_try + self._options.retry_timeout_s - self._now()
        timeout = max(0.0, min(_CALL_TIMEOUT_S, left))
        self._counters.add(requests=1)
        try:
            answer = await asyncio.wait_for(self._streams.put(stream, request), timeout)
        except asyncio.TimeoutError:
            # A call that the deadline cuts short proves nothing: the reason before it stands.
            why = f"PutRecords for {label} got no answer within {timeout:.0f}s."
            if timeout < _CALL_TIMEOUT_S and scheduler.why:
                why = scheduler.why
            return scheduler.failed(request, why, throttled=False, now=self._now())
        except KinesisConnectorError as exc:
            if not exc.retryable:
                raise
            throttled = isinstance(exc, ThrottledError)
            return scheduler.failed(request, exc.message, throttled=throttled, now=self._now())
        answers = classify(answer, len(request))
        self._count(stream, request, answers)
        return scheduler.settle(request, answers, self._now())

    def _count(self, stream: StreamId, request: Request, answers: Answers) -> None:
        if writes := tally(stream.label, request, answers):
            merge(writes, into=self._written)
            self._counters.add(
                delivered_records=sum(w.records for w in writes),
                delivered_bytes=sum(w.bytes for w in writes),
                stored_records=answers.stored,
            )
        refused = [at for at, said in answers.failures.items() if isinstance(said, Rejected)]
        if refused:
            record, verdict = request.records[refused[0]], answers.failures[refused[0]]
            raise WriteError(
                f"Kinesis refused {len(refused)} of {len(request)} records for stream "
                f"{stream.label}; row {record.row} of the task: {verdict.code}: "
                f"{verdict.message}.",
                "Sending them again would not help.",
            )

    async def _list_shards_again(self, stream: StreamId, scheduler: Scheduler) -> None:
        """List the shards, again until all is where it was predicted; deal out what waits."""
        with self._failing_the_task():
            while stream in self._surprised:
                self._surprised.discard(stream)
                try:
                    prediction = await self._streams.update_prediction(stream)
                except AccessError:
                    raise
                except (KinesisConnectorError, asyncio.TimeoutError) as exc:
                    logger.debug("shards cannot be listed stream=%s: %s", stream.label, exc)
                    self._surprised.add(stream)
                else:
                    self._settle(stream, scheduler, scheduler.reshard(prediction, self._now()))
                    self._send_ready()
                # A reshard takes a while, and each answer in the meantime is another surprise.
                await asyncio.sleep(_LIST_AGAIN_S)
        self._listings.pop(stream, None)

    def _settle(self, stream: StreamId, scheduler: Scheduler, settled: Settled) -> None:
        self._counters.add(retried_records=settled.retried, throttled=settled.throttled)
        for gone in settled.misplaced:
            self._counters.add(
                misplaced_records=gone.rows,
                delivered_records=-gone.rows,
                delivered_bytes=-gone.window_bytes,
            )
            take_back(self._written, (stream.label, gone.shard_id), gone.rows, gone.window_bytes)
        self._window.release(records=settled.rows, size=settled.window_bytes)
        if settled.surprised:
            self._surprised.add(stream)
            if stream not in self._listings:
                work = self._list_shards_again(stream, scheduler)
                self._listings[stream] = asyncio.get_running_loop().create_task(work)

    @contextlib.contextmanager
    def _failing_the_task(self) -> Iterator[None]:
        """Let every error here fail the task, in words for the user."""
        try:
            yield
        except Exception as exc:
            # The task meets the error later, and hands rows over until then.
            self._closed = True
            if isinstance(exc, KinesisConnectorError):
                self._window.fail(exc)
            else:
                label = self._options.label
                logger.debug("sender failed target=%s", label, exc_info=True)
                self._window.fail(unexpected(exc, f"Writing to {label}"))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
