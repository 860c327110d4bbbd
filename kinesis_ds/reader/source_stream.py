"""A stream of the query as it was looked up: what it is, its shards, its consumer."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.aws.consumers import (
    consumer_name,
    deregister_consumer,
    ensure_consumer,
    registered_consumer,
)
from kinesis_ds.aws.service_clock import passed_second
from kinesis_ds.aws.streams import describe_stream, list_shards
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.plan.loss import Loss, stream_recreated
from kinesis_ds.plan.offsets import StreamOffset
from kinesis_ds.plan.position import TRIM_HORIZON, AtTimestamp, ShardEnd
from kinesis_ds.plan.start import first_positions
from kinesis_ds.plan.stream import StreamId, StreamInfo
from kinesis_ds.reader.expiry import lost_before_start
from kinesis_ds.reader.planning import is_lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_ds.aws.loop import NetworkLoop
    from kinesis_ds.clock import Clock
    from kinesis_ds.options.read import ReadOptions, StreamChoice
    from kinesis_ds.plan.shards import ShardMap
    from kinesis_ds.plan.start import Start

logger = logging.getLogger(__name__)

# A call that Spark waits for is given up after this long.
CONTROL_TIMEOUT_S = 120.0
# Each shard whose position is old is looked at, and the service may be slow to answer.
_LOOK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Until:
    """A moment that has passed. A query that ends there does not read what arrived later.

    Attributes:
        service_ms: The moment by the service's clock, in milliseconds since the epoch.
        host_ms: The same moment, or a later one, by this machine's clock.
    """

    service_ms: int
    host_ms: int


@dataclass(eq=False)
class SourceStream:
    """A stream that was looked up. Nothing of it is read; see :class:`open_stream.OpenStream`.

    Attributes:
        options: What the user asked for.
        choice: What the user said of this stream.
        info: What Kinesis said of it.
        listed: Its shards, when it was looked up.
        network: The loop that makes all calls.
        clock: For deadlines, and for the age of positions.
        consumer: Name or ARN of the consumer that was asked for; empty before, and with polling.
    """

    options: ReadOptions
    choice: StreamChoice
    info: StreamInfo
    listed: ShardMap
    network: NetworkLoop
    clock: Clock
    consumer: str = ""
    _warned_recreated: bool = False

    @property
    def label(self) -> str:
        """Name of the stream for messages."""
        return f"stream {self.info.name}"

    # --- positions ------------------------------------------------------------------------------

    def checked(self, base: StreamOffset) -> StreamOffset:
        """Return the offset to go on from: ``base``, or the oldest record of a recreated stream.

        Raises:
            StreamRecreatedError: The stream was created again, and the query is to fail then.
        """
        if base.created_ms == self.info.created_ms:
            return base
        loss = stream_recreated(self.info.name)
        warning = loss.accept(fail_on_data_loss=self.options.fail_on_data_loss)
        if not self._warned_recreated:
            self._warned_recreated = True
            logger.warning("%s", warning)
        return self.at_start(base.consumer, TRIM_HORIZON, 0)

    def at_start(self, consumer: str, start: Start, now_ms: int) -> StreamOffset:
        """Return the offset before anything was read of this stream.

        A start before all that the stream keeps becomes the oldest record. If it stayed a time, it
        would look like a position that grew old unread when the query comes back.

        Args:
            consumer: Name or ARN of the consumer to put into the offset.
            start: Where the user wants to start.
            now_ms: What ``latest`` means, in milliseconds since the epoch.
        """
        kept_since_ms = now_ms - self.info.retention_hours * 3_600_000
        if isinstance(start, AtTimestamp) and start.ms < kept_since_ms:
            start = TRIM_HORIZON
        shards = first_positions(start, self.listed, now_ms)
        return StreamOffset(self.info.name, self.info.arn, self.info.created_ms, consumer, shards)

    def log_resumed(self, base: StreamOffset) -> None:
        """Log in one line what holds where options and checkpoint may disagree."""
        if base.created_ms != self.info.created_ms:
            return  # nothing holds; the user is warned of it
        choice, polled = self.choice, self.options.mode == "polling"
        consumer = "" if polled else choice.registered or choice.consumer or base.consumer
        left = base.consumer and consumer_name(consumer) != consumer_name(base.consumer)
        logger.info(
            "going on from the checkpoint, not from initialPosition stream=%s shards=%d mode=%s "
            "consumer=%s%s",
            self.info.name,
            len(base.shards),
            self.options.mode,
            consumer or "none",
            f"; if the checkpoint's consumer {base.consumer} was registered, it stays so"
            if left
            else "",
        )

    def without_lost(self, base: StreamOffset) -> StreamOffset:
        """Return an offset of a checkpoint without the shards that are gone.

        Looks at the oldest record of each shard whose position is older than the retention.

        Raises:
            DataLossError: A shard is gone or records expired unread, and the query is to fail.
        """
        network, info, options = self.network, self.info, self.options
        open_shards = {s: p for s, p in base.shards.items() if not isinstance(p, ShardEnd)}
        gone = {s for s, p in open_shards.items() if is_lost(s, p, self.listed, info.name, options)}

        async def look() -> list[Loss | None]:
            return [
                await lost_before_start(network.connection, info, s, p, self.clock)
                for s, p in open_shards.items()
                if s not in gone
            ]

        for loss in network.run(look(), _LOOK_TIMEOUT_S, f"Looking at the age of {self.label}"):
            if loss is not None:
                logger.warning("%s", loss.accept(fail_on_data_loss=options.fail_on_data_loss))
        return base.with_shards({s: p for s, p in base.shards.items() if s not in gone})

    def now(self) -> Until:
        """Return the present moment, once it has passed by the service's clock (1 to 2 seconds)."""
        stream = StreamId(arn=self.info.arn)
        passed = self.network.run(
            passed_second(self.network.connection, stream, self.clock),
            CONTROL_TIMEOUT_S,
            f"Asking for the time of {self.label}",
        )
        return Until(passed, int(self.clock.wall() * 1000))

    # --- the consumer ---------------------------------------------------------------------------

    def consumer_arn(self, of_checkpoint: str) -> str:
        """Find the consumer to read with, or register it, and return its ARN; empty with polling.

        Args:
            of_checkpoint: The name to use where the user gave none.

        Raises:
            KinesisConnectorError: The consumer cannot be had.
        """
        choice, network, timeout_s = self.choice, self.network, self.options.register_timeout_s
        if self.options.mode == "polling":
            return ""
        self.consumer = choice.registered or choice.consumer or of_checkpoint
        find = ensure_consumer if choice.registered is None else registered_consumer
        return network.run(
            find(network.connection, self.info, self.consumer, timeout_s, self.clock),
            timeout_s + CONTROL_TIMEOUT_S,
            f"Looking for the consumer {self.consumer}",
        )

    def deregister(self) -> None:
        """Remove the consumer that this query registered. Logs a warning when that fails."""
        if not self.consumer or self.choice.registered is not None:
            return
        try:
            self.network.run(
                deregister_consumer(self.network.connection, self.info, self.consumer),
                self.options.deregister_timeout_s,
                f"Deregistering the consumer {self.consumer}",
            )
        except KinesisConnectorError as exc:
            logger.warning("the consumer %s was not deregistered: %s", self.consumer, exc)


def look_up(
    choices: Sequence[StreamChoice], options: ReadOptions, network: NetworkLoop, clock: Clock
) -> dict[str, SourceStream]:
    """Look up streams and their shards, side by side, and return them by ARN.

    Raises:
        KinesisConnectorError: A stream does not exist or cannot be read.
    """

    async def look(choice: StreamChoice) -> SourceStream:
        info = await describe_stream(network.connection, choice.stream)
        listed = await list_shards(network.connection, StreamId(arn=info.arn))
        return SourceStream(options, choice, info, listed, network, clock)

    async def look_all() -> list[SourceStream]:
        return await asyncio.gather(*map(look, choices))

    label = ", ".join(choice.stream.label for choice in choices)
    found = network.run(look_all(), CONTROL_TIMEOUT_S, f"Looking up stream {label}")
    return {stream.info.arn: stream for stream in found}
