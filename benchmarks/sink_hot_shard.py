"""One of eight shards takes a tenth of what it should: what do the other seven still get?

    python -m benchmarks.sink_hot_shard [--quick] [--json FILE] [--chart FILE]

The rows are even over the shards and taken as fast as the sink takes them. Timed is until the other
shards have all their rows, without the throttle and with it, one after the other in the same run.

A task holds back what a slow shard does not take, and admits no more rows once its window is full
of that, until it is at its low water mark again, three quarters. So the other shards keep their
throughput as long as the hot shard's backlog stays below three quarters of the window
(``maxInFlightRecords``, ``maxInFlightBytes``). The last column says how much of the window it comes
to by the end of the input. Above that the task goes at the pace of the slow shard, as any sink with
a bound and one queue of input does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report, arguments, table
from benchmarks.sinking import STREAM, arrow_batches, double, throttle, write
from kinesis_ds.limits import MIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARDS = 8
SHARE = 0.1
SIZE = 8192
WINDOW = 16 * MIB
# MiB of input for each shard.
INPUTS = (4, 16)
# Times as long as the limits of the shards allow; then what was reached counts.
SLOWEST = 3.0


def seconds_of_the_others(rows_a_shard: int, window: int, hot: bool) -> float:
    """How long it takes until all shards but the hot one have their rows."""
    with double(SHARDS) as kinesis, ThreadPoolExecutor(1) as pool:
        hot_shard = kinesis.open_shards(STREAM)[0]
        if hot:
            throttle(kinesis, hot_shard, SHARE)
        rows = arrow_batches(
            rows_a_shard * SHARDS, SIZE, str, lambda n: n % SHARDS * (2**128 // SHARDS)
        )
        options = {"maxInFlightBytes": str(window), "maxInFlightRecords": "1000000"}
        writing = pool.submit(write, kinesis, rows, options | {"retryTimeout": "600s"})
        wanted = rows_a_shard * (SHARDS - 1)
        longest = SLOWEST * (2.0 + rows_a_shard * SIZE / MIB)

        def others() -> list[float]:
            found = kinesis.records(STREAM)
            return [record.arrived for record in found if record.shard_id != hot_shard]

        began = time.time()
        while len(others()) < wanted and not writing.done() and time.time() - began < longest:
            time.sleep(0.1)
        stored = others()
        throttle(kinesis, hot_shard, 50.0)  # the rest at once: its time is not what is asked
        writing.result()
        started = min(record.arrived for record in kinesis.records(STREAM))
        return (max(stored) - started) * wanted / len(stored)


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        backlogs = [row["backlog/window"] * 100 for row in rows]
        axes.plot(backlogs, [row["kept"] * 100 for row in rows], marker="o")
        axes.axvline(75, color="gray", linewidth=0.8, linestyle=":")
        axes.set_ylim(0, 110)
        axes.set_xlabel("backlog of the slow shard at the end, % of the window")
        axes.set_ylabel("what the others keep of their rate, %")

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("sink_hot_shard", args)
    for megabytes in (2,) if args.quick else INPUTS:
        rows = int(megabytes * MIB / SIZE)
        alone = seconds_of_the_others(rows, WINDOW, hot=False)
        beside = seconds_of_the_others(rows, WINDOW, hot=True)
        others = rows * SIZE * (SHARDS - 1) / MIB
        # What the hot shard is behind the others when those are done; one second it takes at once.
        backlog = rows * SIZE - SHARE * MIB * (alone + 1)
        report.rows.append(
            {
                "MiB a shard": megabytes,
                "others MiB/s": others / alone,
                "throttled": others / beside,
                "kept": alone / beside,
                "backlog/window": backlog / WINDOW,
            }
        )
    print(
        f"{SHARDS} shards, one at {SHARE:.0%} of its limits; rows of {SIZE} bytes; window of "
        f"{WINDOW / MIB:g} MiB"
    )
    formats = {"others MiB/s": ".2f", "throttled": ".2f", "kept": ".0%", "backlog/window": ".0%"}
    print(table(report.rows, formats))
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
