"""How the records of a shard are decoded: options for agents and tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import Shard


@dataclass(frozen=True)
class Decoding:
    """Options for decoding the records of one shard, in an agent or in a task.

    Attributes:
        hash_range: First and last hash key of the shard, both included. User records of an
            aggregate with another hash key belong to another shard and are left out. None: the
            range is not known, and none is left out.
        deaggregate: True: take aggregates of the KPL apart into user records.
        metadata: True: add the columns of ``METADATA_SCHEMA``.
    """

    hash_range: tuple[int, int] | None = None
    deaggregate: bool = False
    metadata: bool = False


class WantedForm(Protocol):
    """The options that say in what form records are wanted, as :class:`Decoding` explains them."""

    @property
    def deaggregate(self) -> bool: ...
    @property
    def metadata(self) -> bool: ...


def decoding_of(shard: Shard | None, wanted: WantedForm) -> Decoding:
    """Return how the records of a shard are decoded; None stands for a shard that is not listed."""
    hash_range = shard.hash_range if shard is not None else None
    return Decoding(hash_range, wanted.deaggregate, wanted.metadata)


PLAIN = Decoding()
