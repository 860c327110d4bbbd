"""The service's clock: moments that have passed there, whatever the host's clock says.

Kinesis stamps records with their arrival by its own clock, and tells that clock in whole seconds
with every answer. A server that does not tell is taken to share the host's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.errors import KinesisConnectorError, TransientError

if TYPE_CHECKING:
    from kinesis_ds.aws.connection import Connection
    from kinesis_ds.clock import Clock
    from kinesis_ds.plan.stream import StreamId

# A record can be read "typically less than 1 second" after it was put, and the clocks of the
# service's machines differ a little: until then a moment is not taken to be over.
SETTLED_AFTER_S = 1.0
# Waiting for a moment longer than this means that the clock stands still, or is another one.
LONGEST_WAIT_S = 30.0
# DescribeStreamSummary allows 20 calls a second.
_POLL_S = 0.25


async def passed_second(connection: Connection, stream: StreamId, clock: Clock) -> int:
    """A whole second, in milliseconds since the epoch, that has passed on the service's clock.

    Every record that was there at the call has arrived earlier, and no record arrives earlier any
    more once this returns. Takes one to two seconds.

    Raises:
        TransientError: The service's clock stands still.
        KinesisConnectorError: The stream cannot be described.
    """
    moment_ms = (int(await _now(connection, stream, clock)) + 1) * 1000
    await wait_until_passed(connection, stream, clock, moment_ms)
    return moment_ms


async def wait_until_passed(
    connection: Connection, stream: StreamId, clock: Clock, moment_ms: int
) -> None:
    """Return once no record arrives before a moment any more.

    Raises:
        TransientError: Not within half a minute.
        KinesisConnectorError: The stream cannot be described.
    """
    over = moment_ms / 1000 + SETTLED_AFTER_S
    give_up = clock.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            if await _now(connection, stream, clock) >= over:
                return
        except KinesisConnectorError as exc:
            if not exc.retryable or clock.monotonic() >= give_up:
                raise
        if clock.monotonic() >= give_up:
            raise TransientError(
                f"The clock of the service at {connection.endpoint_label} did not come to "
                f"{moment_ms} (milliseconds since 1970) within {LONGEST_WAIT_S:g}s.",
                "Is the moment in the future, or is there a cache between here and Kinesis?",
            )
        await asyncio.sleep(_POLL_S)


async def _now(connection: Connection, stream: StreamId, clock: Clock) -> float:
    """The second that it is, or the moment, where the server does not tell."""
    told = (await describe_stream(connection, stream)).server_time
    return clock.wall() if told is None else told
