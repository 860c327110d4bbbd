"""The agents as the coordinator sees them, whether they run in its process or in others.

A source has one :class:`Agents`, and one :class:`Agent` for each of its streams. Questions are
about many ranges at once, since an agent in another process is a round trip away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.plan.held import Held, Limits
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import Shard
    from kinesis_ds.plan.ticket import AgentAddress

    # Finds out why the service refuses a shard, given its id; returns None if nothing explains it.
    Diagnose = Callable[[str], Awaitable[KinesisConnectorError | None]]


class Agent(Protocol):
    """Reads the shards of a stream that it is assigned, and serves ranges of them, until closed."""

    # --- on the network loop, never blocking ----------------------------------------------------

    def assign(self, shard: Shard, position: Position) -> None:
        """Start reading a shard behind ``position``."""

    def mark_closed(self, shard_id: str) -> None:
        """Note that ListShards shows the shard closed."""

    def forget(self, shard_ids: Collection[str]) -> None:
        """Forget shards whose ends Spark has committed: nobody needs them any more."""

    # --- from any thread, never blocking --------------------------------------------------------

    def available(self) -> dict[str, Position]:
        """Return, by shard id, up to where the shard can be planned."""

    def failure(self) -> KinesisConnectorError | None:
        """Return why a shard will deliver nothing more; None while none has failed."""

    def free(self, positions: Mapping[str, Position]) -> None:
        """Drop what Spark has committed: by shard id, up to which position."""

    def address_of(self, shard_id: str) -> AgentAddress | None:
        """Return where tasks fetch the ranges of a shard; None while nobody serves it."""

    def silent(self) -> list[str]:
        """Return the shards of which nothing has come for ``SILENT_S`` although it should."""

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

    def plan(self, ranges: Sequence[ShardRange]) -> Sequence[Held | None]:
        """Return the same as ``hold``, for ranges that tasks will now be sent to fetch.

        What becomes of those that are held is counted when they are freed.
        """

    def targets(self, until_ms: int, host_ms: int) -> dict[str, Position]:
        """Return where a reader stops that wants all that arrived before a moment.

        Args:
            until_ms: The moment by the service's clock, in milliseconds since the epoch.
            host_ms: The same moment, or a later one, by this machine's clock.

        Returns:
            By shard id; without the shards of which it is not known yet.
        """

    def statistics(self) -> dict[str, Any]:
        """Return the counters of each shard by its id, as plain values."""

    def close(self) -> None:
        """Stop reading and serving. Idempotent."""


class Agents(Protocol):
    """The agents of a source, and the bound of their buffers, which they share.

    Attributes:
        news: Set when records came, or a shard ended or failed. Clear it before you look.
        moved: Set when any position moved, also over silence. Clear it before you look.
    """

    news: threading.Event
    moved: threading.Event

    def agent(
        self, options: AgentOptions, diagnose: Diagnose, changed: Callable[[], None]
    ) -> Agent:
        """Return a new agent for a stream. Close it before this.

        Args:
            diagnose: Finds out why the service refuses a shard.
            changed: Called on the loop when a shard broke or ended.
        """

    def statistics(self) -> dict[str, Any]:
        """Return the state of the shared buffer as ``pool``, how many planned ranges had which
        outcome as ``ranges``, and the agent processes, if there are any, as ``processes``.
        """

    def close(self) -> None:
        """Close what the agents share. Idempotent, never raises."""
