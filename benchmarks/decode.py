"""Event-stream bytes to records: this connector against botocore's own event parser.

``python -m benchmarks.decode`` decodes the same frames both ways, in turn, on one core, and prints
the best of several rounds. Both do all of their work: framing, checksums, JSON, base64; ours ends
in
an Arrow batch, botocore's in one dictionary a record.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import time
import zlib
from collections.abc import Callable

import botocore.session
from botocore.eventstream import EventStreamBuffer
from botocore.parsers import EventStreamJSONParser

from kinesis_ds.agent.decode import decode_event
from kinesis_ds.agent.frames import MessageParser
from kinesis_ds.position import TRIM_HORIZON

SIZES = ((100, 5000), (1_000, 1000), (10_000, 100))
CHUNK = 64 * 1024
ROUNDS = 5


def frame(record_size: int, records: int) -> bytes:
    """One SubscribeToShardEvent as the service frames it."""
    items = [
        {
            "ApproximateArrivalTimestamp": 1_700_000_000.123 + i * 0.001,
            "Data": base64.b64encode(os.urandom(record_size)).decode(),
            "PartitionKey": f"key-{i}",
            "SequenceNumber": str(4959 * 10**52 + i),
        }
        for i in range(records)
    ]
    payload = json.dumps(
        {
            "Records": items,
            "ContinuationSequenceNumber": items[-1]["SequenceNumber"],
            "MillisBehindLatest": 0,
        }
    ).encode()
    headers = b"".join(
        bytes([len(k)]) + k + b"\x07" + struct.pack(">H", len(v)) + v
        for k, v in (
            (b":message-type", b"event"),
            (b":event-type", b"SubscribeToShardEvent"),
            (b":content-type", b"application/json"),
        )
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def ours(raw: bytes) -> int:
    """Decode with this connector; the number of records."""
    parser = MessageParser()
    rows = 0
    for at in range(0, len(raw), CHUNK):
        parser.feed(raw[at : at + CHUNK])
        while (message := parser.take()) is not None:
            message.check()
            message.headers()
            event = decode_event(message.payload, TRIM_HORIZON)
            rows += event.records.batch.num_rows if event.records else 0
    return rows


def botocores() -> Callable[[bytes], int]:
    """A function that decodes with botocore; the number of records."""
    model = botocore.session.get_session().get_service_model("kinesis")
    shape = model.operation_model("SubscribeToShard").output_shape.members["EventStream"]
    parser = EventStreamJSONParser()

    def decode(raw: bytes) -> int:
        buffer = EventStreamBuffer()
        rows = 0
        for at in range(0, len(raw), CHUNK):
            buffer.add_data(raw[at : at + CHUNK])
            for message in buffer:
                parsed = parser.parse(message.to_response_dict(200), shape)
                rows += len(parsed["SubscribeToShardEvent"]["Records"])
        return rows

    return decode


def best_rate(decode: Callable[[bytes], int], raw: bytes, repeats: int) -> float:
    """Records a second, best of the rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        rows = sum(decode(raw) for _ in range(repeats))
        best = max(best, rows / (time.perf_counter() - start))
    return best


def main() -> None:
    peer = botocores()
    print(f"{'record':>8} {'botocore':>14} {'kinesis_ds':>14} {'kinesis_ds':>12} {'ratio':>7}")
    print(f"{'bytes':>8} {'records/s':>14} {'records/s':>14} {'MB/s':>12} {'':>7}")
    for size, records in SIZES:
        raw = frame(size, records)
        assert ours(raw) == peer(raw) == records
        repeats = max(1, 2_000_000 // (size * records))
        theirs, own = best_rate(peer, raw, repeats), best_rate(ours, raw, repeats * 4)
        print(
            f"{size:>8} {theirs:>14,.0f} {own:>14,.0f} {own * size / 1e6:>12.1f} "
            f"{own / theirs:>7.1f}"
        )


if __name__ == "__main__":
    main()
