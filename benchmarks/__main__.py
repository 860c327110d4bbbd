"""Run all benchmarks, one after the other: ``make bench``.

    python -m benchmarks [--quick] [--only NAME ...] [--into FOLDER]
    python -m benchmarks --page

Each runs in a process of its own. Its output, figures and chart go to ``benchmarks/results``
(with ``--quick`` to ``.cache/bench``): NAME.txt, NAME.json, NAME.png; and ``summary.md`` with
``summary.json``, the table of bars. Exits with 1 if a benchmark failed; a bar that is not met is no
failure. ``--page`` puts the results of that folder into ``docs/explanation/performance.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.results import Results, bars_table, block, conditions, with_block

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
# In the order of the targets: the source, the sink, scale, back-pressure, large values.
NAMES = (
    "source_throughput", "decode", "aggregates", "agent_processes", "source_latency",
    "sink_throughput", "sink_smoothness", "sink_hot_shard", "sink_ordering",
    "scale", "planning", "back_pressure", "stalled_shard", "large_values",
)  # fmt: skip
# None takes nearly as long; what does stands still.
_AT_MOST_S = 1200.0


def main() -> int:
    args = _arguments()
    folder: Path = args.into or ROOT / (".cache/bench" if args.quick else "benchmarks/results")
    if args.page:
        found = {name: read(folder, name) for name in NAMES}
        commit = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["commit"]
        where = os.path.relpath(folder, PAGE.parent)
        page = with_block(PAGE.read_text(encoding="utf-8"), block(found, commit, where))
        PAGE.write_text(page, encoding="utf-8")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    names = args.only or NAMES
    commit = _commit()
    for number, name in enumerate(names, 1):
        print(f"\n[{number}/{len(names)}] {name}", flush=True)
        started = time.monotonic()
        status = run(name, folder, quick=args.quick)
        said = "" if not status else f": FAILED ({status})"
        print(f"[{number}/{len(names)}] {name}: {time.monotonic() - started:.0f} s{said}")
    results = {name: read(folder, name) for name in NAMES}
    write_summary(folder, results, commit)
    print(f"\nAll in {(time.monotonic() - began) / 60:.1f} minutes.\n")
    print(bars_table({name: results[name] for name in names}))
    return int(any(results[name] is None for name in names))


def run(name: str, folder: Path, *, quick: bool) -> str:
    """Run a benchmark and show its output; return why it failed, if so. Removes older results."""
    files = {kind: folder / f"{name}.{kind}" for kind in ("json", "png", "txt")}
    for file in files.values():
        file.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    command += ["--json", str(files["json"]), "--chart", str(files["png"])]
    process = subprocess.Popen(
        [*command, *(["--quick"] if quick else [])],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that all it started can be ended with it
    )
    assert process.stdout is not None
    alarm = threading.Timer(_AT_MOST_S, os.killpg, (process.pid, signal.SIGKILL))
    alarm.start()
    lines = []
    try:
        for line in process.stdout:
            print("  " + line, end="", flush=True)
            if not line.startswith("picture: "):
                lines.append(line)
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    finally:
        alarm.cancel()
        files["txt"].write_text("".join(lines), encoding="utf-8")
    if status:
        # It may have failed behind its last figure, and those before it prove nothing then.
        files["json"].unlink(missing_ok=True)
    return f"exit status {status}" if status else ""


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """What a benchmark found, with its ``output`` and whether it has a ``chart``; None: it failed,
    or was not run.
    """
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        output = (folder / f"{name}.txt").read_text(encoding="utf-8")
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return {**found, "output": output, "chart": (folder / f"{name}.png").exists()}


def write_summary(folder: Path, results: Results, commit: str) -> None:
    """``summary.md`` and ``summary.json``."""
    text = f"# Benchmarks\n\n{conditions(results, commit)}\n\n{bars_table(results)}\n"
    (folder / "summary.md").write_text(text, encoding="utf-8")
    kept = {
        "commit": commit,
        "benchmarks": {
            name: None if r is None else {"seconds": r["seconds"], "bars": r["bars"]}
            for name, r in results.items()
        },
    }
    (folder / "summary.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    """Return the commit of this checkout, marked if files were changed; empty without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="prove that they work, in seconds")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where results go")
    parser.add_argument("--page", action="store_true", help="write the results into the page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
