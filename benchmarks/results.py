"""Format the results of the benchmarks as a table of bars and as part of a page. Pure.

A result is the JSON that a benchmark writes (:class:`benchmarks.report.Report`), with what was
printed as ``output``; None stands for one that failed or was not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Results = Mapping[str, Mapping[str, Any] | None]

BEGIN = "<!-- results: written by `python -m benchmarks --page` -->"
END = "<!-- end of results -->"


def bars_table(results: Results) -> str:
    """All bars as a table in Markdown, in the order of the benchmarks."""
    lines = ["| | bar | measured | | benchmark |", "|---|---|---|---|---|"]
    for name, result in results.items():
        if result is None:
            lines.append(f"| all of it | | | **failed, or not run** | `{name}` |")
            continue
        for bar in result["bars"]:
            sign = "at most" if bar["at_most"] else "at least"
            verdict = "met" if bar["met"] else "**not met**"
            lines.append(
                f"| {bar['what']} | {sign} {bar['wanted']:g} | {bar['seen']:.3g} | {verdict} "
                f"| `{name}` |"
            )
    return "\n".join(lines)


def conditions(results: Results, commit: str) -> str:
    """Machine, versions and commit in a few lines of Markdown."""
    result = next((result for result in results.values() if result is not None), None)
    if result is None:
        return ""
    machine = result["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    seconds = sum(result["seconds"] for result in results.values() if result is not None)
    return (
        f"Measured on {machine['cores']} cores of {machine['processor'] or 'an unnamed processor'} "
        f"({machine['system']}, Python {machine['python']}), commit `{commit}`, in "
        f"{seconds / 60:.0f} minutes.\n\n{packages}."
    )


def block(results: Results, commit: str, folder: str) -> str:
    """Return the text between the marks of the page.

    Args:
        folder: Where charts and JSON are, from the page's folder.
    """
    parts = [conditions(results, commit), "### The bars", bars_table(results)]
    for name, result in results.items():
        if result is None:
            continue
        parts.append(f"### `{name}`")
        if result["chart"]:
            parts.append(f"![{name}]({folder}/{name}.png)")
        parts.append(f"```text\n$ python -m benchmarks.{name}\n{result['output'].rstrip()}\n```")
    return "\n\n".join(parts)


def with_block(page: str, text: str) -> str:
    """Return a page with the text between its marks replaced.

    Raises:
        ValueError: It has no marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"
