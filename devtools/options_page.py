"""Writes `docs/reference/options.md` from the table that the parser uses: `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kinesis_ds.options import OPTIONS, Option

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "options.md"

_HEAD = """\
<!-- Written by `make docs` from kinesis_ds/options.py. Change it there. -->

# Options

Names have no case. An alias is another name of the same option; giving both with different values
is an error, and so is a name that is not listed here. All problems are reported together, when the
query is built (`load()` of a source, `start()` of a sink).

`streamName` or `streamARN` is required. All others may be left out.

* A size is a number of bytes, or a number with `kb`, `mb` or `gb`: `1mb` is 1,048,576 bytes.
* A duration has its unit: `500ms`, `10s`, `5min`, `1h`, `1d`.
* A time is ISO 8601 (`2026-11-20T12:00:00Z`; UTC where it names no zone) or seconds since the
  epoch.
"""


def page() -> str:
    """The page as it should be."""
    both = [o for o in OPTIONS if len(o.modes) == 2]
    source = [o for o in OPTIONS if o.modes == {"read"}]
    sink = [o for o in OPTIONS if o.modes == {"write"}]
    parts = [
        _HEAD,
        _section("Source and sink", "source, sink", both),
        _section("Source", "source", source),
        _section("Sink", "sink", sink),
    ]
    return "\n".join(parts)


def _section(title: str, applies_to: str, options: Iterable[Option]) -> str:
    lines = [
        f"## {title}",
        "",
        "| Option | Aliases | Applies to | Default | Meaning |",
        "|---|---|---|---|---|",
        *(_row(option, applies_to) for option in options),
    ]
    return "\n".join(lines) + "\n"


def _row(option: Option, applies_to: str) -> str:
    aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
    default = f"`{option.default}`" if option.default is not None else ""
    meaning = option.doc + (" In no message and no log." if option.secret else "")
    cells = (f"`{option.key}`", aliases, applies_to, default, meaning.replace("|", "\\|"))
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
