"""One agent process against two: what a query receives where decoding is the limit.

    python -m benchmarks.agent_processes [--quick] [--json FILE] [--chart FILE]

A source without Spark: a coordinator reads four shards of the double's wire-speed mode, commits at
once what was received, and no task reads it. With one process that is the agent embedded in this
one; with two they are its children, and this process only coordinates. It
counts the records between the first and the last tenth, the time they took, and the CPU of this
process and its children without the double's. Sizes and processes take turns; medians count.

*Speed-up* is MB/s against one process of the same run. The double needs CPU too: on two cores it,
the coordinator and two agents share them, so two processes cannot be twice as fast as one. *Cores*
says how much of the machine the source had.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import psutil

from benchmarks.report import Report, arguments, table
from benchmarks.serving import Served, served
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.reader.coordinator import Coordinator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kinesis_ds.plan.offsets import Offset

SHARDS = 4
PROCESSES = (1, 2)
# Bytes of a record: megabytes of each shard.
FULL, QUICK = {100: 20, 1_000: 60}, {100: 2, 1_000: 5}
ROUNDS = 3
WITHIN_S = 120.0


@dataclass(frozen=True)
class Run:
    """The work of one query between its first and its last tenth."""

    megabytes: float
    seconds: float
    cpu_s: float


def main() -> None:
    args = arguments(__doc__)
    report = Report("agent_processes", args)
    sizes = QUICK if args.quick else FULL
    runs: dict[tuple[int, int], list[Run]] = {}
    streams = [f"of{size}:{SHARDS}:{mb}:{size}" for size, mb in sizes.items()]
    replays = [argument for stream in streams for argument in ("--replay", stream)]
    with served("--no-limits", *replays) as double:
        for _ in range(1 if args.quick else ROUNDS):
            for size, mb in sizes.items():
                for processes in PROCESSES:
                    run = drain(double, size, SHARDS * mb * 1_000_000 // size, processes)
                    runs.setdefault((size, processes), []).append(run)
    for (size, processes), found in runs.items():
        alone = median(run.megabytes / run.seconds for run in runs[size, 1])
        rate = median(run.megabytes / run.seconds for run in found)
        report.rows.append(
            {
                "record": size,
                "processes": processes,
                "MB/s": rate,
                "records/s": rate * 1e6 / size,
                "speed-up": rate / alone,
                "CPU s/GB": median(run.cpu_s / run.megabytes * 1000 for run in found),
                "cores": median(run.cpu_s / run.seconds for run in found),
            }
        )
    formats = {
        "MB/s": ".1f", "records/s": ",.0f", "speed-up": ".2f", "CPU s/GB": ".1f", "cores": ".2f",
    }  # fmt: skip
    print(table(report.rows, formats))
    report.finish(lambda figure: draw(figure, report))


def drain(double: Served, size: int, records: int, processes: int) -> Run:
    """Read a stream to its end, committing what comes."""
    options = {
        **double.options(f"of{size}"),
        "initialPosition": "trim_horizon",
        "agentProcesses": str(processes),
        "requireConsumerDeregistration": "true",
    }
    coordinator = Coordinator(parse_read_options(options))
    began: tuple[int, float, float] | None = None
    deadline = time.monotonic() + WITHIN_S
    at: Offset = coordinator.latest(None)
    try:
        while time.monotonic() < deadline:
            at = coordinator.latest(at)
            shards = coordinator.statistics().get("shards", {})
            seen = sum(shard["records"] for shard in shards.values())
            if began is None and seen >= records / 10:
                began = seen, time.perf_counter(), cpu_s()
            if began is not None and seen >= records * 9 / 10:
                first, since, cpu = began
                return Run(
                    max(1, seen - first) * size / 1e6, time.perf_counter() - since, cpu_s() - cpu
                )
            time.sleep(0.005)
    finally:
        coordinator.close()
    raise RuntimeError(f"{processes} processes did not read {records} records in {WITHIN_S:g}s")


def cpu_s() -> float:
    """Return the CPU seconds of this process and its children, without the double's."""
    us = psutil.Process()
    agents = [child for child in us.children() if "kinesis_ds.agent" in child.cmdline()]
    return sum(p.cpu_times().user + p.cpu_times().system for p in (us, *agents))


def draw(figure: Figure, report: Report) -> None:
    """MB/s by size, a bar for each number of processes."""
    sizes = sorted({row["record"] for row in report.rows})
    axes = figure.subplots(1, len(sizes))
    for axis, size in zip(axes, sizes, strict=True):
        rows = [row for row in report.rows if row["record"] == size]
        axis.bar([str(row["processes"]) for row in rows], [row["MB/s"] for row in rows])
        axis.set(title=f"{size} B a record", xlabel="agent processes", ylabel="MB/s")


if __name__ == "__main__":
    main()
