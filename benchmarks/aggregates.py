"""Aggregates of the KPL to user records: this connector against AWS's own library.

``python -m benchmarks.aggregates`` takes the same aggregates apart both ways, on one core, and
prints the best of several rounds. Both check the sum and parse; ours checks hash keys against the
shard's as well, and ends in an Arrow batch, AWS's in one dictionary a record.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from typing import Any

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from kinesis_ds.agent.decode import Decoding, decode_records
from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.position import TRIM_HORIZON

SIZES = ((100, 440), (1_000, 50), (10_000, 5))  # of user records: bytes, and how many an aggregate
AGGREGATES = 40
ROUNDS = 7
# Not quite all hash keys: the shard of a stream that has more than one.
OURS = Decoding((0, MAX_HASH_KEY - 1), deaggregate=True)


def aggregates(record_size: int, records: int, keys: int) -> list[bytes]:
    found = []
    for _ in range(AGGREGATES):
        writer = RecordAggregator()
        for i in range(records):
            writer.add_user_record(f"key-{i % keys}", os.urandom(record_size))
        found.append(writer.clear_and_get().get_contents()[2])
    return found


def best_rate(take_apart: Callable[[], int]) -> float:
    """User records a second, best of the rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        rows = take_apart()
        best = max(best, rows / (time.perf_counter() - start))
    return best


def main() -> None:
    print(
        f"{'record':>8} {'keys':>8} {'AWS':>14} {'kinesis_ds':>14} {'kinesis_ds':>12} {'ratio':>7}"
    )
    print(f"{'bytes':>8} {'':>8} {'records/s':>14} {'records/s':>14} {'MB/s':>12} {'':>7}")
    for size, records in SIZES:
        for keys in (records, 5):
            data = [base64.b64encode(d).decode() for d in aggregates(size, records, keys)]
            items: list[dict[str, Any]] = [
                {
                    "Data": text,
                    "PartitionKey": "a",
                    "SequenceNumber": str(4959 * 10**52 + i),
                    "ApproximateArrivalTimestamp": 1_700_000_000.123,
                }
                for i, text in enumerate(data)
            ]
            of_lambda = [
                {
                    "kinesis": {
                        "kinesisSchemaVersion": "1.0",
                        "data": item["Data"],
                        "partitionKey": item["PartitionKey"],
                        "sequenceNumber": item["SequenceNumber"],
                        "approximateArrivalTimestamp": item["ApproximateArrivalTimestamp"],
                    }
                }
                for item in items
            ]

            def ours(items: list[dict[str, Any]] = items) -> int:
                decoded = decode_records(items, TRIM_HORIZON, OURS)
                return decoded.batch.num_rows if decoded is not None else 0

            def theirs(records: list[dict[str, Any]] = of_lambda) -> int:
                return sum(1 for _ in iter_deaggregate_records(records))

            assert ours() == theirs() == records * AGGREGATES
            peer, own = best_rate(theirs), best_rate(ours)
            print(
                f"{size:>8} {keys:>8} {peer:>14,.0f} {own:>14,.0f} {own * size / 1e6:>12.1f} "
                f"{own / peer:>7.1f}"
            )


if __name__ == "__main__":
    main()
