"""The connector in time that passes faster, in step with the double's: pauses are kept, not waited.

The rules of subscriptions (one call a second, five seconds since the last success, five minutes of
life) are enforced by the double and kept by the connector, both by one ``ScaledClock(SPEED)``.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.network import NetworkLoop

if TYPE_CHECKING:
    from kinesis_ds.options import AwsOptions

# Five seconds take a quarter of one, five minutes 15 s.
SPEED = 20.0


class _FastSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout if timeout is None else timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose every timer runs ``SPEED`` times as fast."""

    def __init__(self) -> None:
        super().__init__(_FastSelector())

    def time(self) -> float:
        return time.monotonic() * SPEED


def fast_network(aws: AwsOptions) -> NetworkLoop:
    """A network loop in fast time."""
    return NetworkLoop(aws, FastLoop)
