"""Count the ranges that tasks read from Kinesis although an agent reads the stream, and warn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.clock import Clock

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0
# Until a range has been committed: a query that ends at the tip may commit only one batch.
_LOOK_FIRST_EVERY_S = 0.2


class Fallbacks:
    """Counts the ranges of one source by the reason why they were not fetched from an agent.

    Args:
        host: The address of the agents, for the warning.
        clock: The counts are looked at every few seconds until the warning was logged.

    Attributes:
        not_held: Ranges that no agent held when they were planned.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self.not_held = 0
        self._host = host
        self._clock = clock
        self._look_at = 0.0
        self._warned = False

    def counters(self, statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``fetched``, and ``fallbacks`` by their reason, given what the agents report."""
        by_outcome = dict(statistics["ranges"])
        fetched = by_outcome.pop("fetched")
        return {"fetched": fetched, "fallbacks": {"not_held": self.not_held, **by_outcome}}

    def look(self, agents: Agents) -> None:
        """Warn, once, if tasks do not fetch ranges from the agents. Call it after each commit."""
        now = self._clock.monotonic()
        if self._warned or now < self._look_at:
            return
        found = agents.statistics()["ranges"]
        planned, missed = sum(found.values()), found["not_fetched"]
        self._look_at = now + (_LOOK_EVERY_S if planned else _LOOK_FIRST_EVERY_S)
        # A few may be missed for other reasons, such as an executor that was just lost.
        if missed * 10 > planned:
            self._warned = True
            logger.warning(
                "%d of %d ranges that were planned for the agent at %s were committed without "
                "being fetched from it. Tasks that cannot reach the agent read each range from "
                "Kinesis with GetRecords, so the stream is read twice. Set agentHost to an address "
                "of the driver that all executors can reach. (If the query does not look at all "
                "its rows, this means nothing.)",
                missed,
                planned,
                self._host,
            )
