"""The start of a query: what the user may ask for, and the positions that follow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_ds.errors import OptionError
from kinesis_ds.plan.lineage import ancestors
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    AtTimestamp,
    Position,
    ShardEnd,
    TrimHorizon,
)
from kinesis_ds.plan.stream import same_stream, stream_of

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import ShardMap


@dataclass(frozen=True)
class Latest:
    """Start at what is written from now on. Becomes a time when the query first runs."""


@dataclass(frozen=True)
class ShardPositions:
    """The positions that the user gave for single shards.

    Attributes:
        by_stream: Position by stream and shard id. The stream is a name or ARN, as the user wrote
            it, or None where the user named no stream.
        created_ms: When each stream was created, in milliseconds since the epoch, by the same key.
            Known only where the user gave an offset that was printed.
    """

    by_stream: Mapping[str | None, Mapping[str, Position | Latest]]
    created_ms: Mapping[str | None, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(
            frozenset((stream, frozenset(of.items())) for stream, of in self.by_stream.items())
        )

    def keys(self, stream: str) -> list[str | None]:
        """Return the keys that may mean a stream, given by name or ARN: one if all is right."""
        return [key for key in self.by_stream if key is None or same_stream(key, stream)]

    def of(
        self, arn: str, listed: Collection[str], created_ms: int | None = None
    ) -> Mapping[str, Position | Latest]:
        """Return the positions in one stream, by shard id.

        ``SHARD_END`` of a shard that the stream no longer lists is left out.

        Args:
            arn: The ARN of the stream.
            listed: The ids of its shards.
            created_ms: When it was created, in milliseconds since the epoch.

        Raises:
            OptionError: The positions belong to another stream, or to shards that are gone.
        """
        keys = [key for key in self.by_stream if key in (None, arn, stream_of(arn))]
        if not keys:
            raise OptionError(
                f"No position by shard is given for the stream {arn}, only for "
                f"{few([key for key in self.by_stream if key])}.",
                "Name each stream of the query among the positions, by name or by this ARN.",
            )
        created = self.created_ms.get(keys[0])
        if created is not None and created_ms is not None and created != created_ms:
            raise OptionError(
                f"The offset given as position is of a stream {arn} that was deleted and created "
                "again since.",
                "Its positions mean nothing any more. Start at trim_horizon or at_timestamp.",
            )
        given = self.by_stream[keys[0]]
        unknown = sorted(
            shard
            for shard, position in given.items()
            if shard not in listed and not isinstance(position, ShardEnd)
        )
        if unknown:
            raise OptionError(
                f"The stream {arn} does not have {few(unknown)}, which a position was given for.",
                f"It lists {few(sorted(listed))}. Are the positions those of another stream, or "
                "of shards whose records have expired?",
            )
        return {shard: position for shard, position in given.items() if shard in listed}


InitialPosition = Latest | TrimHorizon | AtTimestamp | ShardPositions


EndingPosition = Latest | AtTimestamp | ShardPositions

# Where a query starts in one stream, and where a batch read ends in it.
Start = Latest | TrimHorizon | AtTimestamp | Mapping[str, "Position | Latest"]
End = Latest | AtTimestamp | Mapping[str, "Position | Latest"]


def few(names: Collection[str], most: int = 3) -> str:
    """Return the first names, sorted, and how many more there are, for a message."""
    shown = ", ".join(sorted(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


# The host's clock is trusted to start at "now" unless it differs this much from the service's.
_CLOCK_SKEW_S = 2.0


def pin_now_ms(host_time: float, server_time: float | None) -> int:
    """Return the moment that ``latest`` means, in milliseconds since the epoch.

    A host whose clock is ahead would leave out records, so the service's clock decides when the two
    differ by more than two seconds.

    Args:
        host_time: This machine's clock, in seconds since the epoch.
        server_time: The service's clock, in whole seconds since the epoch; None: unknown.
    """
    if server_time is not None and abs(host_time - server_time) > _CLOCK_SKEW_S:
        return int(server_time) * 1000
    return int(host_time * 1000)


def first_positions(initial: Start, listed: ShardMap, now_ms: int) -> dict[str, Position]:
    """Return the position at which a new query starts in each shard.

    ``latest`` becomes a fixed time, and shards that are closed by now start at their end. Shards
    found later start at TRIM_HORIZON, so a start at the oldest record has only the shards without
    listed parents.

    Positions by shard are taken as they are, and the ancestors of a named shard start at their end.
    All other shards are read from their oldest record, and are not in the result.

    Args:
        initial: What the user asked for.
        listed: The shards of the stream.
        now_ms: What ``latest`` means, in milliseconds since the epoch.
    """
    if isinstance(initial, Latest):
        return {s.shard_id: SHARD_END if s.closed else AtTimestamp(now_ms) for s in listed.values()}
    if isinstance(initial, TrimHorizon):
        return {
            s.shard_id: TRIM_HORIZON
            for s in listed.values()
            if not any(parent in listed for parent in s.parents)
        }
    if isinstance(initial, AtTimestamp):
        return {s.shard_id: initial for s in listed.values()}
    positions: dict[str, Position] = dict.fromkeys(ancestors(initial, listed), SHARD_END)
    for shard_id, position in initial.items():
        positions[shard_id] = AtTimestamp(now_ms) if isinstance(position, Latest) else position
    return positions
