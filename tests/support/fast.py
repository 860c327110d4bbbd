"""The connector in time that passes faster, in step with the double's: pauses are kept, not waited.

The rules of subscriptions (one call a second, five seconds since the last success, five minutes of
life) are enforced by the double and kept by the connector, both by one ``ScaledClock(SPEED)``.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.loop import NetworkLoop

if TYPE_CHECKING:
    from kinesis_ds.options.aws import AwsOptions

# Five seconds take a quarter of one, five minutes 15 s.
SPEED = 20.0


class _FastSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        return super().select(timeout if timeout is None else timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose every timer runs ``SPEED`` times as fast."""

    def __init__(self) -> None:
        self._waits = _FastSelector()
        super().__init__(self._waits)

    @property
    def turns(self) -> int:
        """How often it has looked for something to do."""
        return int(self._waits.turns)

    def time(self) -> float:
        return time.monotonic() * SPEED

    def close(self) -> None:
        """End what a call that was given up left: TLS says goodbye, and waits for the peer's."""
        if not self.is_closed():
            open_ones = self._transports.values()
            left = [t for t in open_ones if isinstance(t.get_protocol(), SSLProtocol)]
            for transport in left:
                transport.abort()
            if left:
                self.run_until_complete(asyncio.sleep(0))
        super().close()


def fast_network(aws: AwsOptions) -> NetworkLoop:
    """A network loop in fast time."""
    return NetworkLoop(aws, FastLoop)
