"""One diagnosis for all shards that ask for one at the same time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.errors import KinesisConnectorError, unexpected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

# Diagnoses are at least this far apart.
_MIN_INTERVAL_S = 1.0


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a diagnosis.

    Attributes:
        began: When it began, in seconds of the loop's clock.
        error: Why nothing can be read; None: nothing is wrong.
        failed: Why it could not be found out; None: it was.
    """

    began: float
    error: KinesisConnectorError | None = None
    failed: KinesisConnectorError | None = None


class SharedDiagnosis:
    """Runs a diagnosis at most once a second, however many ask. On the network loop.

    Shards often ask together, since all of them meet the same trouble. Everybody who asked before a
    diagnosis began shares its outcome.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._last: _Outcome | None = None

    async def ask(
        self, diagnose: Callable[[], Awaitable[KinesisConnectorError | None]]
    ) -> KinesisConnectorError | None:
        """Return the outcome of a diagnosis that begins now or later.

        Args:
            diagnose: Makes one; returns why nothing can be read, or None if nothing is wrong.

        Raises:
            KinesisConnectorError: ``diagnose`` raised it: the cause cannot be found out.
        """
        now = asyncio.get_running_loop().time
        asked = now()
        async with self._lock:
            if self._last is None or self._last.began < asked:
                if self._last is not None:
                    await asyncio.sleep(max(0.0, self._last.began + _MIN_INTERVAL_S - now()))
                began = now()
                try:
                    self._last = _Outcome(began, await diagnose())
                except KinesisConnectorError as exc:
                    self._last = _Outcome(began, failed=exc)
                except Exception as exc:
                    logger.exception("a diagnosis failed; please report this")
                    self._last = _Outcome(began, failed=unexpected(exc, "A diagnosis"))
            outcome = self._last
        if outcome.failed is not None:
            raise outcome.failed
        return outcome.error
