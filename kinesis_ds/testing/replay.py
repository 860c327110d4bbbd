"""Events that are encoded beforehand and sent as fast as the socket takes them. Pure.

The double's own work for an event is then one write, so that a benchmark measures the client.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kinesis_ds.limits import GET_RECORDS_MAX_RECORDS, MIB
from kinesis_ds.testing.frames import event_message
from kinesis_ds.testing.tokens import seal, unseal

_FIRST = 49_600_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
_ARRIVED_S = 1_700_000_000.0
_CHUNK_BYTES = 1 * MIB
_ANSWER_BYTES = 10 * MIB
# What stands before and behind the records of an event as _event writes it.
_BEFORE = b'{"Records":['
_BEHIND = b'],"ContinuationSequenceNumber"'


@dataclass(frozen=True)
class Replay:
    """The events of a shard, in order.

    Attributes:
        frames: For each event its event-stream message.
        last: For each event the sequence number of its last record.
        records: How many records all events hold.
        data_bytes: Bytes of the data of all records, before base64.
        heartbeat_s: Seconds between empty events, when all events were sent.
    """

    frames: tuple[bytes, ...]
    last: tuple[int, ...]
    records: int
    data_bytes: int
    heartbeat_s: float = 5.0

    def heartbeat(self) -> bytes:
        """Return the message of an empty event, which is sent when all events were sent."""
        return event_message(_event([], self.last[-1], 0))

    @classmethod
    def of(cls, events: int, records_per_event: int, record_bytes: int) -> Replay:
        """Return events with records of equal size; the data of each begins with its number."""
        frames, last = [], []
        total = events * records_per_event
        number = _FIRST
        for event in range(events):
            items = []
            for i in range(records_per_event):
                index = event * records_per_event + i
                number = _FIRST + index * 3
                data = str(index).encode().ljust(record_bytes, b".")[:record_bytes]
                items.append(
                    {
                        "SequenceNumber": str(number),
                        "ApproximateArrivalTimestamp": _ARRIVED_S,
                        "Data": base64.b64encode(data).decode(),
                        "PartitionKey": f"key-{index % 1000}",
                        "EncryptionType": "NONE",
                    }
                )
            left = total - (event + 1) * records_per_event
            frames.append(event_message(_event(items, number, left)))
            last.append(number)
        return cls(tuple(frames), tuple(last), total, total * record_bytes)

    def chunks_from(self, position: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events after a StartingPosition, joined to pieces of about a megabyte."""
        start = bisect_right(self.last, _after(position.get("Type"), position))
        pieces: list[bytes] = []
        size = 0
        for frame in self.frames[start:]:
            pieces.append(frame)
            size += len(frame)
            if size >= _CHUNK_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
        if pieces:
            yield b"".join(pieces)

    def iterator(self, stream: str, shard_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to GetShardIterator."""
        named = {"SequenceNumber": request.get("StartingSequenceNumber")}
        return self._iterator(stream, shard_id, _after(request.get("ShardIteratorType"), named))

    def get_records(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to GetRecords: as many whole events as it may have, at least one.

        The records are joined as they were encoded.
        """
        fields = unseal("iterator", request["ShardIterator"]) or {}
        limit = request.get("Limit") or GET_RECORDS_MAX_RECORDS
        after = int(fields["after"])
        start = stop = bisect_right(self.last, after)
        each = self.records // len(self.frames)
        pieces: list[bytes] = []
        size = 0
        while stop < len(self.frames):
            frame = self.frames[stop]
            size += len(frame)
            if pieces and ((len(pieces) + 1) * each > limit or size > _ANSWER_BYTES):
                break
            pieces.append(frame[frame.index(_BEFORE) + len(_BEFORE) : frame.rindex(_BEHIND)])
            stop += 1
        following = self._iterator(
            fields["stream"], fields["shard"], self.last[stop - 1] if stop > start else after
        )
        return {
            "Records": orjson.Fragment(b"[" + b",".join(pieces) + b"]"),
            "NextShardIterator": following["ShardIterator"],
            "MillisBehindLatest": (len(self.frames) - stop) * each,
        }

    def _iterator(self, stream: str, shard_id: str, after: int) -> dict[str, Any]:
        fields = {"stream": stream, "shard": shard_id, "after": str(after)}
        return {"ShardIterator": seal("iterator", fields)}


def _after(kind: object, position: Mapping[str, Any]) -> int:
    """Return the sequence number after which a read begins; 0 for positions without a number."""
    if kind == "AFTER_SEQUENCE_NUMBER":
        return int(position["SequenceNumber"])
    return int(position["SequenceNumber"]) - 1 if kind == "AT_SEQUENCE_NUMBER" else 0


def _event(items: list[dict[str, Any]], number: int, behind_ms: int) -> bytes:
    return orjson.dumps(
        {
            "Records": items,
            "ContinuationSequenceNumber": str(number),
            "MillisBehindLatest": behind_ms,
        }
    )
