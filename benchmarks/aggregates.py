"""Aggregates of the KPL, made and taken apart: this connector against AWS's own library.

    python -m benchmarks.aggregates [--quick] [--json FILE] [--chart FILE]

The same work is done both ways, on one core; the best of several rounds counts, in CPU time. Making
them, both are given the limit of 50 KB an aggregate. Taking them apart, both check the sum and
parse; ours checks hash keys against the shard's as well, and ends in an Arrow batch, AWS's in one
dictionary a record. With record ids, AWS's library has nothing to compare with: the ratio is to its
rate without.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from benchmarks.report import Report, arguments, table
from kinesis_ds.limits import KIB, MAX_HASH_KEY, MIB
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.wire.decode import decode_records
from kinesis_ds.writer.aggregating import Aggregator
from kinesis_ds.writer.records import Block, Record, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ((100, 440), (1_000, 50), (10_000, 5))  # of user records: bytes, and how many an aggregate
AGGREGATES = 40
ROUNDS = 7
MADE_BYTES = 50 * KIB
PREFIX = "6f0c2c1e-0000-4000-8000-aabbccddeeff/1234/17"
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


def best_rate(work: Callable[[], int], rounds: int) -> float:
    """Return user records per CPU second, the best of the rounds."""
    best = 0.0
    for _ in range(rounds):
        start = time.process_time()
        rows = work()
        best = max(best, rows / (time.process_time() - start))
    return best


def ours_make(rows: Block, prefix: str | None) -> list[int]:
    """Make aggregates with our encoder; return how many user records are in each."""
    aggregator = Aggregator(MADE_BYTES, 1_000_000, MIB, prefix)
    made = [closed.rows for closed in aggregator.add(rows, 0.0)]
    last = aggregator.close()
    return made if last is None else [*made, last.rows]


def theirs_make(records: list[Record]) -> list[int]:
    """Do the same with AWS's library, for records without explicit hash keys."""
    writer = RecordAggregator(MADE_BYTES)
    made = []
    for record in records:
        full = writer.add_user_record(record.partition_key, record.data)
        if full is not None:
            full.get_contents()
            made.append(full.get_num_user_records())
    last = writer.clear_and_get()
    last.get_contents()
    return [*made, last.get_num_user_records()]


def making(rounds: int) -> Iterator[dict[str, Any]]:
    """Measure the encoders."""
    for size, records in SIZES:
        many = records * AGGREGATES
        for keys in (many, 5):
            plains = []
            for i in range(many):
                key = f"key-{i % keys}"
                plains.append(plain(os.urandom(size), key, None, size + len(key), i))

            block = Block.of(plains)

            def theirs(records: list[Record] = plains) -> int:
                return sum(theirs_make(records))

            def ours(rows: Block = block) -> int:
                return sum(ours_make(rows, None))

            def with_ids(rows: Block = block) -> int:
                return sum(ours_make(rows, PREFIX))

            assert theirs() == ours() == with_ids() == many
            peer = best_rate(theirs, rounds)
            yield _row("made", size, keys, best_rate(ours, rounds), peer)
            yield _row("made, with ids", size, keys, best_rate(with_ids, rounds), peer)


def taking_apart(rounds: int) -> Iterator[dict[str, Any]]:
    """Measure the decoders."""
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
            peer = best_rate(theirs, rounds)
            yield _row("taken apart", size, keys, best_rate(ours, rounds), peer)


def _row(what: str, size: int, keys: int, own: float, peer: float) -> dict[str, Any]:
    return {
        "what": what,
        "record": size,
        "keys": keys,
        "AWS, records/s": peer,
        "kinesis_ds, records/s": own,
        "MB/s": own * size / 1e6,
        "ratio": own / peer,
    }


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        names = [f"{row['what']}, {row['record']:,} B, {row['keys']} keys" for row in rows]
        axes.barh(names, [row["ratio"] for row in rows])
        axes.invert_yaxis()
        axes.axvline(1, color="gray", linewidth=0.8)
        axes.set_xlabel("user records a CPU second, times those of AWS's library")

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("aggregates", args)
    rounds = 1 if args.quick else ROUNDS
    report.rows = [*making(rounds), *taking_apart(rounds)]
    formats = {"AWS, records/s": ",.0f", "kinesis_ds, records/s": ",.0f", "MB/s": ".1f"}
    print(table(report.rows, {**formats, "ratio": ".1f"}))
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
