"""Write `docs/reference/options.md` from the table that the parser uses: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_ds.options.foreign import IGNORED, REFUSED
from kinesis_ds.options.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesis_ds.options.option import Option

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "options.md"

_HEAD = """\
<!-- Written by `make docs` from kinesis_ds/options/table.py. Change it there. -->

# Options

Upper and lower case in names make no difference. An alias is another name of the same option. It is
an error to give both with different values, or to give a name that is not listed here. All problems
are reported together, when the query is built (`load()` of a source, `start()` of a sink).

`streamName` or `streamARN` is required. All other options may be left out.

* A size is a number of bytes, or a number with `kb`, `mb` or `gb`: `1mb` is 1,048,576 bytes.
* A duration has a unit: `500ms`, `10s`, `5min`, `1h`, `1d`.
* "Applies to" says for which queries an option is meant: source or sink, streaming or batch reads,
  enhanced fan-out (EFO) or polling. In any other query it has no effect, except in three cases,
  which are errors: an option of the sink is given to a source, or the reverse; an option is meant
  for another `consumerMode` than the one that is given; or `endingPosition` is given to a streaming
  query. A name that begins with `kinesis.` is never such an error.
* Options without effect on a query are named in one line of its log, at level WARNING.
* Spark does not pass on [the options of a table](../how-to/read-a-batch.md#as-a-table).
* Positions have [a page of their own](positions.md).
"""

_FOREIGN_OPTIONS = """\
## Options of other connectors

These are accepted and have no effect, so that a job of another connector runs unchanged:

| Options | Here |
|---|---|
{ignored}

Refused, because ignoring them could mean to use another account or another way through the network:

| Options | Here |
|---|---|
{refused}
"""


def page() -> str:
    """Return the text of the page."""
    both = [o for o in OPTIONS if len(o.modes) == 2]
    source = [o for o in OPTIONS if o.modes == {"read"}]
    sink = [o for o in OPTIONS if o.modes == {"write"}]
    parts = [
        _HEAD,
        _section("Source and sink", both),
        _section("Source", source),
        _section("Sink", sink),
        _FOREIGN_OPTIONS.format(
            ignored=_foreign_options(IGNORED), refused=_foreign_options(REFUSED)
        ),
    ]
    return "\n".join(parts)


def _section(title: str, options: Iterable[Option]) -> str:
    lines = [
        f"## {title}",
        "",
        "| Option | Aliases | Applies to | Default | Meaning |",
        "|---|---|---|---|---|",
        *map(_row, options),
    ]
    return "\n".join(lines) + "\n"


def _row(option: Option) -> str:
    aliases = [f"`{alias}`" for alias in option.aliases]
    aliases += [f"`{foreign.name}` ({foreign.form})" for foreign in option.foreign_names]
    default = f"`{option.default}`" if option.default is not None else ""
    if option.batch_default is not None:
        default += f", in a batch read `{option.batch_default}`"
    meaning = option.doc + (" It is never in a message or a log." if option.secret else "")
    cells = (
        f"`{option.key}`",
        ", ".join(aliases),
        _applies_to(option),
        default,
        meaning.replace("|", "\\|"),
    )
    return "| " + " | ".join(cells) + " |"


def _applies_to(option: Option) -> str:
    sides = {"read": "source", "write": "sink"}
    found = [sides[mode] for mode in sorted(option.modes)]
    found += [{"stream": "streaming", "batch": "batch reads"}[option.kind]] if option.kind else []
    found += [{"efo": "EFO", "polling": "polling"}[option.consumer]] if option.consumer else []
    return ", ".join(found)


def _foreign_options(options: Mapping[tuple[str, ...], str]) -> str:
    return "\n".join(
        f"| {', '.join(f'`{name}`' for name in names)} | {why} |" for names, why in options.items()
    )


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
