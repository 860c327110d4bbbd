"""The price of ``ordering=key``, with and without aggregation, for few keys and for many.

    python -m benchmarks.sink_ordering [--quick] [--json FILE] [--chart FILE]

With ``ordering=key`` one record of a key is under way at a time, so a key costs a round trip a
record, or an aggregate. A round trip takes 15 ms here, as within a region of AWS, and the double
has no limits: what is seen is the price of the order alone. The ratio is to ``ordering=none`` with
everything else the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report, arguments, table
from benchmarks.sinking import STREAM, arrow_batches, double, write
from kinesis_ds.testing import Delay, Fault

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARDS = 8
SIZE = 200
ROUND_TRIP_S = 0.015
ROWS = 20_000
# With one key, plain and in order, 20,000 rows would be 20,000 round trips.
FEW = {1: 100, 100: 5_000}


def rows_a_second(rows: int, keys: int, ordered: bool, aggregated: bool) -> float:
    """Write so many rows of so many keys."""
    late = Fault(Delay(ROUND_TRIP_S), operation="PutRecords", times=None)
    options = {
        "ordering": "key" if ordered else "none",
        "aggregation": str(aggregated).lower(),
    }
    with double(SHARDS, late, limits=False) as kinesis:
        write(kinesis, arrow_batches(1, SIZE, str), options)  # connected, and warm
        began = time.perf_counter()
        write(kinesis, arrow_batches(rows, SIZE, lambda n: f"key-{n % keys}"), options)
        seconds = time.perf_counter() - began
        assert aggregated or len(kinesis.records(STREAM)) == rows + 1
    return rows / seconds


def draw(rows: list[dict[str, Any]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        for place, how in ((-0.2, "none"), (0.2, "key")):
            rates = [row[f"{how}, rows/s"] for row in rows]
            axes.bar([i + place for i in range(len(rows))], rates, 0.4, label=f"ordering={how}")
        names = [f"{row['keys']:,} keys\naggregation {row['aggregation']}" for row in rows]
        axes.set_xticks(range(len(rows)), names)
        axes.set_yscale("log")
        axes.set_ylabel("rows a second")
        axes.legend()

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("sink_ordering", args)
    shrink = 20 if args.quick else 1
    for aggregated in (False, True):
        for keys in (1, 100, 10_000):
            rows = ROWS // shrink
            few = rows if aggregated else min(rows, FEW.get(keys, rows) // min(shrink, 4))
            free = rows_a_second(rows, keys, False, aggregated)
            held = rows_a_second(few, keys, True, aggregated)
            report.rows.append(
                {
                    "keys": keys,
                    "aggregation": "on" if aggregated else "off",
                    "none, rows/s": free,
                    "key, rows/s": held,
                    "key/none": held / free,
                }
            )
    print(f"{SHARDS} shards, rows of {SIZE} bytes, a round trip of {ROUND_TRIP_S * 1000:g} ms")
    formats = {"none, rows/s": ".0f", "key, rows/s": ".0f", "key/none": ".2%"}
    print(table(report.rows, formats))
    report.finish(draw(report.rows))


if __name__ == "__main__":
    main()
