"""The file format of the ledger, which users keep for years. Pure.

There is one JSON object for each batch that is written::

    {"v": 1,
     "query": "3f6e...",          # the id of the query, which its checkpoint keeps
     "batch": 12,
     "target": "stream orders",   # where the query wrote to
     "offsets": "9f86d081...",    # SHA-256 of Spark's own file offsets/12
     "skipped": 0,                # rows left out because the user wanted that
     "streams": {"orders": {
         "shardId-000000000000": {"first": "4964...", "last": "4964...", "records": 3,
                                  "bytes": 120}}}}

A batch counts as written only where query, batch, target and offsets are all the same. Query id and
batch id alone do not name a batch: a user who deletes ``offsets`` and ``commits`` of a checkpoint
keeps the query id, and begins again at batch 0 with other rows. Spark's file of the batch's offsets
tells such batches apart, since it holds the time when the batch was made. Spark writes it before
the batch runs, and does not write it again when it runs the batch again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kinesis_ds.errors import shown
from kinesis_ds.plan.position import is_number
from kinesis_ds.writer.results import ShardWrites

VERSION = 1


class EntryError(ValueError):
    """The text is not an entry, is damaged, or was written by a newer version."""


@dataclass(frozen=True)
class Entry:
    """The record of one batch: where it was written to, and what was stored.

    Attributes:
        query_id: The id of the query, the same after a restart.
        batch_id: The number of the batch.
        target: Everything that says where the query writes to. With another target, the batch is
            not written yet.
        writes: What was stored, for each shard of each stream.
        skipped: How many rows were left out because the user wanted that.
    """

    query_id: str
    batch_id: int
    target: str
    writes: tuple[ShardWrites, ...]
    skipped: int = 0


@dataclass(frozen=True)
class WrittenBatches:
    """The batches that need not be written again. It is small, as it goes to every task.

    Attributes:
        batches: Query id, batch id and target of each.
    """

    batches: frozenset[tuple[str, int, str]] = frozenset()

    def holds(self, query_id: str | None, batch_id: int | None, target: str) -> bool:
        """Say whether this batch is written. A task that does not know its batch writes it."""
        return (query_id, batch_id, target) in self.batches


def encode_entry(entry: Entry, offsets: str) -> bytes:
    """Return the text of an entry.

    Args:
        entry: The entry.
        offsets: The SHA-256 of Spark's file of the batch's offsets, in hexadecimal.
    """
    streams: dict[str, dict[str, Any]] = {}
    for w in sorted(entry.writes, key=lambda w: (w.stream, w.shard_id)):
        streams.setdefault(w.stream, {})[w.shard_id] = {
            "first": w.first_sequence_number,
            "last": w.last_sequence_number,
            "records": w.records,
            "bytes": w.bytes,
        }
    raw = {
        "v": VERSION,
        "query": entry.query_id,
        "batch": entry.batch_id,
        "target": entry.target,
        "offsets": offsets,
        "skipped": entry.skipped,
        "streams": streams,
    }
    return json.dumps(raw, separators=(",", ":")).encode()


def decode_entry(text: bytes) -> tuple[Entry, str]:
    """Return the entry that a text holds, and the hash of Spark's file of its offsets.

    Raises:
        EntryError: The text is not an entry; the message says why, and what can be done. A newer
            version is not read, because its meaning is not known here: a batch that is left out
            by mistake is lost, while one that is written twice can be recognised.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise EntryError(f"is not JSON: {exc}") from exc
    if not isinstance(raw, dict) or type(raw.get("v")) is not int or raw["v"] < 1:
        raise EntryError(f"is no entry of this sink: {shown(raw)}")
    if raw["v"] > VERSION:
        raise EntryError(
            f"is in format {shown(raw['v'])}; this version of kinesis_ds reads up to {VERSION}. "
            "Upgrade kinesis_ds to the version that wrote it"
        )
    try:
        entry = Entry(
            query_id=_text(raw["query"]),
            batch_id=_count(raw["batch"]),
            target=_text(raw["target"]),
            writes=tuple(
                _shard_writes(stream, shard, found)
                for stream, shards in raw["streams"].items()
                for shard, found in shards.items()
            ),
            skipped=_count(raw["skipped"]),
        )
        return entry, _text(raw["offsets"])
    except (KeyError, TypeError, AttributeError) as exc:
        raise EntryError(f"is damaged: {exc!r} in {shown(raw)}") from exc


def _shard_writes(stream: str, shard: str, raw: dict[str, Any]) -> ShardWrites:
    for name in ("first", "last"):
        if not is_number(raw[name]):
            raise TypeError(f"{shown(raw[name])} is no sequence number")
    return ShardWrites(
        stream, shard, raw["first"], raw["last"], _count(raw["records"]), _count(raw["bytes"])
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} is no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{shown(value)} is no count")
    return value
