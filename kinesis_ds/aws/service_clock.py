"""Wait until a moment has passed on the service's clock, whatever the host's clock says.

Kinesis stamps each record with its time of arrival, by its own clock. Every answer shows that clock
in whole seconds (header ``Date``). If a server does not send it, the host's clock is used.
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

# A moment counts as over only this long after it: a record can be read "typically less than 1
# second" after it was put, and the clocks of the service's machines differ a little.
# https://docs.aws.amazon.com/streams/latest/dev/introduction.html
SETTLED_AFTER_S = 1.0
# If a moment does not come within this time, the service's clock stands still.
LONGEST_WAIT_S = 30.0
# Between two looks at the clock. DescribeStreamSummary allows 20 calls a second.
_POLL_S = 0.25


async def passed_second(connection: Connection, stream: StreamId, clock: Clock) -> int:
    """Return a whole second that has passed on the service's clock, in ms since the epoch.

    Records that were in the stream at the call arrived before that second. After the return, no
    record arrives before it any more. Takes one to two seconds.

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
    """Wait until no record arrives before a moment any more.

    Args:
        connection: Makes the calls.
        stream: The stream that is described to see the clock.
        clock: The host's clock.
        moment_ms: The moment, in milliseconds since the epoch.

    Raises:
        TransientError: The moment did not come within half a minute.
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
    """Return the time of the service, or of the host, in seconds since the epoch."""
    server_time = (await describe_stream(connection, stream)).server_time
    return clock.wall() if server_time is None else server_time
