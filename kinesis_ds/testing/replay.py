"""Wire-speed mode: events encoded beforehand, sent as fast as the socket takes them. Pure.

The double's own work per event is then one write, so that a benchmark measures its client.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kinesis_ds.limits import MIB
from kinesis_ds.testing.frames import event_message

_FIRST = 49_600_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
_ARRIVED_S = 1_700_000_000.0
_CHUNK_BYTES = 1 * MIB


@dataclass(frozen=True)
class Replay:
    """Events in the order of a shard.

    Attributes:
        frames: One event-stream message an event.
        last: The sequence number of each event's last record.
        records: How many records they hold in all.
        data_bytes: Bytes of their data, before base64.
    """

    frames: tuple[bytes, ...]
    last: tuple[int, ...]
    records: int
    data_bytes: int
    heartbeat_s: float = 5.0

    def heartbeat(self) -> bytes:
        """What is sent now and then when all has been sent."""
        return event_message(_event([], self.last[-1], 0))

    @classmethod
    def of(cls, events: int, records_per_event: int, record_bytes: int) -> Replay:
        """Events of equal records, each with its number as the first bytes of its data."""
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
        """The events behind a StartingPosition, joined to pieces of about a megabyte."""
        start = 0
        if position.get("Type") in ("AFTER_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER"):
            start = bisect_right(self.last, int(position["SequenceNumber"]))
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


def _event(items: list[dict[str, Any]], number: int, behind_ms: int) -> bytes:
    return orjson.dumps(
        {
            "Records": items,
            "ContinuationSequenceNumber": str(number),
            "MillisBehindLatest": behind_ms,
        }
    )
