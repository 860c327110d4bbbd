"""The price of ``ordering=key``, with and without aggregation, for few keys and for many.

    python -m benchmarks.sink_ordering [--quick]

With ``ordering=key`` one record of a key is under way at a time, so a key costs a round trip a
record, or an aggregate. A round trip takes 15 ms here, as within a region of AWS, and the double
has no limits: what is seen is the price of the order alone. The ratio is to ``ordering=none`` with
everything else the same.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.sinking import STREAM, arrow_batches, double, write
from kinesis_ds.testing import Delay, Fault

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="end within 10 s; proves little")
    args = parser.parse_args()
    shrink = 20 if args.quick else 1
    print(f"{SHARDS} shards, rows of {SIZE} bytes, a round trip of {ROUND_TRIP_S * 1000:g} ms")
    head = ("keys", "aggregation", "none, rows/s", "key, rows/s", "key/none")
    print("{:>8}{:>13}{:>14}{:>13}{:>10}".format(*head))
    for aggregated in (False, True):
        for keys in (1, 100, 10_000):
            rows = ROWS // shrink
            few = rows if aggregated else min(rows, FEW.get(keys, rows) // min(shrink, 4))
            free = rows_a_second(rows, keys, False, aggregated)
            held = rows_a_second(few, keys, True, aggregated)
            print(
                f"{keys:>8}{'on' if aggregated else 'off':>13}{free:>14.0f}{held:>13.0f}"
                f"{held / free:>10.2%}"
            )


if __name__ == "__main__":
    main()
