"""The streams that a worker process writes to: what is known of each, and the calls to them.

Everything here runs on the sink's network loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    ThrottledError,
    TransientError,
    WriteError,
)
from kinesis_ds.writer.prediction import Prediction
from kinesis_ds.writer.request_body import put_records

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.options.write import WriteOptions
    from kinesis_ds.plan.stream import StreamId, StreamInfo
    from kinesis_ds.writer.pacing import Pace
    from kinesis_ds.writer.records import Request

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long an endpoint that cannot be reached is tried before the task fails.
CHECK_TIMEOUT_S = 12.0


@dataclass
class TargetStream:
    """All that a worker process knows of one stream that it writes to.

    Attributes:
        record_bytes: The most bytes that a record may have, partition key included.
        distributes: Whether the stream chooses the shard of each record itself.
        prediction: Predicts the shard of a record, from the last listing of the shards.
        paces: How fast each shard takes records, by shard id; kept from task to task.
        described_at: When the record limit was last asked for again, in monotonic seconds.
    """

    record_bytes: int
    distributes: bool
    prediction: Prediction
    paces: dict[str, Pace] = field(default_factory=dict)
    described_at: float = float("-inf")


class TargetStreams:
    """The streams of a sink's options, or of its rows, each opened when it is first written to.

    Args:
        connection: Makes the calls.
        options: The query's.

    Attributes:
        opened: The streams that were written to.
    """

    def __init__(self, connection: Connection, options: WriteOptions) -> None:
        self._connection = connection
        self._options = options
        self.opened: dict[StreamId, TargetStream] = {}

    async def open(self, stream: StreamId) -> None:
        """Ask for the stream's record limit and its shards, which also shows that it is there.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked for.
            WriteError: The options ask for aggregation, and the stream does not support it.
        """
        info = await self._retried(_describe, stream)
        label = f"stream {stream.label}"
        prediction = Prediction(None)
        if info.distributes and self._options.aggregation:
            raise WriteError(
                f"{label[0].upper()}{label[1:]} places records itself (RecordDistributionStrategy "
                "is AUTO), so readers would leave out records of aggregates as misplaced.",
                "Write to it without aggregation and recordIds.",
            )
        if not info.distributes:
            try:
                prediction = Prediction(await self._retried(list_shards, stream))
            except AccessError as exc:
                if self._options.aggregation:
                    raise
                logger.warning(
                    "the shards of the stream may not be listed (kinesis:ListShards), so a shard "
                    "that is too busy slows down the others target=%s reason=%s",
                    label,
                    exc.message,
                )
        self.opened[stream] = TargetStream(info.max_record_bytes, info.distributes, prediction)
        logger.info("sink connected target=%s record_bytes=%d", label, info.max_record_bytes)

    async def update_record_bytes(self, stream: StreamId) -> None:
        """Ask for the record limit of an open stream again; it may have been raised.

        Raises:
            KinesisConnectorError: It is not there, or cannot be reached, or may not be asked for.
        """
        info = await self._retried(_describe, stream)
        self.opened[stream].record_bytes = info.max_record_bytes

    async def update_prediction(self, stream: StreamId) -> Prediction:
        """List the shards of an open stream again. Returns the new prediction.

        Raises:
            KinesisConnectorError: They cannot be listed.
            asyncio.TimeoutError: There was no answer within 12 seconds.
        """
        target = self.opened[stream]
        if not target.distributes:
            target.prediction = Prediction(
                await asyncio.wait_for(list_shards(self._connection, stream), CHECK_TIMEOUT_S)
            )
        return target.prediction

    async def put(self, stream: StreamId, request: Request) -> Mapping[str, Any]:
        """Make one PutRecords call. Returns the answer as Kinesis gives it.

        Raises:
            KinesisConnectorError: The request failed as a whole.
        """
        body = put_records(stream, request)
        return await self._connection.call("PutRecords", body, f"stream {stream.label}")

    async def _retried(
        self, ask: Callable[[Connection, StreamId], Coroutine[Any, Any, T]], stream: StreamId
    ) -> T:
        """Make a control call, again and again while its errors may pass."""
        started = time.monotonic()
        tries = 0
        while True:
            tries += 1
            timeout = started + CHECK_TIMEOUT_S - time.monotonic()
            try:
                return await asyncio.wait_for(ask(self._connection, stream), max(1.0, timeout))
            except asyncio.TimeoutError:
                error: KinesisConnectorError = TransientError(
                    f"{self._connection.endpoint_label} did not answer for stream {stream.label} "
                    f"within {CHECK_TIMEOUT_S:g}s.",
                    "Is the endpoint right, and reachable from here?",
                )
            except KinesisConnectorError as exc:
                if not exc.retryable:
                    raise
                error = exc
            # An account may call DescribeStreamSummary 20 times a second, and a large query starts
            # more workers than that at once: being throttled says nothing against the stream.
            patience = CHECK_TIMEOUT_S
            if isinstance(error, ThrottledError):
                patience = max(patience, self._options.retry_timeout_s)
            pause = random.uniform(0.1, min(5.0, 0.2 * 2 ** min(tries, 10)))
            if time.monotonic() + pause - started >= patience:
                raise error
            await asyncio.sleep(pause)


async def _describe(connection: Connection, stream: StreamId) -> StreamInfo:
    info = await describe_stream(connection, stream)
    if info.status == "CREATING":
        raise TransientError(
            f"The stream {stream.label} is still being created.", "Wait until it is ACTIVE."
        )
    return info
