"""Run the Spark tests on each PySpark that we support, with each Python on this machine.

    python -m devtools.matrix                     # all; one environment a cell, kept in .cache
    python -m devtools.matrix --spark 4.3.0       # one column
    python -m devtools.matrix --python 3.10 -- tests/spark -k triggers

Prints a table at the end, and exits with 1 if a cell failed. The output of a cell is in
``.cache/matrix/<cell>/log.txt``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The newest patch of each, and the oldest Python that it runs on (its Requires-Python).
SPARKS = {"4.0.5": (3, 9), "4.1.4": (3, 10), "4.2.1": (3, 10), "4.3.0": (3, 11)}
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))
TESTS = ["tests/spark", "integration/test_smoke.py"]

_ROOT = Path(__file__).parent.parent
_CELLS = _ROOT / ".cache" / "matrix"


@dataclass(frozen=True)
class Cell:
    """One Python with one PySpark."""

    python: tuple[int, int]
    executable: str
    spark: str

    @property
    def name(self) -> str:
        return f"python{self.python[0]}.{self.python[1]}-spark{self.spark}"


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: pytest's summary, or why there is none."""

    cell: Cell
    passed: bool
    summary: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    own, tests = _split(list(sys.argv[1:] if argv is None else argv))
    parser = argparse.ArgumentParser(
        prog="python -m devtools.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", action="append", help="for example 3.12; else all at hand")
    parser.add_argument("--spark", action="append", help="for example 4.3.0; else all")
    args = parser.parse_args(own)
    cells = [
        Cell(version, executable, spark)
        for version, executable in pythons().items()
        for spark, oldest in SPARKS.items()
        if version >= oldest
        and (not args.python or f"{version[0]}.{version[1]}" in args.python)
        and (not args.spark or spark in args.spark)
    ]
    if not cells:
        parser.error("no such Python at hand, or no such PySpark")
    outcomes = []
    for i, cell in enumerate(cells, 1):
        _say(f"[{i}/{len(cells)}] {cell.name} ...")
        began = time.monotonic()
        outcome = run(cell, tests or TESTS)
        outcomes.append(outcome)
        _say(f"[{i}/{len(cells)}] {cell.name}: {outcome.summary} ({time.monotonic() - began:.0f}s)")
    _say("")
    for outcome in outcomes:
        _say(f"{'ok' if outcome.passed else 'FAILED':<8}{outcome.cell.name:<28}{outcome.summary}")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def pythons() -> dict[tuple[int, int], str]:
    """Return the supported Pythons on this machine: on the PATH, or installed by pyenv."""
    found = {}
    for version in PYTHONS:
        name = f"python{version[0]}.{version[1]}"
        candidates = [shutil.which(name), *_of_pyenv(name)]
        working = next((c for c in candidates if c is not None and _works(c, version)), None)
        if working is not None:
            found[version] = working
    return found


def run(cell: Cell, tests: Sequence[str]) -> Outcome:
    """Make the cell's environment, if there is none, and run tests in it."""
    folder = _CELLS / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    venv = folder.relative_to(_ROOT) / "venv"
    make = ["make", "--no-print-directory", f"VENV={venv}", f"PYTHON={cell.executable}"]
    with log.open("wb") as out:
        for command in (
            [*make, f"PYSPARK={cell.spark}", "setup"],
            [str(_ROOT / venv / "bin" / "python"), "-m", "pytest", "-q", *tests],
        ):
            code = subprocess.run(
                command, cwd=_ROOT, stdout=out, stderr=subprocess.STDOUT, check=False
            ).returncode
            if code:
                break
    return Outcome(cell, code == 0, _summary(log.read_text(errors="replace")))


def _summary(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    counted = [line for line in lines if re.search(r"\d+ (passed|failed|error)", line)]
    return (counted or lines or ["nothing was printed"])[-1].strip("= ")


def _of_pyenv(name: str) -> list[str]:
    if shutil.which("pyenv") is None:
        return []
    root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout
    return [str(path) for path in sorted(Path(root.strip()).glob(f"versions/*/bin/{name}"))]


def _works(executable: str, version: tuple[int, int]) -> bool:
    """Return True if the program is that Python; pyenv's shims exist for inactive ones, too."""
    asked = subprocess.run(
        [executable, "-c", "import sys, venv; print(*sys.version_info[:2])"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.split() == [str(part) for part in version]


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
