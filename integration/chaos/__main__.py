"""The command line of the chaos runs: ``python -m integration.chaos --help``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from integration.chaos.conductor import Report, run_seed
from integration.chaos.schedule import Schedule, dump_schedule, load_schedule, make_schedule

_SHOWN = 15


def main() -> int:
    """Run seeds; return 0 if all of them passed."""
    arguments = _parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    schedules = _schedules(arguments)
    # Python's output, not a terminal's: wide enough for a problem a line.
    console = Console(highlight=False, soft_wrap=True)
    if arguments.seed is not None or arguments.schedule is not None:
        console.print(dump_schedule(schedules[0]), markup=False)
    if arguments.dry_run:
        return 0
    reports: list[Report] = []
    began = time.monotonic()
    live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
    try:
        if live is not None:
            live.start()
        for schedule in schedules:

            def show(what: str, schedule: Schedule = schedule) -> None:
                if live is not None:
                    live.update(_table(reports, f"seed {schedule.seed}: {what}"))

            show("starts")
            folder = arguments.artifacts / f"{arguments.engine}-{schedule.seed}"
            report = run_seed(
                schedule, arguments.engine, folder, keep=arguments.keep, progress=show
            )
            reports.append(report)
            if live is None or report.problems:
                console.print(_line(report), markup=False)
            if report.problems and arguments.stop_on_failure:
                break
    except KeyboardInterrupt:
        console.print("interrupted")
    finally:
        if live is not None:
            live.update(_table(reports, ""))
            live.stop()
    summary = summarise(reports, time.monotonic() - began)
    console.print(json.dumps(summary, indent=2), markup=False)
    if arguments.summary is not None:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(json.dumps(summary, indent=2) + "\n")
    return 0 if reports and all(r.passed for r in reports) else 1


def summarise(reports: list[Report], seconds: float) -> dict[str, object]:
    """Print a summary of all runs."""
    totals: dict[str, Counter[str]] = {
        name: Counter() for name in ("done", "faults", "duplicates", "restarts")
    }
    for report in reports:
        for name, total in totals.items():
            total.update(getattr(report, name))
    return {
        "seeds": len(reports),
        "passed": sum(r.passed for r in reports),
        "failed": {r.seed: r.problems for r in reports if not r.passed},
        "seconds": round(seconds, 1),
        "slowest_s": max((r.seconds for r in reports), default=0.0),
        "written": sum(r.written for r in reports),
        "batches": sum(r.batches for r in reports),
        "replays": sum(r.replays for r in reports),
        "most_rss_mib": max((m for r in reports for m in r.rss_mib.values()), default=0),
        **{name: dict(sorted(total.items())) for name, total in totals.items()},
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m integration.chaos", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_range, metavar="FIRST-LAST", help="run all of these")
    which.add_argument("--seed", type=int, help="run this one, and print its schedule")
    which.add_argument("--schedule", type=Path, help="run what was kept in this file")
    parser.add_argument("--engine", choices=("bare", "spark"), default="bare")
    parser.add_argument("--stop-on-failure", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folders of passed runs, too")
    parser.add_argument("--dry-run", action="store_true", help="print the schedule only")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts/chaos"))
    parser.add_argument("--summary", type=Path, help="write the summary there, too")
    return parser.parse_args()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _schedules(arguments: argparse.Namespace) -> list[Schedule]:
    if arguments.schedule is not None:
        return [load_schedule(arguments.schedule.read_bytes())]
    if arguments.seed is not None:
        return [make_schedule(arguments.seed)]
    return [make_schedule(seed) for seed in arguments.seeds]


def _line(report: Report) -> str:
    verdict = "ok    " if report.passed else "FAILED"
    counts = {
        "records": report.written,
        "batches": report.batches,
        "replays": report.replays,
        "kills": report.done.get("Kill", 0),
        "reshards": report.done.get("reshards", 0),
        "faults": sum(report.faults.values()),
        "duplicates": sum(report.duplicates.values()),
    }
    shown = " ".join(f"{name}={count}" for name, count in counts.items())
    problems = "".join(f"\n       {problem[:1500]}" for problem in report.problems)
    return f"{verdict} {report.engine} seed {report.seed} {report.seconds:.1f}s {shown}{problems}"


def _table(reports: list[Report], now: str) -> Table:
    passed = sum(r.passed for r in reports)
    title = f"{passed} of {len(reports)} passed"
    table = Table(title=title, caption=now[:100], box=box.SIMPLE_HEAD)
    columns = ("seed", "", "s", "records", "batches", "reruns", "kills", "reshards", "faults")
    for column in (*columns, "duplicates"):
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports[-_SHOWN:]:
        table.add_row(
            str(report.seed),
            Text("ok", "green") if report.passed else Text("FAILED", "bold red"),
            f"{report.seconds:.1f}",
            str(report.written),
            str(report.batches),
            str(report.replays),
            str(report.done.get("Kill", 0)),
            str(report.done.get("reshards", 0)),
            str(sum(report.faults.values())),
            " ".join(f"{k} {n}" for k, n in report.duplicates.items()),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
