"""Measure what a batch of a stream with many shards costs the driver, step by step.

    python -m benchmarks.planning [--quick] [--json FILE] [--chart FILE]

Everything is real but for the network: the buffers hold records, the offsets are those of Spark's
log. The last lines are a batch as Spark asks for it, and the look of a source at rest; the ratio is
to parsing the offset's JSON with the standard library, which Spark does anyway.
"""

from __future__ import annotations

import functools
import json
import pickle
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.report import Report, arguments, table
from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.limits import admit
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset, decode_offset, encode_offset
from kinesis_ds.plan.planned_range import PlannedRange
from kinesis_ds.plan.position import After, Position
from kinesis_ds.plan.ranges import ShardRange, advance, has_news, ranges
from kinesis_ds.plan.shards import Shard
from kinesis_ds.plan.tasks import pack
from kinesis_ds.reader.partition import RangePartition
from kinesis_ds.wire.decode import Records
from kinesis_ds.wire.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
FIRST = 49_645_821_385_263_812_345_678_901_234_567_890_123_456_789_012_345_678_900
RECORDS_A_SHARD = 10
REPEATS = 5
FLOOR = "json.loads of the offset"
WHOLE = "a batch, all of it, without limits"
AT_REST = "at rest: compare the offset with the last"
FULL = "give room back while every shard waits for some"


def main() -> None:
    args = arguments(__doc__)
    report = Report("planning", args)
    for shards in (100, 1_000) if args.quick else (100, 1_000, 10_000):
        took = measure(shards, REPEATS)
        floor = took[FLOOR]
        report.rows += [
            {"shards": shards, "step": step, "ms": seconds * 1000, "ratio": seconds / floor}
            for step, seconds in took.items()
        ]
    print(f"{RECORDS_A_SHARD} records in each shard; median of {REPEATS} runs, in CPU time")
    print(table(report.rows, {"step": "<50", "ms": ".2f", "ratio": ".2f"}))
    report.finish(draw(report.rows))


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        for step in (FLOOR, WHOLE, AT_REST):
            of_step = [row for row in rows if row["step"] == step]
            shards, ms = [r["shards"] for r in of_step], [r["ms"] for r in of_step]
            axes.loglog(shards, ms, marker="o", label=step)
        axes.set_xlabel("shards")
        axes.set_ylabel("milliseconds")
        axes.legend()

    return into


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

    agent = _Agent(buffers)

    def news() -> bool:
        return has_news(base.streams[ARN], end.streams[ARN], agent.hold)

    def limited() -> SourceOffset:
        return admit(base, end, Limits(max_records=shards), {ARN: agent.hold})

    def planned() -> list[PlannedRange]:
        found = []
        asked = ranges(base.streams[ARN], end.streams[ARN])
        for r, held in zip(asked, agent.hold(asked), strict=True):
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
        FLOOR: lambda: json.loads(text),
        "decode the offset": lambda: decode_offset(raw),
        "where every shard can go (advance)": following,
        "is there anything to do (has_news)": news,
        "share out a limit (admit)": limited,
        "ranges, with what is held of each": planned,
        "pack into tasks": packed,
        "pickle the tasks": lambda: [pickle.dumps(task) for task in tasks],
        "encode the offset": lambda: json.dumps(encode_offset(end)),
        FULL: _full_pool(ids),
        WHOLE: whole,
        AT_REST: lambda: raw == json.loads(text),
    }
    return {step: _median(work, repeats) for step, work in steps.items()}


class _Agent:
    """Answers what plans ask as an agent in the driver's process does."""

    def __init__(self, buffers: dict[str, ShardBuffer]) -> None:
        self._buffers = buffers

    def hold(
        self, asked: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> Iterator[Held | None]:
        for r, limit in zip(asked, limits or (Limits(),) * len(asked), strict=True):
            yield self._buffers[r.shard_id].hold(r.start, r.end, limit)


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


def _full_pool(ids: list[str]) -> Callable[[], None]:
    """Return a commit of a full pool, shard by shard; whoever is given room asks for more."""
    size = 1000
    pool = BufferPool(len(ids) * size)
    held = dict.fromkeys(ids, 0)

    def ask(shard: str) -> None:
        while pool.request(shard, size, functools.partial(granted, shard)):
            held[shard] += size

    def granted(shard: str) -> None:
        held[shard] += size
        ask(shard)

    def commit() -> None:
        for shard in ids:
            freed, held[shard] = held[shard], 0
            pool.change(shard, -freed, 0)

    for shard in ids:
        pool.open(shard)
    for shard in ids:
        ask(shard)
    assert pool.statistics().waiting == len(ids)
    return commit


def _median(work: Callable[[], Any], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return statistics.median(took)


if __name__ == "__main__":
    main()
