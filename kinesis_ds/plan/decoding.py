"""The form in which the records of a shard are wanted. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinesis_ds.plan.shards import Shard


@dataclass(frozen=True)
class Decoding:
    """How the records of one shard are decoded, by its agent and by a task that reads them itself.

    Attributes:
        hash_range: First and last hash key of the shard. None where they are not known: then no
            user record of an aggregate counts as another shard's.
        deaggregate: Take aggregates of the KPL apart into the user records they were made of.
        metadata: Add the columns of ``METADATA_SCHEMA``.
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
