"""The question that plans ask the agents: how many records of these ranges are held? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange


class Limits(NamedTuple):
    """The most that is taken of a range, or of a batch.

    Attributes:
        max_records: So many records; None for no limit.
        max_bytes: So many bytes of data and partition keys; None for no limit.
        at_least_one: Of a range: take the first record even if it is larger than a limit, together
            with all that shares its sequence number.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    at_least_one: bool = False


NO_LIMITS = Limits()


class Held(NamedTuple):
    """The answer of an agent: what it holds of a range, within the limits of the question.

    Attributes:
        records: Number of records.
        nbytes: Bytes of their data and partition keys.
        end: Behind the last of them; the end of the range if all of it is within the limits.
        oldest_ms: Arrival of the first record of the range, in milliseconds since the epoch,
            whether it is within the limits or not; None if the range holds no record.
    """

    records: int
    nbytes: int
    end: Position
    oldest_ms: int | None = None


class Hold(Protocol):
    """Asks the agents of one stream; as :meth:`kinesis_ds.agent.interface.Agent.hold`."""

    def __call__(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> Iterable[Held | None]: ...
