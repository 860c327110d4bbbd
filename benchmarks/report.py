"""The parts of every benchmark: arguments, table, JSON, bars and chart."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGES = (
    "kinesis-ds", "pyspark", "pyarrow", "orjson", "pybase64", "aiohttp", "awscrt", "boto3",
    "aiobotocore", "async-kinesis",
)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A figure that is to be reached.

    Attributes:
        what: What was measured, with its unit, as the table of targets has it.
        wanted, seen: The bar, and what was measured.
        at_most: Whether smaller is better.
    """

    what: str
    wanted: float
    seen: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.seen <= self.wanted if self.at_most else self.seen >= self.wanted

    def __str__(self) -> str:
        sign = "at most" if self.at_most else "at least"
        verdict = "met" if self.met else "NOT MET"
        return f"{self.what}: {self.seen:.3g}, bar {sign} {self.wanted:g}: {verdict}"


@dataclass
class Report:
    """The results of a benchmark; :meth:`finish` prints its bars and writes its files.

    Attributes:
        name: The module's, without the package.
        rows: The table as plain values, one mapping a line; for JSON.
        raw: Whatever else is worth keeping: series over time, profiles.
    """

    name: str
    args: argparse.Namespace
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def finish(self, draw: Callable[[Figure], None] | None = None) -> None:
        """Print the bars; write the JSON and the chart where they were asked for."""
        for bar in self.bars:
            print(bar)
        if self.args.json:
            found = {
                "benchmark": self.name,
                "quick": self.args.quick,
                "seconds": round(time.perf_counter() - self.began, 1),
                "machine": machine(),
                "rows": self.rows,
                "bars": [{**asdict(bar), "met": bar.met} for bar in self.bars],
                "raw": self.raw,
            }
            Path(self.args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if self.args.chart and draw is not None:
            save(draw, Path(self.args.chart))


def arguments(description: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """``--quick``, ``--json FILE`` and ``--chart FILE``, which every benchmark takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="end within seconds; proves little")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    parser.add_argument("--chart", metavar="FILE", help="draw it: a PNG, with the extra bench")
    return parser.parse_args(argv)


def table(rows: Iterable[Mapping[str, Any]], formats: Mapping[str, str] | None = None) -> str:
    """Rows of equal keys as text in columns; ``formats`` has a format spec by key."""
    formats = formats or {}
    lines = list(rows)
    if not lines:
        return ""
    heads = list(lines[0])
    cells = [heads] + [[_cell(row[head], formats.get(head, "")) for head in heads] for row in lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def machine() -> dict[str, Any]:
    """Return the hardware and versions of this machine, without its name and paths."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def save(draw: Callable[[Figure], None], path: Path, size: tuple[float, float] = (9, 5)) -> None:
    """Draw into a file, where matplotlib is there: ``pip install '.[bench]'``."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # of the extra bench
    except ImportError:
        print("no picture: matplotlib is not installed (extra bench)", file=sys.stderr)
        return
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def _cell(value: object, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((at.partition(":")[2].strip() for at in lines if at.startswith("model name")), "")
