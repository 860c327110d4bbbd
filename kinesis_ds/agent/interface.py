"""What the coordinator asks of the agents, whether they live in its process or in others.

One :class:`Agents` for a source, one :class:`Agent` for each of its streams. Whoever plans asks
about many ranges at once, since an agent in another process is a round trip away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.plan.held import Held, Limits
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import Shard
    from kinesis_ds.plan.ticket import AgentAddress

    # Coroutine function: a shard's id to the error that explains its refusals, or None.
    Diagnose = Callable[[str], Awaitable[KinesisConnectorError | None]]


class Agent(Protocol):
    """Reads the shards of a stream that it is assigned and serves ranges of them until closed."""

    # --- on the network loop, never blocking ----------------------------------------------------

    def assign(self, shard: Shard, position: Position) -> None:
        """Start reading a shard behind ``position``."""

    def mark_closed(self, shard_id: str) -> None:
        """ListShards shows the shard closed."""

    # --- from any thread, never blocking --------------------------------------------------------

    def available(self) -> dict[str, Position]:
        """Up to where each shard can be planned."""

    def failure(self) -> KinesisConnectorError | None:
        """Why a shard will deliver nothing more, if one failed."""

    def free(self, positions: Mapping[str, Position]) -> None:
        """Spark has committed up to these positions."""

    def address_of(self, shard_id: str) -> AgentAddress | None:
        """Where tasks get the ranges of a shard; None while nobody serves it."""

    # --- from any thread but the loop's; answered within a deadline -----------------------------

    def hold(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> Iterable[Held | None]:
        """Return how much is held of each range, within its limits; None where not all of it is.

        Take the answers at once, and no more of them than you need: an agent in this process looks
        at a range only when its answer is taken.

        Args:
            limits: One for each range; empty if there are none.
        """

    def targets(self, until_ms: int, host_ms: int) -> dict[str, Position]:
        """Where a reader that wants what arrived before ``until_ms`` stops, in the shards where
        that is known.

        Args:
            until_ms: By the service's clock.
            host_ms: The same moment, or a later one, by this machine's.
        """

    def statistics(self) -> dict[str, Any]:
        """Counters of each shard, as plain values."""

    def close(self) -> None:
        """End what reads. Idempotent."""


class Agents(Protocol):
    """The agents of a source and what they share: the bound of their buffers.

    Attributes:
        news: Set when records came, or a shard ended or failed. Whoever looks clears it first.
        moved: Set when any position moved, over silence too.
    """

    news: threading.Event
    moved: threading.Event

    def agent(
        self, options: AgentOptions, diagnose: Diagnose, changed: Callable[[], None]
    ) -> Agent:
        """An agent for a stream. Close it first.

        Args:
            changed: Called on the loop when a shard broke or ended.
        """

    def statistics(self) -> dict[str, Any]:
        """The state of the shared buffer as ``pool``, and of the processes, where there are any,
        as ``processes``.
        """

    def close(self) -> None:
        """End what the agents share. Idempotent, never raises."""
