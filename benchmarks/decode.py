"""Event-stream bytes to records: this connector, botocore's own event parser, and what C code alone
does.

    python -m benchmarks.decode [--quick] [--json FILE] [--chart FILE]

The same frames are decoded three ways, in turn, on one core; the best of several rounds counts, in
CPU time. Connector and botocore do all of their work: framing, checksums, JSON, base64; ours ends
in an Arrow batch, botocore's in one dictionary a record. *JSON and base64* is ``orjson.loads`` and
``pybase64.b64decode`` of each record's data, and nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import botocore.session
import orjson
from botocore.eventstream import EventStreamBuffer
from botocore.parsers import EventStreamJSONParser
from pybase64 import b64decode

from benchmarks.report import Bar, Report, arguments, table
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.wire.event_stream import MessageParser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PEER, OURS, ALONE = "botocore", "kinesis_ds", "JSON and base64"
SIZES = ((100, 5000), (1_000, 1000), (10_000, 100))
# MB/s of one core, where ALONE does so many.
BARS = {100: (150, 175), 1_000: (500, 700)}
CHUNK = 64 * 1024
ROUNDS = 7
ROUND_S = 0.3


def frame(record_size: int, records: int) -> bytes:
    """One SubscribeToShardEvent as the service frames it."""
    items = [
        {
            "ApproximateArrivalTimestamp": (1_700_000_000_123 + i) / 1000,
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
        },
        separators=(",", ":"),
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


def alone(raw: bytes) -> int:
    """JSON and base64 of one frame, by code in C; the number of records."""
    (headers,) = struct.unpack_from(">I", raw, 4)
    records = orjson.loads(memoryview(raw)[12 + headers : -4])["Records"]
    data = [b64decode(record["Data"], None, True) for record in records]
    return len(data)


def best_rates(
    ways: dict[str, Callable[[bytes], int]], raw: bytes, rounds: int
) -> dict[str, float]:
    """Records a CPU second by way, best of the rounds, each of at least ``ROUND_S``."""
    best = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):
        for name, decode in ways.items():
            rows = 0
            start = time.process_time()
            while (spent := time.process_time() - start) < ROUND_S:
                rows += decode(raw)
            best[name] = max(best[name], rows / spent)
    return best


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        for i, way in enumerate((PEER, OURS, ALONE)):
            at = [place + (i - 1) * 0.27 for place in range(len(rows))]
            rates = [row[f"{way}, MB/s"] for row in rows]
            axes.bar_label(axes.bar(at, rates, 0.27, label=way), fmt="%.0f")
        axes.set_xticks(range(len(rows)), [f"{row['record']:,} bytes" for row in rows])
        axes.set_ylabel("MB of data a second of one core")
        axes.set_yscale("log")
        axes.legend()

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("decode", args)
    ways = {PEER: botocores(), OURS: ours, ALONE: alone}
    for size, records in SIZES:
        raw = frame(size, records)
        assert {decode(raw) for decode in ways.values()} == {records}
        rates = best_rates(ways, raw, 1 if args.quick else ROUNDS)
        report.rows.append(
            {
                "record": size,
                f"{OURS}, records/s": rates[OURS],
                **{f"{name}, MB/s": rate * size / 1e6 for name, rate in rates.items()},
                f"times {PEER}": rates[OURS] / rates[PEER],
                f"of {ALONE}": rates[OURS] / rates[ALONE],
            }
        )
        if size in BARS:
            bar, on = BARS[size]
            what = f"decode, {size} B: MB/s of one core where JSON and base64 alone do {on}"
            report.bars.append(Bar(what, bar, rates[OURS] / rates[ALONE] * on))
    formats = dict.fromkeys(report.rows[0], ",.1f")
    formats |= {"record": "", f"{OURS}, records/s": ",.0f"}
    print(table(report.rows, formats))
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
