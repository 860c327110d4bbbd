"""Decides how often a shard is polled. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.limits import GET_RECORDS_MIN_INTERVAL_S

if TYPE_CHECKING:
    import random

    from kinesis_ds.options.read import PollingOptions

# At the tip, an empty answer doubles the pause up to this: the most by which the first record after
# a silence is late. As long as a record may take to become readable anyway ("typically less than
# 1 second"), and a fifth of what the shard allows all its readers together.
IDLE_MAX_S = 1.0


class PollingPace:
    """Says when the next call for a shard may be made.

    Args:
        options: How fast the user lets shards be polled.
        rng: Source of jitter.

    Attributes:
        answered_at: When the last call was answered, in monotonic seconds.
    """

    def __init__(self, options: PollingOptions, rng: random.Random) -> None:
        self._period_s = max(options.min_period_s, GET_RECORDS_MIN_INTERVAL_S)
        self._bytes_per_s = options.bytes_per_s
        self._rng = rng
        self.answered_at = 0.0
        self._not_before = 0.0
        self._idle_s = 0.0

    def answered(self, now: float) -> None:
        """Note that a call was answered. The service counts from when it came in: earlier."""
        self.answered_at = now
        self._not_before = now + self._period_s

    def pay(self, payload: int) -> None:
        """Leave the shard alone for as long as it takes to allow ``payload`` bytes.

        More than the service asks for, which refuses calls only after a second's worth was taken
        at once. But what is not read here, others can read.
        """
        self._not_before = max(self._not_before, self.answered_at + payload / self._bytes_per_s)

    def learn(self, *, nothing_new: bool) -> None:
        """Note whether the last answer was empty at the tip: then the pause grows."""
        if nothing_new:
            longest = max(IDLE_MAX_S, self._period_s)
            self._idle_s = min(longest, max(self._period_s, 2 * self._idle_s))
        else:
            self._idle_s = 0.0

    def earliest(self) -> float:
        """Return when the next call may be made, in monotonic seconds."""
        # Shards that were opened together are not to be polled together for ever.
        idle = self._idle_s * self._rng.uniform(0.9, 1.0)
        return max(self._not_before, self.answered_at + idle)
