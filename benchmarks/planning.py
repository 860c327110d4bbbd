"""What a batch of a stream with many shards costs the driver, step by step.

    python -m benchmarks.planning [--shards 10000]

Everything is real but for the network: the buffers hold records, the offsets are those of Spark's
log. The last lines are a batch as Spark asks for it, and the look of a source at rest; the ratio is
to parsing the offset's JSON with the standard library, which Spark does anyway.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.decode import Records
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.offsets import SourceOffset, StreamOffset, decode_offset, encode_offset
from kinesis_ds.packing import pack
from kinesis_ds.planning import advance, has_news, ranges
from kinesis_ds.position import After, Position
from kinesis_ds.reader.admission import Limits, admit
from kinesis_ds.reader.partition import PlannedRange, RangePartition
from kinesis_ds.schema import RECORD_SCHEMA
from kinesis_ds.shards import Shard

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
FIRST = 49_645_821_385_263_812_345_678_901_234_567_890_123_456_789_012_345_678_900
RECORDS_A_SHARD = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    rows = measure(args.shards, args.repeats)
    floor = rows["json.loads of the offset"]
    print(f"{args.shards} shards, {RECORDS_A_SHARD} records in each; median of {args.repeats} runs")
    print(f"{'step':<44}{'ms':>10}{'ratio':>10}")
    for step, seconds in rows.items():
        print(f"{step:<44}{seconds * 1000:>10.1f}{seconds / floor:>10.2f}")


def measure(shards: int, repeats: int) -> dict[str, float]:
    """Seconds by step."""
    ids = [f"shardId-{i:012}" for i in range(shards)]
    listed = {s: Shard(s) for s in ids}
    start: dict[str, Position] = {s: After(str(FIRST), 1_700_000_000_000) for s in ids}
    base = SourceOffset({ARN: StreamOffset("orders", ARN, 1, "consumer", start)})
    buffers = _buffers(ids)
    text = json.dumps(encode_offset(base))

    def available() -> dict[str, Position]:
        return {s: buffer.available for s, buffer in buffers.items()}

    def following() -> SourceOffset:
        return SourceOffset({ARN: advance(base.streams[ARN], available(), listed)})

    end = following()

    def news() -> bool:
        def count(shard: str, low: Position, high: Position) -> int | None:
            return buffers[shard].count(low, high)

        return has_news(base.streams[ARN], end.streams[ARN], count)

    def limited() -> SourceOffset:
        return admit(base, end, Limits(max_records=shards), {ARN: buffers.get})

    def planned() -> list[PlannedRange]:
        found = []
        for r in ranges(base.streams[ARN], end.streams[ARN]):
            held = buffers[r.shard_id].hold(r.start, r.end)
            assert held is not None
            found.append(
                PlannedRange(
                    "orders",
                    ARN,
                    r.shard_id,
                    r.start,
                    r.end,
                    held.records,
                    None,
                    nbytes=held.nbytes,
                )
            )
        return found

    plan = planned()

    def packed() -> list[list[PlannedRange]]:
        return pack(plan, None, None)

    tasks = [RangePartition(*task) for task in packed()]

    def whole() -> None:
        decode_offset(json.loads(text))
        following()
        news()
        json.dumps(encode_offset(end))
        [pickle.dumps(RangePartition(*task)) for task in pack(planned(), None, None)]

    raw = json.loads(text)
    steps: dict[str, Callable[[], Any]] = {
        "json.loads of the offset": lambda: json.loads(text),
        "decode the offset": lambda: decode_offset(raw),
        "where every shard can go (advance)": following,
        "is there anything to do (has_news)": news,
        "share out a limit (admit)": limited,
        "ranges, with what is held of each": planned,
        "pack into tasks": packed,
        "pickle the tasks": lambda: [pickle.dumps(task) for task in tasks],
        "encode the offset": lambda: json.dumps(encode_offset(end)),
        "a batch, all of it, without limits": whole,
        "at rest: compare the offset with the last": lambda: raw == json.loads(text),
    }
    return {step: _median(work, repeats) for step, work in steps.items()}


def _buffers(ids: list[str]) -> dict[str, ShardBuffer]:
    pool = BufferPool(1 << 40)
    numbers = [FIRST + 1 + i for i in range(RECORDS_A_SHARD)]
    arrived = pa.array([1_700_000_000_000_000] * RECORDS_A_SHARD, pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch(
        [
            pa.array(["key"] * RECORDS_A_SHARD),
            pa.array([b"x" * 100] * RECORDS_A_SHARD, pa.binary()),
            pa.array([str(n) for n in numbers]),
            arrived,
        ],
        schema=RECORD_SCHEMA,
    )
    buffers = {shard: ShardBuffer(shard, After(str(FIRST)), pool) for shard in ids}
    end = After(str(numbers[-1]), 1_700_000_000_000)
    for buffer in buffers.values():
        buffer.append(Records(batch, numbers[0], numbers[-1], end), end, 0)
    return buffers


def _median(work: Callable[[], Any], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    main()
