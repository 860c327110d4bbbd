"""The form in which the records of a shard are wanted. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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


PLAIN = Decoding()
