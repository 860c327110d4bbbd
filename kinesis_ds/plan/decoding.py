"""How the records of a shard are decoded: options for agents and tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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


PLAIN = Decoding()
